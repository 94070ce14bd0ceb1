"""This module looks at everything a decision rests on, and never takes silence for an answer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from pydantic import ValidationError

from fleet.budgets.ledger import periods
from fleet.census.renames import heirs_of, stack_name
from fleet.errors import FleetError, StoreFailed, StoreMissing
from fleet.facts import Attempt, Listing, QueueReading, Stack, Unknown, Worker, World
from fleet.facts.bases import Base
from fleet.facts.ledger import Ledger
from fleet.facts.rules import HeldRules
from fleet.facts.versions import ImageVersion
from fleet.operate.price_lists import read_prices
from fleet.operate.spending import used_so_far
from fleet.plan.outcome import Outcome
from fleet.ports import (
    Engine,
    Enroller,
    Keeper,
    Members,
    PriceReader,
    Provider,
    Queue,
    Registry,
    RuleReader,
    Sharer,
    StackRef,
)
from fleet.ports.store import Since, StackRecord, Store
from fleet.ports.tickets import Desk, Lender
from fleet.schema.model import CoprQueue, Fleet, Pool
from fleet.verdicts import heartbeats

REMEMBERED = 50
"""How many tries of each pool, machine type and market a decision rests on, the latest ones."""
_Asked = TypeVar("_Asked")
_Told = TypeVar("_Told")
_AT_ONCE = 8
"""How many providers are listed at once."""
_MOST_SKEW = timedelta(minutes=5)
"""So much the clocks of two computers that apply may differ."""
_JOURNALLED = 20
"""How many runs that ended are looked through for what they deleted."""


def one_by_one(tasks: Sequence[Callable[[], None]]) -> None:
    """Carry out tasks in their order."""
    for task in tasks:
        task()


@dataclass(frozen=True)
class Sources:
    """The edges that one fleet.yaml names, wired by a command."""

    queues: Mapping[str, Queue]
    providers: Mapping[str, Provider]
    registries: Mapping[str, Registry]
    """Queue or provider to where its workers can be told to let go."""
    engine_of: Callable[[str], Engine]
    """Provider name to the engine that owns its stacks; raises FleetError where none does."""
    store: Store
    keepers: Mapping[str, Keeper] = field(default_factory=dict)
    """Providers whose machines can be looked after without their stack."""
    bases: Mapping[str, Sharer] = field(default_factory=dict)
    """Providers whose machines share something, to what changes that."""
    enrollers: Mapping[str, Enroller] = field(default_factory=dict)
    """Queue to where new workers of it are made known; each of these has a registry too."""
    desks: Mapping[str, Desk] = field(default_factory=dict)
    """Queues of tickets, to where fleet gives them machines itself."""
    lenders: Mapping[str, Lender] = field(default_factory=dict)
    """Providers that look after the machines that tickets are given."""
    rules: Mapping[str, RuleReader] = field(default_factory=dict)
    """Queues to what reads the rules by which they give tags to their requests."""
    look: Callable[[Mapping[str, Listing | Unknown]], dict[str, Listing | Unknown]] = dict
    """Tries the ports of machines that tickets are given, and returns the listings with that."""
    prices: Mapping[str, PriceReader] = field(default_factory=dict)
    """Providers that can be asked what they charge."""
    members: Members | None = None
    """Who is in which group, where fleet.yaml says where that stands."""
    is_ending: Callable[[], bool] = lambda: False
    """Whether somebody asked to end: then no further pool is begun."""
    crew: Callable[[Sequence[Callable[[], None]]], None] = one_by_one
    """What carries out the work on several pools, each a task."""


def observe(fleet: Fleet, sources: Sources, now: datetime) -> World:
    """Return the world as every source tells it; what a source cannot tell is Unknown."""
    listings = sources.look(_listings(sources.providers, fleet.fleet))
    desks = {name: queue for name, queue in sources.queues.items() if name in sources.desks}
    others = {name: queue for name, queue in sources.queues.items() if name not in desks}
    world = World(
        fleet=fleet.fleet,
        time=now,
        queues=_readings(others, now),
        providers=listings,
        stacks=_stacks(fleet, sources, listings),
        bases=_bases(fleet, sources),
        images=_images(sources.store),
        ledger=_ledger(fleet, sources.store, now),
        attempts=_attempts(sources.store),
        members=_members(sources),
        runs=_runs(sources.store, now),
        delete_seconds=_delete_seconds(sources.store),
        prices=read_prices(sources.prices, sources.store, now),
    )
    # Tickets last: one that is taken while a slow source answers is not left to the next run.
    queues = with_rules(world.queues, sources.rules, sources.store) | _readings(desks, now)
    queues |= dict(_with_packages(fleet, queues))
    world = world.model_copy(update={"queues": dict(sorted(queues.items()))})
    return world.model_copy(update={"approved": _approved(sources.store, world)})


def _readings(queues: Mapping[str, Queue], now: datetime) -> dict[str, QueueReading]:
    return _side_by_side(queues, lambda queue: queue.read(now))


def _with_packages(
    fleet: Fleet, queues: Mapping[str, QueueReading]
) -> Iterator[tuple[str, QueueReading]]:
    """Yield queues of tickets with the packages that other queues tell of their work."""
    desks = dict(queues)
    for name, reading in queues.items():
        queue, told = fleet.queues.get(name), reading.packages
        if not told or not isinstance(queue, CoprQueue) or queue.tickets is None:
            continue
        desk = desks[queue.tickets]
        if isinstance(desk.workers, tuple):
            named = tuple(_building(each, told.get(each.running or "")) for each in desk.workers)
            desks[queue.tickets] = desk.model_copy(update={"workers": named})
            yield queue.tickets, desks[queue.tickets]


def _building(worker: Worker, package: str | None) -> Worker:
    if worker.work is None or worker.work.package or package is None:
        return worker
    work = worker.work.model_copy(update={"package": package})
    return worker.model_copy(update={"work": work})


def with_rules(
    queues: Mapping[str, QueueReading], rules: Mapping[str, RuleReader], store: Store
) -> dict[str, QueueReading]:
    """Return the readings with the rules of each queue, and since when fleet saw them."""
    if not rules:
        return dict(queues)
    try:
        seen = store.rules_seen()
    except (StoreMissing, StoreFailed):
        seen = {}
    read = dict(queues)
    for name, reader in rules.items():
        seen_since = {
            place: _since(held, seen.get(f"{name}/{place}"))
            for place, held in reader.read().items()
        }
        read[name] = read[name].model_copy(update={"rules": seen_since})
    return read


def _since(held: HeldRules | Unknown, seen: tuple[str, datetime] | None) -> HeldRules | Unknown:
    if isinstance(held, Unknown) or seen is None or seen[0] != held.digest:
        return held
    return held.model_copy(update={"since": seen[1]})


def remember_rules(world: World, store: Store) -> None:
    """Remember when the rules of queues were seen first, where they are new."""
    store.see_rules(
        {
            f"{name}/{place}": (held.digest, world.time)
            for name, reading in world.queues.items()
            for place, held in reading.rules.items()
            if isinstance(held, HeldRules) and held.since is None
        }
    )


def stack_ref(fleet: Fleet, pool: str, provider: str, stack: Stack | None = None) -> StackRef:
    """Return which stack holds a pool's machines at a provider; one that it has keeps its name."""
    declared = fleet.providers.get(provider)
    return StackRef(
        project=declared.kind if declared else "",
        name=stack_name(fleet, pool, stack),
        provider=provider,
        pool=pool,
    )


def base_ref(fleet: Fleet, provider: str) -> StackRef:
    """Return which stack holds what a provider's machines share; no pool's is called so."""
    return StackRef(
        project=fleet.providers[provider].kind,
        name=f"{fleet.fleet}.{provider}",
        provider=provider,
        pool="",
    )


def ended_runs(store: Store, now: datetime) -> tuple[datetime, ...]:
    """Return when the latest runs began that came to their end, oldest first.

    What else is in the journal, as a machine that a person had forgotten, carried out no plan. A
    run of the future had a clock that was ahead: nobody knows when it was.
    """
    latest = store.ended_runs(heartbeats.REMEMBERED)
    began = (datetime.fromisoformat(run["started"]) for run in reversed(latest))
    return tuple(moment for moment in began if moment <= now + _MOST_SKEW)


def _bases(fleet: Fleet, sources: Sources) -> dict[str, Base | Unknown]:
    """Return the base stacks that exist."""
    read = {
        name: engine.read(base_ref(fleet, name)) for name, engine in sorted(sources.bases.items())
    }
    return {name: base for name, base in read.items() if base is not None}


def _ledger(fleet: Fleet, store: Store, now: datetime) -> Ledger | Unknown:
    hour, day, month = (period.start for period in periods(fleet, now))
    try:
        return store.ledger(Since(hour=hour, day=day, month=month), fleet.money.currency)
    except (StoreMissing, StoreFailed) as error:
        return Unknown(unknown=str(error))


def _approved(store: Store, world: World) -> dict[str, int] | Unknown:
    """Return how far approvals were used; where that cannot be read, none may be used."""
    readings = [queue.workers for queue in world.queues.values()]
    readings += [
        listing if isinstance(listing, Unknown) else listing.workers
        for listing in world.providers.values()
    ]
    try:
        return used_so_far(store.spent(), world.stacks, readings)
    except (StoreMissing, StoreFailed) as error:
        return Unknown(unknown=str(error))


def _runs(store: Store, now: datetime) -> tuple[datetime, ...] | Unknown:
    try:
        return ended_runs(store, now)
    except (StoreMissing, StoreFailed) as error:
        return Unknown(unknown=str(error))


def _delete_seconds(store: Store) -> int | None:
    """Return how long the longest of the latest runs took that deleted machines."""
    try:
        latest = store.ended_runs(_JOURNALLED)
    except (StoreMissing, StoreFailed):
        return None
    took = [
        datetime.fromisoformat(run["ended"]) - datetime.fromisoformat(run["started"])
        for run in latest
        if _has_deleted(run["outcome"])
    ]
    longest = max(took[: heartbeats.REMEMBERED], default=None)
    return None if longest is None else -(-longest // timedelta(seconds=1))


def _has_deleted(outcome: str) -> bool:
    try:
        return any(stack.deleted for stack in Outcome.model_validate_json(outcome).stacks)
    except ValidationError:
        return False


def _attempts(store: Store) -> tuple[Attempt, ...]:
    """Return the tries that are remembered; without a store nothing is made anyway."""
    try:
        return store.attempts(REMEMBERED)
    except (StoreMissing, StoreFailed):
        return ()


def _images(store: Store) -> tuple[ImageVersion, ...] | Unknown:
    try:
        return tuple(version.fact for version in store.image_versions())
    except (StoreMissing, StoreFailed) as error:
        return Unknown(unknown=str(error))


def _members(sources: Sources) -> dict[str, tuple[str, ...]] | Unknown:
    read = sources.members.read() if sources.members is not None else {}
    return read if isinstance(read, Unknown) else dict(read)


def _listings(providers: Mapping[str, Provider], fleet: str) -> dict[str, Listing | Unknown]:
    return _side_by_side(providers, lambda provider: _listing(provider, fleet))


def _side_by_side(asked: Mapping[str, _Asked], ask: Callable[[_Asked], _Told]) -> dict[str, _Told]:
    """Return what each tells, by name; several are asked at once, for each takes its own time."""
    names = sorted(asked)
    if len(names) < 2:  # noqa: PLR2004 - one alone is asked without a thread
        return {name: ask(asked[name]) for name in names}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="asking") as threads:
        told = threads.map(lambda name: ask(asked[name]), names)
        return dict(zip(names, told, strict=True))


def _listing(provider: Provider, fleet: str) -> Listing | Unknown:
    try:
        return provider.list(fleet)
    except FleetError as error:
        return Unknown(unknown=str(error))


def _stacks(
    fleet: Fleet, sources: Sources, listings: Mapping[str, Listing | Unknown]
) -> dict[str, Stack | Unknown] | Unknown:
    """Return the stacks of pools that are configured, remembered, or named by a machine."""
    try:
        known = sources.store.stacks()
    except (StoreMissing, StoreFailed) as error:
        return Unknown(unknown=str(error))
    records = _by_heir(fleet, known)
    configured = {
        name: pool.provider for name, pool in fleet.pools.items() if isinstance(pool, Pool)
    }
    remembered = {pool: record.provider for pool, record in records.items()}
    heirs = heirs_of(fleet)
    named = {
        heirs.get(machine.pool, machine.pool): provider
        for provider, listing in listings.items()
        if isinstance(listing, Listing)
        for machine in listing.machines
    }
    owners = {record.name: pool for pool, record in records.items()}
    stacks = {}
    for pool, provider in sorted((named | remembered | configured).items()):
        stack = _stack_of(fleet, sources, (pool, provider), records.get(pool), owners)
        if stack is not None:
            stacks[pool] = stack
    return stacks


def _by_heir(fleet: Fleet, known: Iterable[StackRecord]) -> dict[str, StackRecord]:
    """Return the remembered stacks by pool, renamed pools by their new name."""
    records = {record.pool: record for record in known}
    heirs = {old: new for old, new in heirs_of(fleet).items() if new not in records}
    return {heirs.get(pool, pool): record for pool, record in records.items()}


def _stack_of(
    fleet: Fleet,
    sources: Sources,
    place: tuple[str, str],
    record: StackRecord | None,
    owners: Mapping[str, str],
) -> Stack | Unknown | None:
    """Return a pool's stack, under the name that it has; None where it has none."""
    pool, provider = place
    ref = stack_ref(fleet, pool, provider)
    if record is not None:
        return _named(
            fleet, _stack(_called(ref, record.name), sources, record, fleet), pool, record.name
        )
    if ref.name in owners and pool not in fleet.pools:
        return None  # only labels still bear the old name
    if ref.name in owners:
        return Unknown(
            unknown=f"stack {ref.name} belongs to pool {owners[ref.name]}, which was renamed; "
            f"give pool {pool} another name"
        )
    stack = _stack(ref, sources, None, fleet)
    declared = fleet.pools.get(pool)
    old = declared.previously if isinstance(declared, Pool) else None
    if stack is not None or old is None:
        return stack
    name = stack_ref(fleet, old, provider).name
    return _named(fleet, _stack(_called(ref, name), sources, None, fleet), pool, name)


def _called(ref: StackRef, name: str) -> StackRef:
    return ref.model_copy(update={"name": name})


def _named(
    fleet: Fleet, stack: Stack | Unknown | None, pool: str, name: str
) -> Stack | Unknown | None:
    """Note the name of a stack that is not called like its pool."""
    if not isinstance(stack, Stack) or name == stack_name(fleet, pool):
        return stack
    return stack.model_copy(update={"name": name})


def _stack(
    ref: StackRef, sources: Sources, record: StackRecord | None, fleet: Fleet
) -> Stack | Unknown | None:
    if record is not None and record.provider != ref.provider:
        return Unknown(
            unknown=f"its machines are at provider {record.provider}, fleet.yaml now says "
            f"{ref.provider}; give the pool at {ref.provider} a new name, or once it is empty: "
            f"fleet state init --forget-stack {ref.name}"
        )
    try:
        engine = sources.engine_of(ref.provider)
        stack = _own(ref, engine.read(ref), fleet, record)
    except FleetError as error:
        return Unknown(unknown=str(error))
    if record is None or isinstance(stack, Unknown):
        return stack
    if record.engine != engine.name:
        return Unknown(
            unknown=f"it belongs to engine {record.engine}, not {engine.name}; "
            f"set `engine: {record.engine}` on provider {ref.provider} again"
        )
    # Serial 0 was recorded before the first operation: that stack may never have come to be.
    if stack is None and record.serial > 0:
        return Unknown(
            unknown=f"stack {ref.name} was there before and is missing now; restore the state, "
            "or if it is really gone: fleet state init --forget-stack " + ref.name
        )
    return stack


def _own(
    ref: StackRef, stack: Stack | Unknown | None, fleet: Fleet, record: StackRecord | None
) -> Stack | Unknown | None:
    """Return a stack, but Unknown where it holds what is not this pool's.

    Pool `b` of fleet `debian-ci` and pool `ci-b` of fleet `debian` have stacks of one name. What
    pools were called when their machines were made, the store remembers by its record.
    """
    pool = fleet.pools.get(ref.pool)
    names = {ref.pool, pool.previously if isinstance(pool, Pool) else None}
    for worker in stack.workers if isinstance(stack, Stack) else ():
        theirs = (worker.labels.get("fleet", fleet.fleet), worker.labels.get("pool", ref.pool))
        if theirs[0] != fleet.fleet or (record is None and theirs[1] not in names):
            return Unknown(
                unknown=f"stack {ref.name} holds machines of pool {theirs[1]} of fleet "
                f"{theirs[0]}; rename the pool, or give each fleet a state.backend of its own"
            )
    return stack
