"""Observe the world: read all sources of fleet.yaml, and the store."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import inf
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from fleet.apply.satellites import MachineRecords, TicketSources, connected
from fleet.apply.spending import used_so_far
from fleet.errors import FleetError, StoreFailed, StoreMissing
from fleet.model.facts import (
    Absence,
    Demand,
    HeldRules,
    Listing,
    Machine,
    MachineState,
    PriceList,
    QueueReading,
    Stack,
    Unknown,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.history import Outcome, StackOutcome
from fleet.model.values import first_mistake
from fleet.observation import OBSERVATION_SECONDS, remark
from fleet.planner import assembly
from fleet.planner.inventory import heirs_of, stack_name
from fleet.planner.ledger import periods
from fleet.ports import (
    Engine,
    EngineTask,
    Enroller,
    MachineApi,
    MachineCleaner,
    MemberReader,
    Messenger,
    PoolExecutor,
    PriceReader,
    Provider,
    Queue,
    Registry,
    RuleReader,
    SharedStackEngine,
    Since,
    SourceReader,
    StackRecord,
    StackRef,
    TicketDesk,
)
from fleet.schema.model import CoprQueue, Fleet, Pool
from fleet.tagrules.export import places_of
from fleet.words import notes

if TYPE_CHECKING:
    from fleet.state.store import Store


REMEMBERED = 50
"""Number of latest creation attempts per pool, machine type and market that decisions use."""
_MAX_ATTEMPTS = 10_000
"""Maximum creation attempts per pool, type and market that are searched for known machines."""
_MAX_AHEAD = timedelta(minutes=5)
"""Maximum lead of another clock over this clock in the time of a run or machine.

Later times are ignored, although a run tolerates MAX_SKEW."""
_MAX_JOURNAL_RUNS = 20
"""Number of ended runs that are searched for deletions."""
_PRICE_LIST_LIFETIME = timedelta(hours=24)
"""Age of a stored price list from which the provider is read again."""


class Sequential:
    """An executor that runs tasks one after the other."""

    def __init__(self) -> None:
        self.under_way: Mapping[str, Collection[str]] = {}
        self._ended: list[StackOutcome] = []

    def run(self, tasks: Sequence[EngineTask]) -> None:
        """Run tasks one after the other."""
        self._ended += [outcome for task in tasks if (outcome := task.work())]

    def ended(self) -> Sequence[StackOutcome]:
        """Return the results of tasks that finished since the previous call."""
        ended, self._ended = self._ended, []
        return ended


@dataclass(frozen=True)
class Sources:
    """The adapters for one fleet.yaml; a command creates them."""

    queues: Mapping[str, Queue]
    providers: Mapping[str, Provider]
    registries: Mapping[str, Registry]
    """Queue or provider to the registry that drains and disables its workers."""
    engine_of: Callable[[str], Engine]
    """Returns the engine of a provider's stacks; raises FleetError for an unknown provider."""
    store: "Store"
    asking: Callable[[], SourceReader]
    """Creates a reader of several sources, whose deadline starts at this call."""
    machine_apis: Mapping[str, MachineApi] = field(default_factory=dict)
    """Provider to its API, for providers that can change a machine without its stack."""
    bases: Mapping[str, SharedStackEngine] = field(default_factory=dict)
    """Provider to the engine of its base stack, which has resources that all pools share."""
    enrollers: Mapping[str, Enroller] = field(default_factory=dict)
    """Queue to the adapter that enrols new workers; each of these queues also has a registry."""
    desks: Mapping[str, TicketDesk] = field(default_factory=dict)
    """Ticket queue to the desk that assigns its machines to tickets."""
    removed_desks: Mapping[str, TicketDesk] | Unknown = field(default_factory=dict)
    """Ticket queue that is not in fleet.yaml, but whose tickets have machines, to its desk.

    If Unknown, any machine may have a ticket, so that no run deletes one.
    """
    cleaners: Mapping[str, MachineCleaner] = field(default_factory=dict)
    """Provider to the adapter that cleans its machines between tickets."""
    rules: Mapping[str, RuleReader] = field(default_factory=dict)
    """Queue to the reader of the tag rules that the queue applies."""
    probe_ports: Callable[[Mapping[str, Listing | Unknown]], dict[str, Listing | Unknown]] = dict
    """Probes the ports of machines with a `ready` setting; adds the results to the listings."""
    prices: Mapping[str, PriceReader] = field(default_factory=dict)
    """Provider to the reader of its price API."""
    messengers: Mapping[str, Messenger] = field(default_factory=dict)
    """Channel of `notify` to its messenger."""
    members: MemberReader | None = None
    """Reader of group members; None if fleet.yaml has no source of group members."""
    prepare: Callable[[], None] = lambda: None
    """Does the one-time setup that the first change of an apply needs."""
    is_ending: Callable[[], bool] = lambda: False
    """Returns whether a stop signal arrived; the run then starts no further pool."""
    executor: PoolExecutor = field(default_factory=Sequential)
    """Runs the changes of pools, one task per pool."""

    @property
    def of_tickets(self) -> TicketSources:
        """Return the adapters needed to assign machines to tickets."""
        known = self.removed_desks
        removed = () if isinstance(known, Unknown) else tuple(known.values())
        return TicketSources(self.desks, self.cleaners, self.store, self.executor, removed)


def observe(fleet: Fleet, sources: Sources, now: datetime) -> World:
    """Return the world that all sources report. Unreadable parts are Unknown."""
    asking = sources.asking()
    listed = {
        name: partial(provider.list, fleet.fleet) for name, provider in sources.providers.items()
    }
    told = asking("provider", listed)
    listings = sources.probe_ports(
        {name: _without_future_times(each, now) for name, each in told.items()}
    )
    desks = {name: queue for name, queue in sources.queues.items() if name in sources.desks}
    others = {
        name: partial(queue.read, now)
        for name, queue in sources.queues.items()
        if name not in desks
    }
    read = {
        name: QueueReading(demand=each, workers=each) if isinstance(each, Unknown) else each
        for name, each in asking("queue", others).items()
    }
    removed = sources.removed_desks
    noted = removed if isinstance(removed, Unknown) else read_store(sources.store.stacks)
    stacks = (
        noted
        if isinstance(noted, Unknown)
        else read_stacks(fleet, noted, listings, sources.engine_of, asking)
    )
    before = partial(read_or_default, (), sources.store.absences)
    attempts = read_store(lambda: sources.store.attempts(REMEMBERED), ())
    departures = read_store(lambda: tuple(sources.store.departures.read().values()), ())
    records = {"attempts": attempts, "departures": departures}
    hour, day, month = (period.start for period in periods(fleet, now))
    since = Since(hour=hour, day=day, month=month)
    members = sources.members.read() if sources.members is not None else {}
    shared = {name: partial(e.read, base_ref(fleet, name)) for name, e in sources.bases.items()}
    told_bases = asking("the base of provider", shared)
    bases = {name: base for name, base in told_bases.items() if base is not None}
    world = World(
        fleet=fleet.fleet,
        time=now,
        queues={},
        providers=listings,
        stacks=stacks,
        absences=find_absences(before, sources.cleaners, (stacks, listings), asking, now),
        bases=bases,
        images=read_store(lambda: tuple(each.fact for each in sources.store.image_versions())),
        ledger=read_store(partial(sources.store.ledger, since, fleet.money.currency)),
        attempts=() if isinstance(attempts, Unknown) else attempts,
        orders=read_store(partial(sources.store.orders, now), ()),
        departures=() if isinstance(departures, Unknown) else departures,
        unread={name: each.unknown for name, each in records.items() if isinstance(each, Unknown)},
        members=members if isinstance(members, Unknown) else dict(members),
        runs=read_store(lambda: ended_runs(sources.store, now)),
        delete_seconds=_delete_seconds(sources.store),
        prices=read_prices(sources.prices, sources.store, now, asking),
    )
    queues = with_rules(fleet, read, sources.rules, sources.store, asking)
    # Read tickets last, so that this run serves tickets opened while it read a slow source.
    queues |= {name: desk.read(now) for name, desk in desks.items()}
    if not isinstance(removed, Unknown):
        queues |= {name: _read_removed(name, desk, now) for name, desk in removed.items()}
    known_since: dict[str, datetime | None] = {}
    for name, desk in sources.desks.items():
        began = read_store(desk.known_since)
        if isinstance(began, Unknown):
            # A machine may be older than the store, and only a lost store may have had its ticket.
            queues[name] = queues[name].altered(workers=began)
        else:
            known_since[name] = began
    every_attempt = partial(read_or_default, (), partial(sources.store.attempts, _MAX_ATTEMPTS))
    recorded = {name for stack in world.known_stacks.values() for name in stack.names}
    known = MachineRecords(every_attempt, recorded, now)
    queues |= dict(
        connected().hand_out().with_forgotten(fleet, queues, listings, known_since, known)
    )
    queues |= dict(_share_packages(fleet, queues))
    world = world.altered(queues=dict(sorted(queues.items())))
    readings = [queue.workers for queue in world.queues.values()]
    readings += [
        listing if isinstance(listing, Unknown) else listing.workers
        for listing in world.providers.values()
    ]
    # If the uses of approvals are unreadable, no approval is valid.
    approved = read_store(lambda: used_so_far(sources.store.spent(), world.stacks, readings))
    return world.altered(approved=approved)


def _read_removed(name: str, desk: TicketDesk, now: datetime) -> QueueReading:
    """Return the busy workers of a ticket queue that is no longer in fleet.yaml."""
    reading = desk.read(now)
    if not isinstance(reading.workers, tuple) or isinstance(reading.demand, Unknown):
        return reading
    busy = tuple(worker for worker in reading.workers if worker.state is WorkerState.BUSY)
    waiting = sum(request.count for request in reading.demand.requests)
    remark(notes.describe_removed_queue(name, len(busy), waiting))
    return QueueReading(demand=Demand(read_at=now), workers=busy)


T = TypeVar("T")
S = TypeVar("S")


def read_store(ask: Callable[[], T], missing: S | None = None) -> T | S | Unknown:
    """Return the result of `ask` on the store; Unknown if the store fails.

    If the store is missing, return `missing`, or Unknown if that is None.
    """
    try:
        return ask()
    except (StoreMissing, StoreFailed) as error:
        if missing is not None and isinstance(error, StoreMissing):
            return missing
        return Unknown.of(error)


def read_or_default(otherwise: S, ask: Callable[[], T]) -> T | S:
    """Return the result of `ask` on the store; `otherwise` if it is missing or fails."""
    told = read_store(ask)
    return otherwise if isinstance(told, Unknown) else told


def _without_future_times(reading: Listing | Unknown, now: datetime) -> Listing | Unknown:
    """Return a listing with None for each creation time in the future.

    The provider's clock or time zone is wrong in this case.
    """
    if isinstance(reading, Unknown):
        return reading
    latest = now + _MAX_AHEAD
    machines = tuple(
        each.altered(created_at=None) if each.created_at and each.created_at > latest else each
        for each in reading.machines
    )
    return reading.altered(machines=machines)


def read_stacks(
    fleet: Fleet,
    known: Iterable[StackRecord],
    listings: Mapping[str, Listing | Unknown],
    engine_of: Callable[[str], Engine],
    asking: SourceReader,
) -> dict[str, Stack | Unknown]:
    """Map pool to stack, for pools that are configured, recorded or in a machine's label."""
    recorded = {record.pool: record for record in known}
    heirs = heirs_of(fleet)
    # A renamed pool has its new name.
    new_names = {old: new for old, new in heirs.items() if new not in recorded}
    records = {new_names.get(pool, pool): record for pool, record in recorded.items()}
    configured = {name: pool.provider for name, pool in fleet.dynamic_pools.items()}
    remembered = {pool: record.provider for pool, record in records.items()}
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


@dataclass(frozen=True)
class _StackReader:
    fleet: Fleet
    owners: Mapping[str, str]
    """Stack name to the pool in the stack's record."""
    engine_of: Callable[[str], Engine]
    asking: SourceReader

    def of_pool(
        self, pool: str, provider: str, record: StackRecord | None
    ) -> Stack | Unknown | None:
        """Return a pool's stack under the pool's current name; None if it has no stack."""
        ref = stack_ref(self.fleet, pool, provider)
        if record is not None:
            return self._read_named_stack(ref, record.name, record)
        if ref.name in self.owners and pool not in self.fleet.pools:
            return None  # only labels still have the old name
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
        return self._read_named_stack(ref, stack_ref(self.fleet, old, provider).name, None)

    def _read_named_stack(
        self, ref: StackRef, name: str, record: StackRecord | None
    ) -> Stack | Unknown | None:
        """Return the stack with this name; set its `name` if the pool implies another name."""
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
            return Unknown.of(error)
        read = self.asking("stack", {ref.name: partial(engine.read, ref)})[ref.name]
        stack = _check_content(ref, read, self.fleet, record)
        if record is None or isinstance(stack, Unknown):
            return stack
        if record.engine != engine.name:
            return Unknown(
                unknown=f"it belongs to engine {record.engine}, not {engine.name}; "
                f"set `engine: {record.engine}` on provider {ref.provider} again"
            )
        # Serial 0 is recorded before the first operation, so the stack may not exist yet.
        if stack is None and record.serial > 0:
            return Unknown(
                unknown=f"stack {ref.name} existed before and is missing now; restore the state, "
                f"or if it is really gone: fleet state init --forget-stack {ref.name}"
            )
        return stack


def _check_content(
    ref: StackRef, stack: Stack | Unknown | None, fleet: Fleet, record: StackRecord | None
) -> Stack | Unknown | None:
    """Return a stack; Unknown if it has machines of another pool.

    Pool `b` of fleet `debian-ci` and pool `ci-b` of fleet `debian` have the same stack name. If
    the stack has a record, its labels may have former names of the pool.
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
    """Return the reference to a pool's stack at a provider. An existing stack keeps its name."""
    declared = fleet.providers.get(provider)
    return StackRef(
        project=declared.kind if declared else "",
        name=stack_name(fleet, pool, stack),
        provider=provider,
        pool=pool,
    )


def base_ref(fleet: Fleet, provider: str) -> StackRef:
    """Return the reference to a provider's shared stack. No pool's stack has the same name."""
    return StackRef(
        project=fleet.providers[provider].kind,
        name=f"{fleet.fleet}.{provider}",
        provider=provider,
        pool="",
    )


def ended_runs(store: "Store", now: datetime) -> tuple[datetime, ...]:
    """Return the start times of the latest completed runs, the oldest first.

    Other journal entries, such as a forgotten machine, carried out no plan. A time in the future
    is omitted, since the clock of that run was ahead.
    """
    latest = store.last_runs(assembly.REMEMBERED, ended=True)
    began = (datetime.fromisoformat(run["started"]) for run in reversed(latest))
    return tuple(moment for moment in began if moment <= now + _MAX_AHEAD)


def _delete_seconds(store: "Store") -> int | None:
    """Return the seconds of the longest recent run with deletions; None without such a run."""
    took = [
        datetime.fromisoformat(run["ended"]) - datetime.fromisoformat(run["started"])
        for run in read_or_default((), lambda: store.last_runs(_MAX_JOURNAL_RUNS, ended=True))
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
    readers: Mapping[str, PriceReader], store: "Store", now: datetime, asking: SourceReader
) -> dict[str, PriceList | Unknown]:
    """Map provider to price list: the stored list if fresh or no new list is readable."""
    kept = {
        name: _read_stored_list(name, reader, store) for name, reader in sorted(readers.items())
    }
    asked = {
        name: partial(readers[name].read, now)
        for name, old in kept.items()
        if old is None or not old.read_at <= now < old.read_at + _PRICE_LIST_LIFETIME
    }
    told = asking("the prices of provider", asked)
    for name, new in told.items():
        if isinstance(new, PriceList):
            _store_list(name, new, store)
    return {
        name: old.altered(stale=latest.unknown)
        if isinstance(latest := told.get(name), Unknown) and old is not None
        else latest or old or Unknown(unknown="no price list")
        for name, old in kept.items()
    }


def _store_list(name: str, told: PriceList, store: "Store") -> None:
    with suppress(StoreMissing, StoreFailed):  # the next run tries again
        store.prices.write({name: told})


def _read_stored_list(name: str, reader: PriceReader, store: "Store") -> PriceList | None:
    """Return a provider's stored price list; None if missing or for another location."""
    kept = read_or_default(None, partial(store.prices.find, name))
    return kept if kept is not None and kept.location == reader.location else None


def read_price_list(
    name: str, reader: PriceReader, store: "Store", now: datetime
) -> tuple[PriceList | None, PriceList]:
    """Read and store a price list; return the earlier stored list (or None) and the new list.

    Raises SourceUnreachable if the provider has no readable list.
    """
    kept, told = _read_stored_list(name, reader, store), reader.read(now)
    _store_list(name, told, store)
    return kept, told


def with_rules(
    fleet: Fleet,
    queues: Mapping[str, QueueReading],
    rules: Mapping[str, RuleReader],
    store: "Store",
    asking: SourceReader,
) -> dict[str, QueueReading]:
    """Return readings with each queue's tag rules and the time of their first observation."""
    if not rules:
        return dict(queues)
    seen = read_or_default({}, store.rules.read)
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


def remember_rules(world: World, store: "Store") -> None:
    """Store this world's time for all tag rules that were observed for the first time."""
    store.rules.write(
        {
            f"{name}/{place}": (held.digest, world.time)
            for name, reading in world.queues.items()
            for place, held in reading.rules.items()
            if isinstance(held, HeldRules) and held.since is None
        }
    )


def _share_packages(
    fleet: Fleet, queues: Mapping[str, QueueReading]
) -> Iterator[tuple[str, QueueReading]]:
    """Yield ticket queues with the package of each ticket's build, as a Copr queue reports it."""
    desks = dict(queues)
    for name, reading in queues.items():
        queue, told = fleet.queues.get(name), reading.packages
        if not told or not isinstance(queue, CoprQueue) or queue.tickets is None:
            continue
        desk = desks[queue.tickets]
        if isinstance(desk.workers, tuple):
            named = tuple(
                each.altered(work=each.work.altered(package=package))
                if each.work
                and not each.work.package
                and (package := told.get(each.running or "")) is not None
                else each
                for each in desk.workers
            )
            desks[queue.tickets] = desk.altered(workers=named)
            yield queue.tickets, desks[queue.tickets]


_MIN_PAUSE_SECONDS = 0.2
_PAUSE_FACTOR = 4
"""Minimum pause after work during the wait, as a multiple of the duration of the work."""


class Concurrently:
    """A reader that reads the sources of an observation concurrently, with one deadline.

    A source that misses the deadline continues in a daemon thread; its result is ignored.
    """

    def __init__(
        self,
        seconds: float = OBSERVATION_SECONDS,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Set the deadline in seconds. `meanwhile` is called repeatedly while sources are read."""
        self._meanwhile = meanwhile
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._took: dict[str, float] = {}

    def __call__(self, kind: str, asked: Mapping[str, Callable[[], T]]) -> dict[str, T | Unknown]:
        """Map source name to result; Unknown if a source failed or missed the deadline."""
        began = time.monotonic()
        answers = {name: self._begin(f"{kind} {name}", asked[name]) for name in sorted(asked)}
        self._await(answers.values())
        told: dict[str, T | Unknown] = {}
        for name, answer in answers.items():
            try:
                told[name] = (
                    answer.result()
                    if answer.done()
                    else self._describe_timeout(f"{kind} {name}", began)
                )
            except FleetError as error:
                told[name] = Unknown.of(error)
            except ValidationError as error:
                # A value outside its permitted range makes only its source unknown.
                wrong = first_mistake(error, "a value")
                told[name] = Unknown(unknown=f"{kind} {name} returned an impossible {wrong}")
        return told

    def _await(self, answers: Collection[Future[T]]) -> None:
        pause = inf if self._meanwhile is None else _MIN_PAUSE_SECONDS
        while (left := self._until - time.monotonic()) > 0:
            if not wait(answers, min(left, pause)).not_done or self._meanwhile is None:
                return
            began = time.monotonic()
            self._meanwhile()
            pause = max(_MIN_PAUSE_SECONDS, _PAUSE_FACTOR * (time.monotonic() - began))

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

        # A thread must use the same observation (`fleet.observation`) as its caller.
        run_here = partial(copy_context().run, run)
        Thread(target=run_here, name=f"asking {source}", daemon=True).start()
        return answer

    def _describe_timeout(self, source: str, began: float) -> Unknown:
        self._took.setdefault(source, time.monotonic() - began)
        took = dict(self._took)
        longest = max(took, key=took.__getitem__)
        return Unknown(
            unknown=f"{source} timed out: all sources together have {self._seconds:g} s, and "
            f"{longest} took {took[longest]:.0f} s"
        )


Stacks = Mapping[str, Stack | Unknown] | Unknown
Listings = Mapping[str, Listing | Unknown]
_MachineKey = tuple[str, str, str]
"""Provider, name and id of a machine."""


# An unreadable listing or stack neither increases nor resets the count of complete listings in
# which a machine of a stack is missing: unknown is not zero.


def find_absences(
    before: Callable[[], Iterable[Absence]],
    cleaners: Mapping[str, MachineCleaner],
    sources: tuple[Stacks, Listings],
    asking: SourceReader,
    now: datetime,
) -> tuple[Absence, ...]:
    """Return the machines of stacks that a complete listing omits, with updated counts."""
    stacks, listings = sources
    if isinstance(stacks, Unknown):
        return tuple(before())
    unlisted: dict[_MachineKey, WorkerInputs] = {}
    judged: set[_MachineKey] = set()
    for key, inputs, listing in _list_recorded(stacks, listings):
        judged.add(key)
        if not any(key[1] == each.name or key[2] == each.id for each in listing.machines):
            unlisted[key] = inputs
    works = _check_unlisted(cleaners, unlisted, asking, now)
    known = {(each.provider, each.name, each.id): each for each in before()}
    found = {key: each for key, each in known.items() if _is_undecided(key, judged, sources)}
    for key in unlisted:
        provider, name, machine_id = key
        last = known.get(key)
        found[key] = Absence(
            provider=provider,
            name=name,
            id=machine_id,
            since=min(last.since, now) if last else now,
            lists=last.lists + 1 if last else 1,
            works=works.get(key),
        )
    return tuple(found[key] for key in sorted(found))


def _list_recorded(
    stacks: Mapping[str, Stack | Unknown], listings: Listings
) -> Iterator[tuple[_MachineKey, WorkerInputs, Listing]]:
    """Yield key, inputs and listing of each recorded machine, if its provider has a listing."""
    for _, stack in sorted(stacks.items()):
        listing = None if isinstance(stack, Unknown) else listings.get(stack.provider)
        if isinstance(stack, Unknown) or not isinstance(listing, Listing):
            continue
        for inputs in stack.workers:
            if inputs.name in stack.ids:
                yield (stack.provider, inputs.name, stack.ids[inputs.name]), inputs, listing


def _is_undecided(
    key: _MachineKey, judged: set[_MachineKey], sources: tuple[Stacks, Listings]
) -> bool:
    """Return True if an unreadable listing or stack keeps an earlier absence undecided."""
    stacks, listings = sources
    if key in judged or isinstance(stacks, Unknown):
        return False
    is_listed = isinstance(listings.get(key[0]), Listing)
    return not is_listed or any(isinstance(each, Unknown) for each in stacks.values())


def _check_unlisted(
    cleaners: Mapping[str, MachineCleaner],
    unlisted: Mapping[_MachineKey, WorkerInputs],
    asking: SourceReader,
    now: datetime,
) -> dict[_MachineKey, bool]:
    """Map machine to True if its livecheck passes; omit machines without a conclusive check."""
    by_provider: defaultdict[str, list[Machine]] = defaultdict(list)
    names: dict[tuple[str, str], _MachineKey] = {}
    for key, inputs in unlisted.items():
        names[key[0], key[2]] = key
        by_provider[key[0]].append(
            Machine(
                name=inputs.name,
                id=key[2],
                pool=inputs.labels.get("pool", ""),
                type=inputs.type,
                state=MachineState.RUNNING,
                created_at=now,
                image=inputs.image or None,
            )
        )
    asked = {
        name: partial(cleaner.check_unlisted, sorted(by_provider[name], key=lambda m: m.name))
        for name, cleaner in cleaners.items()
    }
    told = asking("the livechecks of provider", asked)
    return {
        names[provider, machine_id]: works
        for provider, answers in told.items()
        if not isinstance(answers, Unknown)
        for machine_id, works in answers.items()
    }
