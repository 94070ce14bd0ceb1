"""Observe the world: ask every source that fleet.yaml names, and read the store."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import inf
from threading import Thread
from typing import TypeVar

from pydantic import ValidationError

from fleet.apply.absences import find_absences
from fleet.apply.spending import used_so_far
from fleet.errors import FleetError, StoreFailed, StoreMissing
from fleet.model.facts import (
    Base,
    HeldRules,
    Ledger,
    Listing,
    PriceList,
    QueueReading,
    Stack,
    Unknown,
    Worker,
    World,
)
from fleet.model.outcome import Outcome, StackOutcome
from fleet.model.values import first_mistake
from fleet.observation import OBSERVATION_SECONDS
from fleet.planner import assembly
from fleet.planner.inventory import heirs_of, stack_name
from fleet.planner.ledger import periods
from fleet.ports import (
    Asking,
    Engine,
    Enroller,
    MachineApi,
    MachineCleaner,
    Members,
    Messenger,
    PoolExecutor,
    PriceReader,
    Provider,
    Queue,
    Registry,
    RuleReader,
    SharedStackEngine,
    Since,
    StackRecord,
    StackRef,
    Store,
    Task,
    TicketDesk,
)
from fleet.schema.model import CoprQueue, Fleet, Pool
from fleet.tagrules.export import places_of
from fleet.tickets.forgotten import Records, with_forgotten

REMEMBERED = 50
"""How many tries of each pool, machine type and market a decision rests on, the latest ones."""
_ATTEMPTS = 10_000
"""Maximum attempts of each pool, type and market in which a machine of this store is looked up."""
_MAX_AHEAD = timedelta(minutes=5)
"""Maximum time by which another clock may date a run or machine later than now.

Later dates are not believed, although a run goes on with MAX_SKEW.
"""
_JOURNALLED = 20
"""How many runs that ended are looked through for what they deleted."""
_FRESH = timedelta(hours=24)
"""How long a price list counts before its provider is asked again."""


class Sequential:
    """Carries out each task to its end, in their order."""

    def __init__(self) -> None:
        self.under_way: Mapping[str, Collection[str]] = {}
        self._ended: list[StackOutcome] = []

    def run(self, tasks: Sequence[Task]) -> None:
        """Carry out tasks."""
        self._ended += [outcome for task in tasks if (outcome := task.work())]

    def ended(self) -> Sequence[StackOutcome]:
        """Return what became of them."""
        ended, self._ended = self._ended, []
        return ended


@dataclass(frozen=True)
class Sources:
    """The edges that one fleet.yaml names, wired by a command."""

    queues: Mapping[str, Queue]
    providers: Mapping[str, Provider]
    registries: Mapping[str, Registry]
    """Queue or provider to the registry that drains and disables its workers."""
    engine_of: Callable[[str], Engine]
    """Provider name to the engine that owns its stacks; raises FleetError where none does."""
    store: Store
    asking: Callable[[], Asking]
    """What asks all these, under a deadline that begins when it is called for."""
    machine_apis: Mapping[str, MachineApi] = field(default_factory=dict)
    """Providers whose machines can be changed without their stack."""
    bases: Mapping[str, SharedStackEngine] = field(default_factory=dict)
    """Providers whose machines share something, to what changes that."""
    enrollers: Mapping[str, Enroller] = field(default_factory=dict)
    """Queue to what enrols its new workers; each of these has a registry too."""
    desks: Mapping[str, TicketDesk] = field(default_factory=dict)
    """Queues of tickets, which get machines from fleet itself."""
    cleaners: Mapping[str, MachineCleaner] = field(default_factory=dict)
    """Providers that clean machines between tickets."""
    rules: Mapping[str, RuleReader] = field(default_factory=dict)
    """Queues to what reads their own tag rules."""
    look: Callable[[Mapping[str, Listing | Unknown]], dict[str, Listing | Unknown]] = dict
    """Tries the ports of machines that tickets are given, and returns the listings with that."""
    prices: Mapping[str, PriceReader] = field(default_factory=dict)
    """Providers that can be asked what they charge."""
    messengers: Mapping[str, Messenger] = field(default_factory=dict)
    """Channel of `notify` to what takes notices there."""
    members: Members | None = None
    """Who is in which group, if fleet.yaml names a source for it."""
    prepare: Callable[[], None] = lambda: None
    """Does what comes before the first change of an apply."""
    is_ending: Callable[[], bool] = lambda: False
    """Whether a signal asked to stop: then no further pool is started."""
    executor: PoolExecutor = field(default_factory=Sequential)
    """What carries out the work on several pools, each a task."""


def observe(fleet: Fleet, sources: Sources, now: datetime) -> World:
    """Return the world as every source reports it; what a source cannot report is Unknown."""
    asking = sources.asking()
    listed = {
        name: partial(provider.list, fleet.fleet) for name, provider in sources.providers.items()
    }
    told = asking("provider", listed)
    listings = sources.look({name: _dated(each, now) for name, each in told.items()})
    desks = {name: queue for name, queue in sources.queues.items() if name in sources.desks}
    others = {
        name: partial(queue.read, now)
        for name, queue in sources.queues.items()
        if name not in desks
    }
    read = {name: _reading(each) for name, each in asking("queue", others).items()}
    stacks = _stacks(fleet, sources, listings, asking)
    before = partial(told_or, (), sources.store.absences)
    attempts = _recorded(lambda: sources.store.attempts(REMEMBERED))
    departures = _recorded(sources.store.departures)
    records = {"attempts": attempts, "departures": departures}
    world = World(
        fleet=fleet.fleet,
        time=now,
        queues={},
        providers=listings,
        stacks=stacks,
        absences=find_absences(before, sources.cleaners, (stacks, listings), asking, now),
        bases=read_bases(fleet, sources.bases, asking),
        images=_told(lambda: tuple(each.fact for each in sources.store.image_versions())),
        ledger=_told(lambda: _ledger(fleet, sources.store, now)),
        attempts=() if isinstance(attempts, Unknown) else attempts,
        orders=_recorded(partial(sources.store.orders, now)),
        departures=() if isinstance(departures, Unknown) else departures,
        unread={name: each.unknown for name, each in records.items() if isinstance(each, Unknown)},
        members=_members(sources),
        runs=_told(lambda: ended_runs(sources.store, now)),
        delete_seconds=_delete_seconds(sources.store),
        prices=read_prices(sources.prices, sources.store, now, asking),
    )
    queues = with_rules(fleet, read, sources.rules, sources.store, asking)
    # Tickets last: one that is opened while a slow source answers is served in this run.
    queues |= {name: desk.read(now) for name, desk in desks.items()}
    since: dict[str, datetime | None] = {}
    for name, desk in sources.desks.items():
        began = _told(desk.known_since)
        if isinstance(began, Unknown):
            # A machine may be older than the store, and its user known only to a lost one.
            queues[name] = queues[name].altered(workers=began)
        else:
            since[name] = began
    every_attempt = partial(told_or, (), partial(sources.store.attempts, _ATTEMPTS))
    recorded = {name for stack in world.known_stacks.values() for name in stack.names}
    known = Records(every_attempt, recorded, now)
    queues |= dict(with_forgotten(fleet, queues, listings, since, known))
    queues |= dict(_with_packages(fleet, queues))
    world = world.altered(queues=dict(sorted(queues.items())))
    # Where it cannot be read how far approvals were used, none may be used.
    approved = _told(lambda: _approved(sources.store, world))
    return world.altered(approved=approved)


T = TypeVar("T")
S = TypeVar("S")


def _told(ask: Callable[[], T]) -> T | Unknown:
    """Return what the store tells, or why it does not."""
    try:
        return ask()
    except (StoreMissing, StoreFailed) as error:
        return Unknown(unknown=str(error))


def _recorded(ask: Callable[[], tuple[T, ...]]) -> tuple[T, ...] | Unknown:
    """Return the records of the store; none without a store, which nothing is recorded in."""
    try:
        return ask()
    except StoreMissing:
        return ()
    except StoreFailed as error:
        return Unknown(unknown=str(error))


def told_or(otherwise: S, ask: Callable[[], T]) -> T | S:
    """Return what the store tells; something else where it does not."""
    told = _told(ask)
    return otherwise if isinstance(told, Unknown) else told


def _reading(told: QueueReading | Unknown) -> QueueReading:
    return QueueReading(demand=told, workers=told) if isinstance(told, Unknown) else told


def _dated(reading: Listing | Unknown, now: datetime) -> Listing | Unknown:
    """Return a listing without the creation times after now, which are unknown.

    The clock of the provider is wrong then, or its time zone.
    """
    if isinstance(reading, Unknown):
        return reading
    latest = now + _MAX_AHEAD
    machines = tuple(
        each.altered(created_at=None) if each.created_at and each.created_at > latest else each
        for each in reading.machines
    )
    return reading.altered(machines=machines)


def _stacks(
    fleet: Fleet, sources: Sources, listings: Mapping[str, Listing | Unknown], asking: Asking
) -> dict[str, Stack | Unknown] | Unknown:
    known = _told(sources.store.stacks)
    if isinstance(known, Unknown):
        return known
    return read_stacks(fleet, known, listings, sources.engine_of, asking)


def read_stacks(
    fleet: Fleet,
    known: Iterable[StackRecord],
    listings: Mapping[str, Listing | Unknown],
    engine_of: Callable[[str], Engine],
    asking: Asking,
) -> dict[str, Stack | Unknown]:
    """Return the stacks of pools that are configured, remembered, or named by a machine."""
    records = _by_heir(fleet, known)
    configured = {name: pool.provider for name, pool in fleet.dynamic_pools.items()}
    remembered = {pool: record.provider for pool, record in records.items()}
    heirs = heirs_of(fleet)
    named = {
        heirs.get(machine.pool, machine.pool): provider
        for provider, listing in listings.items()
        if isinstance(listing, Listing)
        for machine in listing.machines
    }
    owners = {record.name: pool for pool, record in records.items()}
    reader = _StackReader(fleet, owners, engine_of, asking)
    stacks = {}
    for pool, provider in sorted((named | remembered | configured).items()):
        stack = reader.of_pool(pool, provider, records.get(pool))
        if stack is not None:
            stacks[pool] = stack
    return stacks


def _by_heir(fleet: Fleet, known: Iterable[StackRecord]) -> dict[str, StackRecord]:
    """Return the remembered stacks by pool, renamed pools by their new name."""
    records = {record.pool: record for record in known}
    heirs = {old: new for old, new in heirs_of(fleet).items() if new not in records}
    return {heirs.get(pool, pool): record for pool, record in records.items()}


@dataclass(frozen=True)
class _StackReader:
    fleet: Fleet
    owners: Mapping[str, str]
    """Stack to the pool that it was recorded for."""
    engine_of: Callable[[str], Engine]
    asking: Asking

    def of_pool(
        self, pool: str, provider: str, record: StackRecord | None
    ) -> Stack | Unknown | None:
        """Return a pool's stack, under the name that it has; None where it has none."""
        ref = stack_ref(self.fleet, pool, provider)
        if record is not None:
            return self._named(ref, record.name, record)
        if ref.name in self.owners and pool not in self.fleet.pools:
            return None  # only labels still bear the old name
        if ref.name in self.owners:
            return Unknown(
                unknown=f"stack {ref.name} belongs to pool {self.owners[ref.name]}, which was "
                f"renamed; give pool {pool} another name"
            )
        stack = self._read(ref, None)
        declared = self.fleet.pools.get(pool)
        old = declared.previously if isinstance(declared, Pool) else None
        if stack is not None or old is None:
            return stack
        return self._named(ref, stack_ref(self.fleet, old, provider).name, None)

    def _named(
        self, ref: StackRef, name: str, record: StackRecord | None
    ) -> Stack | Unknown | None:
        """Return the stack of this name, which it notes where the pool is called otherwise."""
        stack = self._read(ref.altered(name=name), record)
        if not isinstance(stack, Stack) or name == stack_name(self.fleet, ref.pool):
            return stack
        return stack.altered(name=name)

    def _read(self, ref: StackRef, record: StackRecord | None) -> Stack | Unknown | None:
        if record is not None and record.provider != ref.provider:
            return Unknown(
                unknown=f"its machines are at provider {record.provider}, fleet.yaml now says "
                f"{ref.provider}; give the pool at {ref.provider} a new name, or once it is "
                f"empty: fleet state init --forget-stack {ref.name}"
            )
        try:
            engine = self.engine_of(ref.provider)
        except FleetError as error:
            return Unknown(unknown=str(error))
        read = self.asking("stack", {ref.name: partial(engine.read, ref)})[ref.name]
        stack = _own(ref, read, self.fleet, record)
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
                unknown=f"stack {ref.name} existed before and is missing now; restore the state, "
                f"or if it is really gone: fleet state init --forget-stack {ref.name}"
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


def stack_ref(fleet: Fleet, pool: str, provider: str, stack: Stack | None = None) -> StackRef:
    """Return which stack holds a pool's machines at a provider; one that it has keeps its name."""
    declared = fleet.providers.get(provider)
    return StackRef(
        project=declared.kind if declared else "",
        name=stack_name(fleet, pool, stack),
        provider=provider,
        pool=pool,
    )


def read_bases(
    fleet: Fleet, bases: Mapping[str, SharedStackEngine], asking: Asking
) -> dict[str, Base | Unknown]:
    """Return the base stacks that exist."""
    asked = {name: partial(base.read, base_ref(fleet, name)) for name, base in bases.items()}
    read = asking("the base of provider", asked)
    return {name: base for name, base in read.items() if base is not None}


def base_ref(fleet: Fleet, provider: str) -> StackRef:
    """Return which stack holds what a provider's machines share; no pool's is called so."""
    return StackRef(
        project=fleet.providers[provider].kind,
        name=f"{fleet.fleet}.{provider}",
        provider=provider,
        pool="",
    )


def _ledger(fleet: Fleet, store: Store, now: datetime) -> Ledger:
    hour, day, month = (period.start for period in periods(fleet, now))
    return store.ledger(Since(hour=hour, day=day, month=month), fleet.money.currency)


def _members(sources: Sources) -> dict[str, tuple[str, ...]] | Unknown:
    read = sources.members.read() if sources.members is not None else {}
    return read if isinstance(read, Unknown) else dict(read)


def ended_runs(store: Store, now: datetime) -> tuple[datetime, ...]:
    """Return when the latest runs began that came to their end, oldest first.

    Other entries of the journal, as of a forgotten machine, carried out no plan. A run that lies
    in the future had a clock that was ahead, so its time is unknown.
    """
    latest = store.ended_runs(assembly.REMEMBERED)
    began = (datetime.fromisoformat(run["started"]) for run in reversed(latest))
    return tuple(moment for moment in began if moment <= now + _MAX_AHEAD)


def _delete_seconds(store: Store) -> int | None:
    """Return how long the longest of the latest runs took that deleted machines."""
    took = [
        datetime.fromisoformat(run["ended"]) - datetime.fromisoformat(run["started"])
        for run in told_or((), lambda: store.ended_runs(_JOURNALLED))
        if _has_deleted(run["outcome"])
    ]
    longest = max(took[: assembly.REMEMBERED], default=None)
    return None if longest is None else -(-longest // timedelta(seconds=1))


def _has_deleted(outcome: str) -> bool:
    try:
        return any(
            stack.deleted or stack.cleaned for stack in Outcome.model_validate_json(outcome).stacks
        )
    except ValidationError:
        return False


def read_prices(
    readers: Mapping[str, PriceReader], store: Store, now: datetime, asking: Asking
) -> dict[str, PriceList | Unknown]:
    """Return each provider's list: the kept one while it is new, or where none can be read."""
    kept = {name: _kept(name, reader, store) for name, reader in sorted(readers.items())}
    asked = {
        name: partial(readers[name].read, now)
        for name, old in kept.items()
        if old is None or not old.read_at <= now < old.read_at + _FRESH
    }
    told = asking("the prices of provider", asked)
    for name, new in told.items():
        if isinstance(new, PriceList):
            _keep(name, new, store)
    return {name: _newest(told.get(name), old) for name, old in kept.items()}


def _newest(told: PriceList | Unknown | None, kept: PriceList | None) -> PriceList | Unknown:
    if isinstance(told, Unknown) and kept is not None:
        return kept.altered(stale=told.unknown)
    return told or kept or Unknown(unknown="no price list")


def _keep(name: str, told: PriceList, store: Store) -> None:
    with suppress(StoreMissing, StoreFailed):  # then the next run tries again
        store.keep_price_list(name, told)


def _kept(name: str, reader: PriceReader, store: Store) -> PriceList | None:
    """Return what was kept of a provider, where it is of the location where that is now."""
    kept = told_or(None, lambda: store.price_lists().get(name))
    return kept if kept is not None and kept.location == reader.location else None


def read_price_list(
    name: str, reader: PriceReader, store: Store, now: datetime
) -> tuple[PriceList | None, PriceList]:
    """Return the stored list and the one read now, which replaces it.

    Raises SourceUnreachable where none can be read.
    """
    kept, told = _kept(name, reader, store), reader.read(now)
    _keep(name, told, store)
    return kept, told


def with_rules(
    fleet: Fleet,
    queues: Mapping[str, QueueReading],
    rules: Mapping[str, RuleReader],
    store: Store,
    asking: Asking,
) -> dict[str, QueueReading]:
    """Return the readings with the rules of each queue, and since when fleet saw them."""
    if not rules:
        return dict(queues)
    seen = told_or({}, store.rules_seen)
    asked = {name: reader.read for name, reader in rules.items()}
    told = asking("the rules of queue", asked)
    read = dict(queues)
    for name, held in told.items():
        places: Mapping[str, HeldRules | Unknown] = (
            dict.fromkeys(places_of(fleet, name), held) if isinstance(held, Unknown) else held
        )
        since = {
            place: _since(each, seen.get(f"{name}/{place}")) for place, each in places.items()
        }
        read[name] = read[name].altered(rules=since)
    return read


def _since(held: HeldRules | Unknown, seen: tuple[str, datetime] | None) -> HeldRules | Unknown:
    if isinstance(held, Unknown) or seen is None or seen[0] != held.digest:
        return held
    return held.altered(since=seen[1])


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
            desks[queue.tickets] = desk.altered(workers=named)
            yield queue.tickets, desks[queue.tickets]


def _building(worker: Worker, package: str | None) -> Worker:
    if worker.work is None or worker.work.package or package is None:
        return worker
    return worker.altered(work=worker.work.altered(package=package))


def _approved(store: Store, world: World) -> dict[str, int]:
    """Return how far approvals were used."""
    readings = [queue.workers for queue in world.queues.values()]
    readings += [
        listing if isinstance(listing, Unknown) else listing.workers
        for listing in world.providers.values()
    ]
    return used_so_far(store.spent(), world.stacks, readings)


_ASK_SECONDS = 0.2
_SHARE = 4
"""What is done meanwhile takes at most one part in so many of the time."""


class Concurrently:
    """The time that all sources of one observation share: two slow ones do not wait in turn.

    A late source goes on in a thread that does not hold the process up; its answer is ignored.
    """

    def __init__(
        self,
        seconds: float = OBSERVATION_SECONDS,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """`meanwhile` is called again and again while a source is awaited."""
        self._meanwhile = meanwhile
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._took: dict[str, float] = {}

    def __call__(self, kind: str, asked: Mapping[str, Callable[[], T]]) -> dict[str, T | Unknown]:
        """Return what each source tells, by name, or why it failed or is late."""
        began = time.monotonic()
        answers = {name: self._begin(f"{kind} {name}", asked[name]) for name in sorted(asked)}
        self._await(answers.values())
        told: dict[str, T | Unknown] = {}
        for name, answer in answers.items():
            try:
                told[name] = (
                    answer.result() if answer.done() else self._late(f"{kind} {name}", began)
                )
            except FleetError as error:
                told[name] = Unknown(unknown=str(error))
            except ValidationError as error:
                # Each answer has ranges; a value that passed them makes only its source unknown.
                wrong = first_mistake(error, "a value")
                told[name] = Unknown(unknown=f"{kind} {name} returned an impossible {wrong}")
        return told

    def _await(self, answers: Collection[Future[T]]) -> None:
        pause = inf if self._meanwhile is None else _ASK_SECONDS
        while (left := self._until - time.monotonic()) > 0:
            if not wait(answers, min(left, pause)).not_done or self._meanwhile is None:
                return
            began = time.monotonic()
            self._meanwhile()
            pause = max(_ASK_SECONDS, _SHARE * (time.monotonic() - began))

    def _begin(self, source: str, ask: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()
        began = time.monotonic()
        if began >= self._until:
            return answer

        def run() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:  # noqa: BLE001 - reported to the caller
                answer.set_exception(error)
            self._took[source] = time.monotonic() - began

        # Readings in the thread belong to the same observation (`fleet.observation`).
        run_here = partial(copy_context().run, run)
        Thread(target=run_here, name=f"asking {source}", daemon=True).start()
        return answer

    def _late(self, source: str, began: float) -> Unknown:
        self._took.setdefault(source, time.monotonic() - began)
        took = dict(self._took)
        longest = max(took, key=took.__getitem__)
        return Unknown(
            unknown=f"{source} timed out: all sources together have {self._seconds:g} s, and "
            f"{longest} took {took[longest]:.0f} s"
        )
