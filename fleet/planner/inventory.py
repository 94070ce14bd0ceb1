"""Determine the machines and workers of each pool from all observations (its inventory).

If a queue lists only some of its requests, fleet creates machines for the listed requests, and
deletes no idle machine.

A machine is observed in its provider's listing and in the state of its stack. If only one source
contains the machine, it counts to the pool's max, and fleet does not delete it.

Each run of `fleet apply` writes the expiry of machines at their provider, after their creation. No
run extends the expiry of a machine that no stack contains. If the provider cannot store an expiry,
fleet computes it from the journal of runs.

`previously: old` transfers the machines and the stack of pool `old` to the pool that has this key.
Existing machines keep their names and labels. The store records the new owner of the stack, so
that the key can be removed after an apply.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from fleet.model.facts import (
    Absence,
    Attempt,
    Charge,
    Demand,
    Departure,
    Listing,
    Machine,
    Stack,
    Unknown,
    Worker,
    WorkerState,
    World,
)
from fleet.model.orders import Hold
from fleet.model.plan import Action, Create, Estimate, Plan, Reason
from fleet.model.pool_limits import size_of
from fleet.planner.units import (
    Registries,
    Sightings,
    Unit,
    UnitState,
    enrols_at,
    is_busy,
    is_overdue,
    is_up,
    queue_registries,
    registered_state,
    registries_of,
    revokes_at,
    units_of,
    workers_by_machine,
)
from fleet.schema.model import Fleet, Pool, TicketQueue, serves_queue, static_names
from fleet.schema.sources import Gone
from fleet.schema.units import write_duration
from fleet.words import lives, notes


def desks_of(fleet: Fleet, queues: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the ticket queues among these queues."""
    return tuple(q for q in queues if isinstance(fleet.queues.get(q), TicketQueue))


def attend(
    world: World, desks: Collection[str], listing: Listing, is_up: Callable[[Machine], bool]
) -> dict[str, tuple[Worker, ...]] | Unknown:
    """Map each ticket queue to the workers, on a provider's machines, that it may assign.

    A machine that is up and registers nowhere else counts as a worker. Unknown if the workers of
    any of these queues are unknown.
    """
    known: dict[str, tuple[str, Worker]] = {}
    for desk in desks:
        workers = world.queues[desk].workers
        if isinstance(workers, Unknown):
            return Unknown(unknown=f"workers of queue {desk} are unknown: {workers.unknown}")
        for worker in workers or ():
            other = known.get(worker.name)
            if other is None or worker.state is WorkerState.BUSY:
                known[worker.name] = (desk, worker)
    created = {machine.name: machine.created_at for machine in listing.machines}
    found: dict[str, list[Worker]] = {desk: [] for desk in desks}
    first = next(iter(found))
    for worker in _ready_workers(listing, is_up):
        desk, own = known.pop(worker.name, (first, None))
        is_new = own is None or is_of_older(own, created.get(worker.name))
        found[desk].append(worker if own is None or is_new else joined(worker, own))
    for desk, own in known.values():
        # The record of a deleted machine does not describe a new machine of the same name.
        if not is_of_older(own, created.get(own.name)):
            found[desk].append(own)
    return {desk: tuple(workers) for desk, workers in found.items()}


def is_of_older(own: Worker, created_at: datetime | None) -> bool:
    """Return True if a queue's record describes an older machine of the same name."""
    if own.state is WorkerState.BUSY or own.since is None or created_at is None:
        return False
    return own.since < created_at


def _ready_workers(listing: Listing, is_up: Callable[[Machine], bool]) -> Iterator[Worker]:
    if listing.workers is not None:
        yield from listing.workers
        return
    for machine in listing.machines:
        if is_up(machine):
            yield Worker(
                name=machine.name,
                machine=machine.name,
                pool=machine.pool,
                state=WorkerState.IDLE,
                since=machine.created_at,
            )


def joined(seen: Worker, own: Worker) -> Worker:
    """Merge the reports of a provider (`seen`) and a queue (`own`) about one worker.

    The queue's state counts if the provider reports the worker as idle.
    """
    if seen.state is not WorkerState.IDLE:
        return seen
    return seen.altered(
        state=own.state,
        running=own.running,
        work=own.work,
        ended=own.ended,
        uses=own.uses,
        since=own.since,
        draining=seen.draining or own.draining,
        requires=tuple(sorted({*seen.requires, *own.requires})),
    )


def heirs_of(fleet: Fleet) -> Mapping[str, str]:
    """Map the old name of each renamed pool to its current name."""
    return fleet.cached("heirs", (), lambda: _find_heirs(fleet))


def _find_heirs(fleet: Fleet) -> dict[str, str]:
    heirs: dict[str, str] = {}
    for name, pool in sorted(fleet.dynamic_pools.items()):
        if pool.previously is not None and pool.previously not in fleet.pools:
            heirs.setdefault(pool.previously, name)
    return heirs


def holds_of(world: World) -> dict[str, Hold]:
    """Return the hold on each machine that an operator holds, by name; omit expired holds."""
    orders = () if isinstance(world.orders, Unknown) else world.orders
    holds = (order for order in orders if isinstance(order, Hold) and order.until > world.time)
    return {hold.machine: hold for hold in holds}


def find_departures(
    known: Collection[Departure], actions: Iterable[Action], now: datetime
) -> tuple[Departure, ...]:
    """Return the drains and deletions of a plan that are not recorded yet."""
    told = {(each.worker, each.registry, each.reason) for each in known if each.over is None}
    noted = (
        Departure(
            worker=action.worker,
            registry=action.registry or "",
            reason=action.reason.value,
            at=now,
        )
        for action in actions
        if not isinstance(action, Create)
    )
    return tuple(
        departure
        for departure in noted
        if (departure.worker, departure.registry, departure.reason) not in told
    )


def departures_after(known: Collection[Departure], plan: Plan) -> tuple[Departure, ...]:
    """Return the recorded drains and deletions of machines after a plan is applied."""
    after = {(each.worker, each.registry): each for each in known}
    found = find_departures(known, plan.actions, plan.time)
    after |= {(each.worker, each.registry): each for each in found}
    for resume in plan.resumes:
        own = (resume.worker, resume.registry)
        after[own] = after[own].altered(over=plan.time)
    return tuple(after.values())


def takers_of(fleet: Fleet, world: World) -> dict[str, str]:
    """Map the old name of each renamed pool to the pool that takes over its machines.

    Omit a pool if a stack exists under its old name and under its current name.
    """
    stacks = {} if isinstance(world.stacks, Unknown) else world.stacks
    return {old: new for old, new in heirs_of(fleet).items() if not {old, new} <= stacks.keys()}


def charges_of(fleet: Fleet, world: World) -> tuple[Charge, ...]:
    """Return the charges in the ledger with current pool names; empty if unknown."""
    if isinstance(world.ledger, Unknown):
        return ()
    takers = takers_of(fleet, world)
    return tuple(
        charge.altered(pool=takers[charge.pool]) if charge.pool in takers else charge
        for charge in world.ledger.charges
    )


def attempts_of(fleet: Fleet, world: World) -> tuple[Attempt, ...]:
    """Return the recorded attempts to create machines, with current pool names."""
    takers = takers_of(fleet, world)
    if not takers:
        return world.attempts
    return tuple(
        attempt.altered(pool=takers[attempt.pool]) if attempt.pool in takers else attempt
        for attempt in world.attempts
    )


def stack_name(fleet: Fleet, pool: str, stack: Stack | None = None) -> str:
    """Return the name of a pool's stack. A renamed pool keeps its stack."""
    return (stack.name if stack else "") or f"{fleet.fleet}-{pool}"


@dataclass(frozen=True)
class Owners:
    """The owning pool of each stack and machine."""

    stacks: Mapping[str, Stack | Unknown] | Unknown
    """Current pool name to stack."""
    heirs: Mapping[str, str]
    """Old pool name to the pool that takes over its machines."""
    contested: Mapping[str, str]
    """Old pool name to the pool that claims this name, if pools with both names have a stack."""
    held: Mapping[tuple[str, str], str]
    """(Name, id) of a recorded machine to the pool whose stack contains the machine."""

    def owner_of(self, machine: Machine) -> str:
        """Return the pool that owns a machine: by its stack, otherwise by its label."""
        label = self.heirs.get(machine.pool, machine.pool)
        return self.held.get((machine.name, machine.id), label)


def find_owners(fleet: Fleet, world: World) -> Owners:
    """Map stacks and machines to their pools; records may still have the old name of a pool."""
    heirs = heirs_of(fleet)
    if isinstance(world.stacks, Unknown):
        return Owners(world.stacks, heirs, {}, {})
    taken = takers_of(fleet, world)
    contested = {old: new for old, new in heirs.items() if old not in taken}
    stacks = {taken.get(pool, pool): stack for pool, stack in world.stacks.items()}
    held = {
        (name, machine_id): pool
        for pool, stack in sorted(stacks.items())
        if isinstance(stack, Stack)
        for name, machine_id in stack.ids.items()
    }
    return Owners(stacks, taken, contested, held)


class SharedObservations:
    """Observations of machines and workers, cached for the inventories of all pools."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        self._static = static_names(fleet)
        self.owners = find_owners(fleet, world)
        self.holds = holds_of(world)
        self.departures: defaultdict[str, list[Departure]] = defaultdict(list)
        for departure in sorted(world.departures, key=lambda each: (each.at, each.registry)):
            self.departures[departure.worker].append(departure)
        self._registered: dict[object, Mapping[str, tuple[str, Worker]]] = {}
        self._draining: dict[object, tuple[Mapping[str, frozenset[str]], Mapping[str, int]]] = {}
        self._world = world
        self._fleet = fleet
        self._attended: dict[object, Mapping[str, tuple[Worker, ...]] | Unknown] = {}
        self._machines: dict[str, dict[str, list[Machine]]] = {}
        self._ids: dict[str, set[tuple[str, str]]] = {}
        for provider, listing in sorted(world.providers.items()):
            if isinstance(listing, Listing):
                by_pool = self._machines.setdefault(provider, {})
                self._ids[provider] = {(m.name, m.id) for m in listing.machines}
                for machine in listing.machines:
                    by_pool.setdefault(self.owners.owner_of(machine), []).append(machine)

    def machines(self, provider: str, pool: str) -> Sequence[Machine]:
        """Return the machines of a pool that a provider lists."""
        return self._machines.get(provider, {}).get(pool, ())

    def listers(self, pool: str) -> list[str]:
        """Return the sorted names of providers that list machines of a pool."""
        return [provider for provider, by_pool in self._machines.items() if pool in by_pool]

    def lists(self, provider: str, machine: Machine) -> bool:
        """Return True if a provider lists a machine, in any pool."""
        return (machine.name, machine.id) in self._ids.get(provider, ())

    def lists_name(self, name: str) -> bool:
        """Return True if any provider lists a machine of this name."""
        return any(name == each for ids in self._ids.values() for each, _ in ids)

    def pools(self) -> set[str]:
        """Return the names of all pools with listed machines."""
        return {pool for by_pool in self._machines.values() for pool in by_pool}

    def attended(
        self, desks: tuple[str, ...], provider: str, listing: Listing
    ) -> Mapping[str, tuple[Worker, ...]] | Unknown:
        """Map each ticket queue to the workers that it may assign on a provider's machines."""
        key = (desks, provider)
        if key not in self._attended:
            self._attended[key] = attend(self._world, desks, listing, self._is_up)
        return self._attended[key]

    def _is_up(self, machine: Machine) -> bool:
        return is_up(self._fleet, self.owners.owner_of(machine), machine)

    def registered(self, registries: Registries) -> Mapping[str, tuple[str, Worker]]:
        """Map each machine name to the registry and the worker registered there."""
        key = _registries_key(registries)
        if key not in self._registered:
            self._registered[key] = workers_by_machine(registries, self._static)
        return self._registered[key]

    def draining(self, registries: Registries) -> Mapping[str, frozenset[str]]:
        """Map each machine to the registries that drain it (assign no new work)."""
        return self._split(registries)[0]

    def working(self, registries: Registries) -> Mapping[str, int]:
        """Map machine to the number of registries that assign work to it, if above 1."""
        return self._split(registries)[1]

    def _split(
        self, registries: Registries
    ) -> tuple[Mapping[str, frozenset[str]], Mapping[str, int]]:
        key = _registries_key(registries)
        if key not in self._draining:
            draining: defaultdict[str, set[str]] = defaultdict(set)
            working: defaultdict[str, set[str]] = defaultdict(set)
            for name, workers in registries.items():
                for worker in workers:
                    if worker.draining:
                        draining[worker.machine or worker.name].add(name)
                    elif len(registries) > 1 and worker.state is not WorkerState.DISABLED:
                        working[worker.machine or worker.name].add(name)
            self._draining[key] = (
                {name: frozenset(each) for name, each in draining.items()},
                {name: len(each) for name, each in working.items() if len(each) > 1},
            )
        return self._draining[key]


def _registries_key(registries: Registries) -> object:
    return tuple((name, id(workers)) for name, workers in registries.items())


def estimate_of(fleet: Fleet, world: World, queue: str) -> Estimate | None:
    """Return the estimated length of a queue; None if it was read completely."""
    demand = world.queues[queue].demand
    if not isinstance(demand, Demand) or not demand.estimate:
        return None
    sample = demand.sample
    if sample is None:
        listed = sum(request.count for request in demand.requests)
        return Estimate(queue=queue, listed=listed, because=notes.PARTLY_READ)
    unlisted = sum(sample.unlisted.values())
    is_long = unlisted > len(sample.unreadable)
    return Estimate(
        queue=queue,
        listed=sample.listed,
        unlisted=unlisted,
        longest=sample.longest if is_long else None,
        because=notes.describe_reading(queue, sample, fleet.guards.demand_max_age, long=is_long),
    )


_CLOCK_SKEW = 60
"""Maximum clock difference in seconds; demand from later than that counts as unknown."""


def stale_demand(fleet: Fleet, world: World, queues: list[str]) -> tuple[str, ...]:
    """Return a sentence for each queue with unreliable demand that states the reason."""
    reasons = []
    for queue in queues:
        trouble = demand_trouble(fleet, world, queue)
        if trouble:
            reasons.append(f"demand of queue {queue} is unknown: {trouble}")
    return tuple(reasons)


def demand_trouble(fleet: Fleet, world: World, queue: str) -> str:
    """Return why a queue's list of requests is unreliable; empty if it is reliable."""
    demand = world.queues[queue].demand
    if isinstance(demand, Unknown):
        return demand.unknown
    age = (world.time - demand.read_at).total_seconds()
    if age < -_CLOCK_SKEW:
        return (
            f"its time is {write_duration(int(-age))} after everything else; compare the "
            "clocks of the computers that recorded it"
        )
    if age > fleet.guards.demand_max_age:
        return (
            f"read {write_duration(int(age))} earlier; guards.demand_max_age is "
            f"{write_duration(fleet.guards.demand_max_age)}"
        )
    return ""


_UNREAD = Unknown(unknown="not read in this run")


@dataclass(frozen=True)
class PoolInventory:
    """The observed state of one pool.

    `frozen` has the reasons to delete no machine, `blind` the reasons to create no machine either.
    """

    pool: str
    provider: str
    units: tuple[Unit, ...] = ()
    gone: tuple[tuple[Unit, str], ...] = ()
    """(Unit, reason) of units that only the stack contains, and that no longer exist."""
    unseen: tuple[Unit, ...] = ()
    """The units of the stack, if the provider is unreadable."""
    uncounted: int = 0
    """Maximum number of machines of the pool, if both provider and stack are unreadable."""
    frozen: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()
    """Queues that were read only in part, so that no idle machine is deleted."""
    blind: tuple[str, ...] = ()
    stack: Stack | None = None
    listed: bool = True
    """False if the provider is unreadable; True if the provider lists no machines."""
    tokens: str | None = None
    """The registry that can revoke tokens of unregistered workers; None if no registry can."""
    has_registry: bool = True
    """False if no registry reports the work of the pool's workers."""
    enrols: str | None = None
    """The queue that issues tokens for new workers; None if workers register at the provider."""

    @property
    def known(self) -> tuple[Unit, ...]:
        """Return all machines, including machines that no longer exist."""
        return (*self.units, *(unit for unit, _ in self.gone))

    def having(self, *states: UnitState) -> tuple[Unit, ...]:
        """Return the machines in one of these states, sorted by name."""
        if self._states.isdisjoint(states):
            return ()
        return tuple(unit for unit in self.units if unit.state in states)

    @cached_property
    def _states(self) -> frozenset[UnitState]:
        return frozenset(unit.state for unit in self.units)


def take_inventory(fleet: Fleet, world: World) -> dict[str, PoolInventory]:
    """Return the observed state of each pool that is configured or has machines, by name."""
    names = fleet.dynamic_pools.keys()
    seen = SharedObservations(fleet, world)
    return {
        name: _inventory_of(fleet, world, name, seen)
        for name in sorted(names | _removed_pools(fleet, seen))
    }


def _removed_pools(fleet: Fleet, seen: SharedObservations) -> set[str]:
    """Return the pools that were removed from fleet.yaml but still have machines or a stack."""
    stacks = {} if isinstance(seen.owners.stacks, Unknown) else seen.owners.stacks
    with_stack = {
        name
        for name, stack in stacks.items()
        if isinstance(stack, Unknown) or stack.workers or stack.ids
    }
    known = with_stack | seen.pools()
    return {name for name in known if not isinstance(fleet.pools.get(name), Pool)}


def _inventory_of(
    fleet: Fleet, world: World, name: str, seen: SharedObservations
) -> PoolInventory:
    pool = fleet.pools.get(name)
    stack = _stack_of(seen, name)
    provider = pool.provider if isinstance(pool, Pool) else _provider_of(name, stack, seen)
    listing: Listing | Unknown = world.providers.get(provider, _UNREAD)
    blind = list(_find_unreadable(world, name, provider, seen))
    queues = sorted(q for q in world.queues if not isinstance(pool, Pool) or serves_queue(pool, q))
    if isinstance(listing, Unknown):
        return PoolInventory(
            pool=name,
            provider=provider,
            unseen=_unobserved_units(
                (name, world.time), stack, seen, queue_registries(world, queues)
            ),
            uncounted=size_of(pool).max if isinstance(stack, Unknown) else 0,
            blind=tuple(blind),
            frozen=tuple(blind),
            listed=False,
        )
    blind += _find_foreign_listings(seen, name, provider)
    desks = desks_of(fleet, queues)
    registries, unreadable = _registries(world, queues, (provider, listing), desks, seen)

    def is_of_use(unit: Unit) -> bool:
        """Return True if a machine may get work again: its pool stays, and `reuse` allows it."""
        if not isinstance(pool, Pool) or pool.mode == "drain":
            return False
        worker = unit.worker
        is_fresh = worker is None or is_busy(worker) or not worker.uses
        return is_fresh or unit.registry not in desks or pool.reuse is not None

    units = tuple(
        _apply_orders(unit, seen, registries, world.time, is_of_use)
        for unit in units_of(
            Sightings(name, seen.machines(provider, name), stack, seen.registered(registries)),
            is_overdue=lambda machine: is_overdue(pool, machine, world.time),
            now=world.time,
            has_registry=bool(registries) and not unreadable,
        )
    )
    frozen = (*blind, *unreadable, *stale_demand(fleet, world, queues))
    missing = [
        unit
        for unit in units
        if unit.state is UnitState.MISSING and not seen.lists_name(unit.name)
    ]
    # A missing machine that this run must not remove still counts to max.
    is_paused = isinstance(pool, Pool) and pool.mode == "pause"
    gone = {} if frozen or is_paused else dict(_find_gone(fleet, world, provider, desks, missing))
    return PoolInventory(
        pool=name,
        provider=provider,
        units=tuple(unit for unit in units if unit.name not in gone),
        gone=tuple((unit, gone[unit.name]) for unit in missing if unit.name in gone),
        blind=tuple(blind),
        frozen=frozen,
        sampled=tuple(q for q in queues if estimate_of(fleet, world, q)),
        stack=stack if isinstance(stack, Stack) else None,
        tokens=desks[0]
        if desks
        else provider
        if listing.workers is not None
        else revokes_at(fleet, queues),
        has_registry=bool(registries or unreadable),
        enrols=enrols_at(fleet, pool, queues) if listing.workers is None else None,
    )


_AT_WORK = frozenset({WorkerState.BUSY, WorkerState.IDLE, WorkerState.DEAF})


def _find_gone(
    fleet: Fleet, world: World, provider: str, desks: Collection[str], units: Iterable[Unit]
) -> Iterator[tuple[str, str]]:
    """Yield (name, reason) for each missing machine that no longer exists.

    If a queue that is not a ticket queue hears the worker of a machine, the machine exists.
    """
    absences = {each.name: each for each in world.absences if each.provider == provider}
    for unit in units:
        if unit.held is not None:
            continue
        worker, absence = unit.worker, absences.get(unit.name)
        is_at_desk = unit.registry in desks
        if worker is not None and not is_at_desk and (is_busy(worker) or _is_heard(worker)):
            continue
        if absence is not None and absence.works:
            continue
        if is_at_desk and worker is not None and worker.uses and not is_busy(worker):
            yield unit.name, "its ticket has ended"
        elif absence is not None and (because := _explain_gone(fleet, world.time, absence)):
            yield unit.name, because


def _is_heard(worker: Worker) -> bool:
    return worker.state in _AT_WORK and not worker.away


def rule_of_absence(fleet: Fleet, provider: str) -> Gone:
    """Return the rule that decides when a machine missing from listings counts as deleted."""
    declared = fleet.providers.get(provider)
    return declared.gone if declared else Gone()


def _explain_gone(fleet: Fleet, now: datetime, absence: Absence) -> str:
    """Return why an absent machine counts as deleted; empty while it may return."""
    if absence.works is False:
        return "its livechecks fail"
    rule = rule_of_absence(fleet, absence.provider)
    lasted = int((now - absence.since).total_seconds())
    if absence.lists < rule.lists or lasted < rule.after:
        return ""
    return lives.explain_lists(absence.lists, lasted, absence.provider)


def _apply_orders(
    unit: Unit,
    seen: SharedObservations,
    registries: Registries,
    now: datetime,
    is_of_use: Callable[[Unit], bool],
) -> Unit:
    """Return a machine with its hold and recorded drains; resume it if its hold has ended."""
    held = seen.holds.get(unit.name)
    is_drained = unit.worker is not None and unit.worker.draining
    drained_at = seen.draining(registries).get(unit.name, frozenset())
    is_leaving = bool(drained_at) and not is_drained
    drains = seen.working(registries).get(unit.name, 1)
    known = seen.departures.get(unit.name, ())
    if not (held or is_leaving or known or drains > 1):
        return unit
    departures = tuple(each for each in known if _is_same_machine(each, unit))
    unit = replace(unit, held=held, is_leaving=is_leaving, drains=drains, departures=departures)
    return _resume(unit, drained_at, now) if not held and is_of_use(unit) else unit


def _is_same_machine(departure: Departure, unit: Unit) -> bool:
    """Return True if a recorded drain or deletion is of this machine, not of a namesake."""
    created = unit.machine.created_at if unit.machine else None
    return created is None or created <= departure.at


def _resume(unit: Unit, drained_at: frozenset[str], now: datetime) -> Unit:
    """Return a machine after its hold. It gets work again and is idle only since the hold ended.

    `drained_at` are the queues that drain the machine. If the machine was drained for another
    reason before the hold, it stays drained.
    """
    worker = unit.worker
    if worker is None:
        return unit
    drains = [departure for departure in unit.departures if departure.over is None]
    is_for_hold = all(departure.reason == Reason.HELD.value for departure in drains)
    resumes = tuple(
        departure for departure in drains if is_for_hold and departure.registry in drained_at
    )
    resumed_at = {departure.registry for departure in resumes}
    if worker.draining and unit.registry not in resumed_at:
        return unit
    ends = [departure.over for departure in unit.departures if departure.over is not None]
    if resumes:
        ends.append(now)
    resumed = worker.altered(draining=False)
    if worker.state is WorkerState.IDLE and ends and (resumes or worker.since):
        resumed = resumed.altered(since=max([*ends, worker.since or now]))
    state = unit.state
    if state is UnitState.DRAINING:
        state = registered_state(resumed, now, has_registry=True, overdue=False)
    is_leaving = not drained_at <= resumed_at
    return replace(unit, worker=resumed, state=state, is_leaving=is_leaving, resumes=resumes)


def _registries(
    world: World,
    queues: list[str],
    listed: tuple[str, Listing],
    desks: tuple[str, ...],
    seen: SharedObservations,
) -> tuple[Mapping[str, tuple[Worker, ...]], tuple[str, ...]]:
    """Return workers by registry, including ticket queues, and errors of unreadable registries."""
    if not desks:
        return registries_of(world, queues, *listed)
    attended = seen.attended(desks, *listed)
    if isinstance(attended, Unknown):
        return {}, (attended.unknown,)
    others, unreadable = queue_registries(world, [q for q in queues if q not in desks])
    return {**attended, **others}, unreadable


def _find_unreadable(
    world: World, name: str, provider: str, seen: SharedObservations
) -> Iterator[str]:
    """Yield a sentence per source of a pool's machines that is unreadable or contested."""
    listing = world.providers.get(provider, _UNREAD)
    stack = _stack_of(seen, name)
    if isinstance(listing, Unknown):
        yield f"machines of provider {provider} are unknown: {listing.unknown}"
    if isinstance(world.stacks, Unknown):
        yield f"stacks are unknown: {world.stacks.unknown}"
    elif isinstance(stack, Unknown):
        yield f"the stack of pool {name} is unknown: {stack.unknown}"
    if name in seen.owners.contested:
        heir = seen.owners.contested[name]
        yield (
            f"pool {heir} has `previously: {name}`, but also its own stack; remove that key "
            f"to drain pool {name}"
        )


def _stack_of(seen: SharedObservations, name: str) -> Stack | Unknown | None:
    stacks = seen.owners.stacks
    return stacks if isinstance(stacks, Unknown) else stacks.get(name)


def _provider_of(name: str, stack: Stack | Unknown | None, seen: SharedObservations) -> str:
    if isinstance(stack, Stack):
        return stack.provider
    return next(iter(seen.listers(name)), "")


def _find_foreign_listings(seen: SharedObservations, name: str, provider: str) -> Iterator[str]:
    """Yield a sentence for each other provider that lists machines of a pool."""
    for other in seen.listers(name):
        if other == provider:
            continue
        # Two providers of one account list the same machines.
        unrecorded_machines = [
            m for m in seen.machines(other, name) if not seen.lists(provider, m)
        ]
        if unrecorded_machines:
            names = ", ".join(sorted(machine.name for machine in unrecorded_machines)[:3])
            yield (
                f"provider {other} lists machines of pool {name}, whose provider is "
                f"{provider or 'unknown'} ({len(unrecorded_machines)}: {names}); restore the "
                "pool's provider, or rename the pool"
            )


def _unobserved_units(
    pool_and_time: tuple[str, datetime],
    stack: Stack | Unknown | None,
    seen: SharedObservations,
    registries: tuple[dict[str, tuple[Worker, ...]], tuple[str, ...]],
) -> tuple[Unit, ...]:
    """Return the machines in the stack of a pool whose provider is unreadable."""
    pool, now = pool_and_time
    readable, unreadable = registries
    known = seen.registered(readable)
    units = []
    for name in sorted(stack.ids) if isinstance(stack, Stack) else ():
        registry, worker = known.get(name, (None, None))
        has_registry = bool(readable) and not unreadable
        state = registered_state(worker, now, has_registry=has_registry, overdue=False)
        units.append(Unit(name, pool, state, worker=worker, registry=registry))
    return tuple(units)


_EXTENSION_DIVISOR = 4
"""Add `expire_after` divided by this number to each expiry, so that few runs have to write it."""


def find_due(fleet: Fleet, world: World) -> Iterator[tuple[str, tuple[Machine, ...]]]:
    """Yield (provider, machines whose expiry this run extends)."""
    enough = world.time + timedelta(seconds=fleet.expire_after)
    known = _recorded_machines(world)
    for name, listing in sorted(world.providers.items()):
        if isinstance(listing, Listing) and listing.notes_expiry:
            due = tuple(
                machine
                for machine in listing.machines
                if (machine.expires is None or machine.expires < enough)
                and (known is None or {machine.id, machine.name} & known)
            )
            if due:
                yield name, due


def extended(fleet: Fleet, now: datetime) -> datetime:
    """Return the expiry that a run at this time writes: at least `expire_after` later."""
    return now + timedelta(seconds=fleet.expire_after + fleet.expire_after // _EXTENSION_DIVISOR)


def expired_at(fleet: Fleet, world: World, provider: str, machine: Machine) -> datetime | None:
    """Return when a machine expired; None if it has not certainly expired."""
    end = machine.expires or _end_by_journal(fleet, world, provider, machine)
    return end if end is not None and end < world.time else None


def _end_by_journal(
    fleet: Fleet, world: World, provider: str, machine: Machine
) -> datetime | None:
    """Compute the expiry of a machine without stored expiry, by its creation and the last run."""
    if not isinstance(world.runs, Unknown):
        known = [*filter(None, [machine.created_at]), *world.runs]
        return extended(fleet, max(known)) if known else None
    listing = world.providers.get(provider)
    noted = isinstance(listing, Listing) and listing.notes_expiry
    # A run after the creation would have written an expiry.
    created = machine.created_at
    return extended(fleet, created) if noted and created is not None else None


def _recorded_machines(world: World) -> set[str] | None:
    """Return the ids of machines in stacks and names of pending creations; None if unknown."""
    stacks = [] if isinstance(world.stacks, Unknown) else [*world.stacks.values()]
    if isinstance(world.stacks, Unknown) or any(isinstance(each, Unknown) for each in stacks):
        return None
    known: set[str] = set()
    for stack in stacks:
        if isinstance(stack, Stack):
            known |= {worker.name for worker in stack.workers} - stack.ids.keys()
            known |= set(stack.ids.values())
    return known
