"""This module looks at everything a decision rests on, and never takes silence for an answer."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from pydantic import ValidationError

from fleet.budgets.ledger import periods
from fleet.errors import StoreFailed, StoreMissing
from fleet.exports.in_force import places_of
from fleet.facts import Attempt, Listing, QueueReading, Stack, Unknown, Worker, World
from fleet.facts.ledger import Ledger
from fleet.facts.rules import HeldRules
from fleet.facts.versions import ImageVersion
from fleet.operate.crew import Crew, OneByOne
from fleet.operate.price_lists import read_prices
from fleet.operate.spending import used_so_far
from fleet.operate.stacks import read_bases, read_stacks
from fleet.plan.outcome import Outcome
from fleet.ports import (
    Asking,
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
)
from fleet.ports.store import Since, Store
from fleet.ports.tickets import Desk, Lender
from fleet.schema.model import CoprQueue, Fleet
from fleet.verdicts import heartbeats

REMEMBERED = 50
"""How many tries of each pool, machine type and market a decision rests on, the latest ones."""
_MOST_SKEW = timedelta(minutes=5)
"""So much the clocks of two computers that apply may differ."""
_JOURNALLED = 20
"""How many runs that ended are looked through for what they deleted."""


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
    asking: Callable[[], Asking]
    """What asks all these, under a deadline that begins when it is called for."""
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
    crew: Crew = field(default_factory=OneByOne)
    """Who carries out the work on several pools, each a task."""


def observe(fleet: Fleet, sources: Sources, now: datetime) -> World:
    """Return the world as every source tells it; what a source cannot tell is Unknown."""
    asking = sources.asking()
    listed = {
        name: partial(provider.list, fleet.fleet) for name, provider in sources.providers.items()
    }
    listings = sources.look(asking("provider", listed))
    desks = {name: queue for name, queue in sources.queues.items() if name in sources.desks}
    others = {
        name: partial(queue.read, now)
        for name, queue in sources.queues.items()
        if name not in desks
    }
    read = {name: _reading(each) for name, each in asking("queue", others).items()}
    world = World(
        fleet=fleet.fleet,
        time=now,
        queues={},
        providers=listings,
        stacks=_stacks(fleet, sources, listings, asking),
        bases=read_bases(fleet, sources.bases, asking),
        images=_images(sources.store),
        ledger=_ledger(fleet, sources.store, now),
        attempts=_attempts(sources.store),
        members=_members(sources),
        runs=_runs(sources.store, now),
        delete_seconds=_delete_seconds(sources.store),
        prices=read_prices(sources.prices, sources.store, now, asking),
    )
    queues = with_rules(fleet, read, sources.rules, sources.store, asking)
    # Tickets last: one that is taken while a slow source answers is not left to the next run.
    queues |= {name: desk.read(now) for name, desk in desks.items()}
    queues |= dict(_with_packages(fleet, queues))
    world = world.model_copy(update={"queues": dict(sorted(queues.items()))})
    return world.model_copy(update={"approved": _approved(sources.store, world)})


def _reading(told: QueueReading | Unknown) -> QueueReading:
    return QueueReading(demand=told, workers=told) if isinstance(told, Unknown) else told


def _stacks(
    fleet: Fleet, sources: Sources, listings: Mapping[str, Listing | Unknown], asking: Asking
) -> dict[str, Stack | Unknown] | Unknown:
    try:
        known = sources.store.stacks()
    except (StoreMissing, StoreFailed) as error:
        return Unknown(unknown=str(error))
    return read_stacks(fleet, known, listings, sources.engine_of, asking)


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
    fleet: Fleet,
    queues: Mapping[str, QueueReading],
    rules: Mapping[str, RuleReader],
    store: Store,
    asking: Asking,
) -> dict[str, QueueReading]:
    """Return the readings with the rules of each queue, and since when fleet saw them."""
    if not rules:
        return dict(queues)
    try:
        seen = store.rules_seen()
    except (StoreMissing, StoreFailed):
        seen = {}
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
        read[name] = read[name].model_copy(update={"rules": since})
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


def ended_runs(store: Store, now: datetime) -> tuple[datetime, ...]:
    """Return when the latest runs began that came to their end, oldest first.

    What else is in the journal, as a machine that a person had forgotten, carried out no plan. A
    run of the future had a clock that was ahead: nobody knows when it was.
    """
    latest = store.ended_runs(heartbeats.REMEMBERED)
    began = (datetime.fromisoformat(run["started"]) for run in reversed(latest))
    return tuple(moment for moment in began if moment <= now + _MOST_SKEW)


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
