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
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from fleet.model.facts import (
    Attempt,
    Charge,
    Demand,
    Departure,
    Listing,
    Machine,
    MachinePayer,
    Stack,
    Unknown,
    Worker,
    WorkerState,
    World,
)
from fleet.model.orders import FLEET, Freeze, Frozen, Hold, Order
from fleet.model.plan import Action, Create, Estimate, Plan, Reason
from fleet.model.pool_limits import size_of
from fleet.planner.units import (
    Registrations,
    Registries,
    Unit,
    UnitState,
    conflict_of,
    is_busy,
    is_overdue,
    is_up,
    may_return,
    observed_state,
    registered_state,
)
from fleet.schema.model import (
    DebusineQueue,
    Fleet,
    Gone,
    Pool,
    TicketQueue,
    serves_queue,
    static_names,
)
from fleet.schema.units import write_duration
from fleet.words import lives, notes

_Record = TypeVar("_Record", Attempt, Charge, MachinePayer)


def desks_of(fleet: Fleet, queues: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the ticket queues among these queues."""
    return tuple(q for q in queues if isinstance(fleet.queues.get(q), TicketQueue))


def every_desk(fleet: Fleet, world: World) -> frozenset[str]:
    """Return the names of the ticket queues, also of those that are no longer in fleet.yaml.

    Of the queues that are not in fleet.yaml, a run reads only those of tickets.
    """
    return frozenset((*desks_of(fleet, world.queues), *(world.queues.keys() - fleet.queues)))


def _is_of_older(own: Worker, created_at: datetime | None) -> bool:
    """Return True if a queue's record describes an older machine of the same name."""
    if own.state is WorkerState.BUSY or own.since is None or created_at is None:
        return False
    return own.since < created_at


def _join_reports(seen: Worker, own: Worker) -> Worker:
    """Merge the reports of a provider (`seen`) and a queue (`own`) about one worker.

    The queue's state counts if the provider reports the worker as idle.
    """
    if seen.state is not WorkerState.IDLE:
        return seen if seen.work else seen.altered(work=own.work)
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
    pools = sorted(fleet.dynamic_pools.items())
    # `fleet validate` forbids that two pools have the same old name.
    return fleet.cached(
        "heirs",
        (),
        lambda: {
            pool.previously: name
            for name, pool in pools
            if pool.previously is not None and pool.previously not in fleet.pools
        },
    )


def holds_of(world: World) -> dict[str, Hold]:
    """Return the hold on each machine that an operator holds, by name; omit expired holds."""
    orders = () if isinstance(world.orders, Unknown) else world.orders
    holds = (order for order in orders if isinstance(order, Hold) and order.until > world.time)
    return {hold.machine: hold for hold in holds}


_FROZEN_BY_UNREAD: Mapping[str, Frozen] = {"attempts": "creates", "departures": "deletes"}
"""Record to the kind of actions that are frozen if the record is unreadable."""


def orders_of(fleet: Fleet, world: World) -> tuple[Order, ...]:
    """Return the active orders of operators. A renamed pool has its current name.

    If the orders are unreadable, all actions are frozen. If a record of another kind is
    unreadable, for example attempts, the actions that it might forbid are frozen.
    """
    freeze = Freeze(by=FLEET, at=world.time, until=world.time, reason="")
    if isinstance(world.orders, Unknown):
        return (freeze.altered(reason=lives.explain_unread_orders(world.orders.unknown)),)
    takers = takers_of(fleet, world)
    orders = (
        order
        if isinstance(order, Hold) or order.pool not in takers
        else order.altered(pool=takers[order.pool])
        for order in world.orders
        if order.until > world.time
    )
    unread = (
        freeze.altered(
            reason=lives.explain_unread(record, why), stops=(_FROZEN_BY_UNREAD[record],)
        )
        for record, why in sorted(world.unread.items())
    )
    return (*orders, *unread)


def find_freeze(fleet: Fleet, world: World, pool: str, kind: Frozen = "creates") -> Freeze | None:
    """Return the freeze of creations or deletions in a pool that ends last; None if allowed."""
    freezes = (
        order
        for order in orders_of(fleet, world)
        if isinstance(order, Freeze) and order.pool in (None, pool) and kind in order.stops
    )
    return max(freezes, key=lambda order: (order.is_precaution, order.until), default=None)


def is_all_frozen(fleet: Fleet, world: World) -> bool:
    """Return True if creations are frozen in all pools. Shared resources then do not change."""
    return find_freeze(fleet, world, "") is not None


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


def under_current_pools(
    fleet: Fleet, world: World, records: Iterable[_Record]
) -> tuple[_Record, ...]:
    """Return records with the current names of renamed pools."""
    takers = takers_of(fleet, world)
    if not takers:
        return tuple(records)
    return tuple(
        each.altered(pool=takers[each.pool]) if each.pool in takers else each for each in records
    )


def charges_of(fleet: Fleet, world: World) -> tuple[Charge, ...]:
    """Return the charges in the ledger with current pool names; empty if unknown."""
    known = () if isinstance(world.ledger, Unknown) else world.ledger.charges
    return under_current_pools(fleet, world, known)


def attempts_of(fleet: Fleet, world: World) -> tuple[Attempt, ...]:
    """Return the recorded attempts to create machines, with current pool names."""
    return under_current_pools(fleet, world, world.attempts)


def stack_name(fleet: Fleet, pool: str, stack: Stack | None = None) -> str:
    """Return the name of a pool's stack. A renamed pool keeps its stack."""
    return (stack.name if stack else "") or f"{fleet.fleet}-{pool}"


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
        return tuple(unit for unit in self.units if unit.state in states)


def take_inventory(fleet: Fleet, world: World) -> dict[str, PoolInventory]:
    """Return the observed state of each pool that is configured or has machines, by name."""
    observer = _Observer(fleet, world)
    recorded = {
        name
        for name, stack in observer.stacks.items()
        if isinstance(stack, Unknown) or stack.workers or stack.ids
    }
    names = fleet.dynamic_pools.keys() | recorded | observer.machines.keys()
    return {name: observer.take(name) for name in sorted(names)}


class _Observer:
    """Joins the observations of machines and workers to the inventory of each pool.

    Records may still have the old name of a renamed pool.
    """

    def __init__(self, fleet: Fleet, world: World) -> None:
        self._world, self._fleet = world, fleet
        self._static = static_names(fleet)
        self._takers = takers_of(fleet, world)
        known = {} if isinstance(world.stacks, Unknown) else world.stacks
        self.stacks = {self._takers.get(pool, pool): stack for pool, stack in known.items()}
        """Current pool name to stack; empty if all stacks are unreadable."""
        self._held = {
            (name, machine_id): pool
            for pool, stack in sorted(self.stacks.items())
            if isinstance(stack, Stack)
            for name, machine_id in stack.ids.items()
        }
        """(Name, id) of a recorded machine to the pool whose stack contains the machine."""
        self._holds = holds_of(world)
        self._departures: defaultdict[str, list[Departure]] = defaultdict(list)
        for departure in sorted(world.departures, key=lambda each: (each.at, each.registry)):
            self._departures[departure.worker].append(departure)
        self.machines: dict[str, dict[str, list[Machine]]] = {}
        """Pool to the providers, by name, that list machines of the pool, with the machines."""
        for provider, machine in world.machines():
            listed = self.machines.setdefault(self._owner_of(machine), {})
            listed.setdefault(provider, []).append(machine)
        self._listed = {machine.name for _, machine in world.machines()}
        self._registrations: dict[tuple[tuple[str, ...], str], Registrations] = {}
        self._busy: defaultdict[str, list[tuple[str, Worker]]] = defaultdict(list)
        """Machine to its busy workers, each with its queue."""
        for queue, reading in sorted(world.queues.items()):
            for worker in reading.workers if isinstance(reading.workers, tuple) else ():
                if is_busy(worker):
                    self._busy[worker.machine or worker.name].append((queue, worker))

    def _owner_of(self, machine: Machine) -> str:
        """Return the pool that owns a machine: by its stack, otherwise by its label."""
        label = self._takers.get(machine.pool, machine.pool)
        return self._held.get((machine.name, machine.id), label)

    def take(self, name: str) -> PoolInventory:
        """Return the observed state of a pool."""
        fleet, world, pool = self._fleet, self._world, self._fleet.dynamic_pool(name)
        stack = world.stacks if isinstance(world.stacks, Unknown) else self.stacks.get(name)
        provider = next(iter(self.machines.get(name, ())), "")
        if pool is not None:
            provider = pool.provider
        elif isinstance(stack, Stack):
            provider = stack.provider
        listing: Listing | Unknown = world.providers.get(provider, _UNREAD)
        blind = [*self._find_unreadable(name, provider, listing, stack)]
        queues = tuple(sorted(q for q in world.queues if pool is None or serves_queue(pool, q)))
        if (queues, provider) not in self._registrations:
            found = Registrations(*self._read_registries(queues, provider, listing), self._static)
            self._registrations[queues, provider] = found
        registrations = self._registrations[queues, provider]
        if isinstance(listing, Unknown):
            unseen = []
            for each in sorted(stack.ids) if isinstance(stack, Stack) else ():
                registry, worker = self._worker_of(each, pool, registrations)
                is_complete = registrations.are_complete
                state = registered_state(
                    worker, world.time, has_registry=is_complete, overdue=False
                )
                unseen.append(Unit(each, name, state, worker=worker, registry=registry))
            return PoolInventory(
                pool=name,
                provider=provider,
                unseen=tuple(unseen),
                uncounted=size_of(pool).max if isinstance(stack, Unknown) else 0,
                blind=tuple(blind),
                frozen=tuple(blind),
                listed=False,
            )
        desks = desks_of(fleet, queues)
        listed = self.machines.get(name, {}).get(provider, [])
        units = self._units(name, listed, stack, registrations)
        stale = ((queue, demand_trouble(fleet, world, queue)) for queue in queues)
        frozen = (
            *blind,
            *registrations.unreadable,
            *self._find_unread_desks(queues),
            *(f"demand of queue {queue} is unknown: {why}" for queue, why in stale if why),
        )
        missing = [
            unit
            for unit in units
            if unit.state is UnitState.MISSING and unit.name not in self._listed
        ]
        # A missing machine that this run must not remove still counts to max.
        is_kept = frozen or (pool is not None and pool.mode == "pause")
        gone = {} if is_kept else dict(_find_gone(fleet, world, provider, missing))
        kinds = {q: d for q in queues if isinstance(d := fleet.queues.get(q), DebusineQueue)}
        tokens = next((q for q, each in kinds.items() if each.admin), None)
        return PoolInventory(
            pool=name,
            provider=provider,
            units=tuple(unit for unit in units if unit.name not in gone),
            gone=tuple((unit, gone[unit.name]) for unit in missing if unit.name in gone),
            blind=tuple(blind),
            frozen=frozen,
            sampled=tuple(q for q in queues if estimate_of(fleet, world, q)),
            stack=stack if isinstance(stack, Stack) else None,
            tokens=desks[0] if desks else provider if listing.workers is not None else tokens,
            has_registry=bool(registrations.names or registrations.unreadable),
            enrols=next(iter(kinds), None) if pool and listing.workers is None else None,
        )

    def _find_unreadable(
        self, name: str, provider: str, listing: Listing | Unknown, stack: Stack | Unknown | None
    ) -> Iterator[str]:
        """Yield a sentence per source of a pool's machines that is unreadable or contested."""
        if isinstance(listing, Unknown):
            place = f"provider {provider}" if provider else f"pool {name}"
            yield f"machines of {place} are unknown: {listing.unknown}"
        if isinstance(stack, Unknown):
            is_of_all = stack is self._world.stacks
            subject = "stacks are" if is_of_all else f"the stack of pool {name} is"
            yield f"{subject} unknown: {stack.unknown}"
        if (heir := heirs_of(self._fleet).get(name)) and name not in self._takers:
            yield (
                f"pool {heir} has `previously: {name}`, but also its own stack; remove that key "
                f"to drain pool {name}"
            )
        for other, machines in self.machines.get(name, {}).items():
            if other == provider or isinstance(listing, Unknown):
                continue
            # Two providers of one account list the same machines.
            own = {(machine.name, machine.id) for machine in listing.machines}
            strange = sorted(m.name for m in machines if (m.name, m.id) not in own)
            if strange:
                yield (
                    f"provider {other} lists machines of pool {name}, whose provider is "
                    f"{provider or 'unknown'} ({len(strange)}: {', '.join(strange[:3])}); "
                    "restore the pool's provider, or rename the pool"
                )

    def _read_registries(
        self, queues: tuple[str, ...], provider: str, listing: Listing | Unknown
    ) -> tuple[Registries, tuple[str, ...]]:
        """Return the workers that register at these queues, or at their provider.

        Also return an error message per unreadable registry.
        """
        readings = {queue: self._world.queues[queue].workers for queue in queues}
        unread = {
            queue: f"workers of queue {queue} are unknown: {workers.unknown}"
            for queue, workers in readings.items()
            if isinstance(workers, Unknown)
        }
        found = {queue: known for queue, known in readings.items() if isinstance(known, tuple)}
        if not isinstance(listing, Listing):
            return found, tuple(unread.values())
        desks = desks_of(self._fleet, queues)
        if unknown := [unread[desk] for desk in desks if desk in unread]:
            return {}, tuple(unknown[:1])
        if desks:
            return found | self._attend(desks, found, listing), tuple(unread.values())
        if listing.workers is not None:
            return {provider: listing.workers}, ()
        return found, tuple(unread.values())

    def _find_unread_desks(self, queues: Collection[str]) -> Iterator[str]:
        """Yield a sentence per unreadable queue that fleet.yaml and `queues` no longer name."""
        for queue, reading in self._world.queues.items():
            is_former = queue not in queues and queue not in self._fleet.queues
            if is_former and isinstance(reading.workers, Unknown):
                yield f"workers of queue {queue} are unknown: {reading.workers.unknown}"

    def _attend(
        self, desks: Collection[str], registries: Registries, listing: Listing
    ) -> dict[str, tuple[Worker, ...]]:
        """Map each ticket queue to the workers, on a provider's machines, that it may assign.

        A machine that is up and registers nowhere else counts as an idle worker.
        """
        known: dict[str, tuple[str, Worker]] = {}
        for desk in desks:
            for worker in registries.get(desk, ()):
                if worker.name not in known or worker.state is WorkerState.BUSY:
                    known[worker.name] = (desk, worker)
        created = {machine.name: machine.created_at for machine in listing.machines}
        found: dict[str, list[Worker]] = {desk: [] for desk in desks}
        first = next(iter(found))
        idle = (
            Worker(
                name=machine.name,
                machine=machine.name,
                pool=machine.pool,
                state=WorkerState.IDLE,
                since=machine.created_at,
            )
            for machine in listing.machines
            if is_up(self._fleet, self._owner_of(machine), machine)
        )
        for worker in idle if listing.workers is None else listing.workers:
            desk, own = known.pop(worker.name, (first, None))
            is_new = own is None or _is_of_older(own, created.get(worker.name))
            found[desk].append(worker if own is None or is_new else _join_reports(worker, own))
        for desk, own in known.values():
            # The record of a deleted machine does not describe a new machine of the same name.
            if not _is_of_older(own, created.get(own.name)):
                found[desk].append(own)
        return {desk: tuple(workers) for desk, workers in found.items()}

    def _units(
        self,
        name: str,
        listed: Iterable[Machine],
        stack: Stack | Unknown | None,
        registrations: Registrations,
    ) -> tuple[Unit, ...]:
        """Return the units (machines with their workers) of a pool, sorted by name."""
        units, now = [], self._world.time
        pool, is_silent = self._fleet.dynamic_pool(name), isinstance(stack, Unknown)
        machines = {machine.name: machine for machine in listed}
        inputs = {w.name: w for w in stack.workers} if isinstance(stack, Stack) else {}
        ids = stack.ids if isinstance(stack, Stack) else {}
        for each in sorted(machines.keys() | inputs.keys() | ids.keys()):
            machine = machines.get(each)
            registry, worker = self._worker_of(each, pool, registrations)
            # A name may be reused, so compare the ids of the machine.
            is_own = machine is None or ids.get(each, machine.id) == machine.id
            overdue = machine is not None and is_overdue(pool, machine, now)
            state = conflict_of(
                listed=machine is not None,
                wanted=is_own and (is_silent or each in inputs),
                recorded=is_own and (is_silent or each in ids),
            )
            is_static = machine is not None and each in registrations.static
            if is_static:
                state = UnitState.STATIC
            elif state is None and machine is not None:
                is_complete = registrations.are_complete
                state = observed_state(
                    machine, worker, now, has_registry=is_complete, overdue=overdue
                )
            # A recorded drain or deletion may be of an older machine of the same name.
            created = machine.created_at if machine else None
            drained_at = frozenset(registrations.draining.get(each, ()))
            unit = Unit(
                name=each,
                pool=name,
                state=state or UnitState.UNRECORDED,
                machine=machine,
                worker=worker,
                inputs=inputs.get(each),
                registry=registry,
                held=self._holds.get(each),
                returning=state is UnitState.DISCONNECTED
                and may_return(worker, now, overdue=overdue),
                is_leaving=bool(drained_at) and not (worker and worker.draining),
                drains=max(1, len(registrations.working.get(each, ()))),
                departures=tuple(
                    departure
                    for departure in self._departures.get(each, ())
                    if created is None or created <= departure.at
                ),
            )
            if unit.departures and not unit.held and self._is_of_use(pool, unit):
                unit = _resume(unit, drained_at, now)
            units.append(unit)
        return tuple(units)

    def _worker_of(
        self, name: str, pool: Pool | None, registrations: Registrations
    ) -> tuple[str | None, Worker | None]:
        """Return the (registry, worker) of a machine, which may be busy at a former queue.

        A queue that fleet.yaml or the pool's `serves` no longer names is ignored otherwise.
        """
        registry, worker = registrations.workers.get(name, (None, None))
        if worker is None or not is_busy(worker):
            for queue, busy in self._busy.get(name, ()):
                served = pool is None or serves_queue(pool, queue)
                if not (served and queue in self._fleet.queues):
                    return queue, busy
        return registry, worker

    def _is_of_use(self, pool: Pool | None, unit: Unit) -> bool:
        """Return True if a machine may get work again: its pool stays, and `reuse` allows it."""
        if pool is None or pool.mode == "drain":
            return False
        is_fresh = unit.worker is None or is_busy(unit.worker) or not unit.worker.uses
        is_at_desk = isinstance(self._fleet.queues.get(unit.registry or ""), TicketQueue)
        return is_fresh or not is_at_desk or pool.reuse is not None


_AT_WORK = frozenset({WorkerState.BUSY, WorkerState.IDLE, WorkerState.DEAF})


def _find_gone(
    fleet: Fleet, world: World, provider: str, units: Iterable[Unit]
) -> Iterator[tuple[str, str]]:
    """Yield (name, reason) for each missing machine that no longer exists.

    If a queue that is not a ticket queue hears the worker of a machine, the machine exists.
    """
    desks = every_desk(fleet, world)
    absences = {each.name: each for each in world.absences if each.provider == provider}
    for unit in units:
        worker, absence = unit.worker, absences.get(unit.name)
        is_at_desk = unit.registry in desks
        is_heard = worker is not None and (
            is_busy(worker) or (worker.state in _AT_WORK and not worker.away)
        )
        works = absence is not None and absence.works
        if unit.held is not None or works or (is_heard and not is_at_desk):
            continue
        if is_at_desk and worker is not None and worker.uses and not is_busy(worker):
            yield unit.name, "its ticket has ended"
        elif absence is not None and absence.works is False:
            yield unit.name, "its livechecks fail"
        elif absence is not None:
            rule = rule_of_absence(fleet, provider)
            lasted = int((world.time - absence.since).total_seconds())
            if absence.lists >= rule.lists and lasted >= rule.after:
                yield unit.name, lives.explain_lists(absence.lists, lasted, provider)


def rule_of_absence(fleet: Fleet, provider: str) -> Gone:
    """Return the rule that decides when a machine missing from listings counts as deleted."""
    declared = fleet.providers.get(provider)
    return declared.gone if declared else Gone()


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


_EXTENSION_DIVISOR = 4
"""Add `expire_after` divided by this number to each expiry, so that few runs have to write it."""


def find_due(fleet: Fleet, world: World) -> Iterator[tuple[str, tuple[Machine, ...]]]:
    """Yield (provider, machines whose expiry this run extends)."""
    enough = world.time + timedelta(seconds=fleet.expire_after)
    stacks = world.known_stacks
    is_known = not isinstance(world.stacks, Unknown) and len(stacks) == len(world.stacks)
    # The ids of machines in stacks, and the names of pending creations.
    known = {machine_id for stack in stacks.values() for machine_id in stack.ids.values()}
    known |= {w.name for s in stacks.values() for w in s.workers if w.name not in s.ids}
    for name, listing in sorted(world.providers.items()):
        if isinstance(listing, Listing) and listing.notes_expiry:
            due = tuple(
                machine
                for machine in listing.machines
                if (machine.expires is None or machine.expires < enough)
                and (not is_known or {machine.id, machine.name} & known)
            )
            if due:
                yield name, due


def extended(fleet: Fleet, now: datetime) -> datetime:
    """Return the expiry that a run at this time writes: at least `expire_after` later."""
    return now + timedelta(seconds=fleet.expire_after + fleet.expire_after // _EXTENSION_DIVISOR)


def expired_at(fleet: Fleet, world: World, provider: str, machine: Machine) -> datetime | None:
    """Return when a machine expired; None if it has not certainly expired.

    Without a stored expiry, its creation and the last run decide.
    """
    end = machine.expires
    if end is None:
        listing = world.providers.get(provider)
        is_noted = isinstance(listing, Listing) and listing.notes_expiry
        runs = [] if isinstance(world.runs, Unknown) else [*world.runs]
        # If the runs are unknown: a run after the creation would have written an expiry.
        is_known = is_noted or not isinstance(world.runs, Unknown)
        starts = [*filter(None, [machine.created_at]), *runs] if is_known else []
        end = extended(fleet, max(starts)) if starts else None
    return end if end is not None and end < world.time else None
