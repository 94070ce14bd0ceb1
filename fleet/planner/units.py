"""Join machines with their workers (units), as provider, stack and registries observe them.

If a worker has several registrations, the most active one counts, so that an idle, draining or
dead registration never hides an active one. A machine is deleted only after every queue that knows
its worker has stopped assigning work to it.

Without registration, a machine is ready if its provider reports it as running with an address and,
with `ready`, its port has answered. Before the first check of the port, a machine is neither ready
nor failed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fleet.model.facts import (
    Departure,
    Listing,
    Machine,
    MachineState,
    Stack,
    Unknown,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.orders import Hold
from fleet.model.pool_limits import boot_of
from fleet.model.values import Word
from fleet.schema.model import DebusineQueue, Fleet, Pool, Ready, is_at_cloud
from fleet.words import lives

NEVER = datetime.max.replace(tzinfo=UTC)
"""A time after all other times."""
_MIN_CONNECTED = timedelta(minutes=10)
DISCONNECTED_GRACE = 75 * 60
"""Seconds without contact after which fleet replaces an idle worker.

A connected worker has contact every 65 minutes; a disconnected worker gets ten more.
"""

Registries = Mapping[str, tuple[Worker, ...]]
"""Name of a queue or provider to its registered workers."""

_INACTIVE_STATES = (
    (WorkerState.DISABLED, False),
    (WorkerState.ENROLLED, False),
    (WorkerState.IDLE, True),
    (WorkerState.DISCONNECTED, False),
    (WorkerState.DEAF, False),
    (WorkerState.IDLE, False),
)
"""(State, draining) of inactive workers, from the least to the most likely to become active."""


def workers_by_machine(
    registries: Registries, static: frozenset[str]
) -> dict[str, tuple[str, Worker]]:
    """Map machine name to (registry, most active worker), without static workers."""
    found: dict[str, tuple[str, Worker]] = {}
    for registry, worker in sorted(
        _dynamic_registrations(registries, static), key=_activity_order
    ):
        found.setdefault(worker.machine or worker.name, (registry, worker))
    return found


def enrols_at(fleet: Fleet, pool: object, queues: list[str]) -> str | None:
    """Return the queue where a pool's workers register with fleet's token; None if none does."""
    if not isinstance(pool, Pool):
        return None
    return next((q for q in queues if isinstance(fleet.queues.get(q), DebusineQueue)), None)


def revokes_at(fleet: Fleet, queues: list[str]) -> str | None:
    """Return the first queue, by name, that can revoke worker tokens; None if no queue can."""
    declared = ((name, fleet.queues.get(name)) for name in queues)
    return next((n for n, q in declared if isinstance(q, DebusineQueue) and q.admin), None)


def registries_of(
    world: World, queues: list[str], provider: str, listing: Listing
) -> tuple[dict[str, tuple[Worker, ...]], tuple[str, ...]]:
    """Return workers by queue or provider, and an error message per unreadable registry."""
    if listing.workers is not None:
        return {provider: listing.workers}, ()
    return queue_registries(world, queues)


def queue_registries(
    world: World, queues: list[str]
) -> tuple[dict[str, tuple[Worker, ...]], tuple[str, ...]]:
    """Return the workers by queue, and an error message per unreadable queue."""
    registries = {}
    unreadable = []
    for queue in queues:
        workers = world.queues[queue].workers
        if isinstance(workers, Unknown):
            unreadable.append(f"workers of queue {queue} are unknown: {workers.unknown}")
        elif workers is not None:
            registries[queue] = workers
    return registries, tuple(unreadable)


def seconds_away(world: World, worker: Worker | None) -> int:
    """Return the seconds since the last contact with a disconnected worker; 0 if connected."""
    if worker is None or not (worker.away or worker.state is WorkerState.DISCONNECTED):
        return 0
    heard = worker.last_seen or worker.since
    return int((world.time - heard).total_seconds()) if heard else 0


def hears_others(world: World, queue: str) -> bool:
    """Return True if a queue's reports of disconnected workers are reliable.

    After an outage of a queue, its workers reconnect gradually. Reports are therefore used only if
    one worker has been connected for long enough.
    """
    reading = world.queues.get(queue)
    workers = reading.workers if reading and isinstance(reading.workers, tuple) else ()
    since = world.time - _MIN_CONNECTED
    return any(w.connected_since is not None and w.connected_since <= since for w in workers)


def is_busy(worker: Worker) -> bool:
    """Return True if a worker runs work, by its state or its reported work."""
    return worker.state is WorkerState.BUSY or worker.running is not None


def _dynamic_registrations(
    registries: Registries, static: frozenset[str]
) -> Iterable[tuple[str, Worker]]:
    return (
        (registry, worker)
        for registry, workers in registries.items()
        for worker in workers
        if not worker.static and worker.name not in static
    )


def _activity_order(registered: tuple[str, Worker]) -> tuple[int, str, str, str]:
    registry, worker = registered
    return (-_activity(worker), registry, worker.name, str(worker.since))


def _activity(worker: Worker) -> int:
    if is_busy(worker) and not worker.stranded:
        return len(_INACTIVE_STATES)
    return _INACTIVE_STATES.index(
        (worker.state, worker.draining and worker.state is WorkerState.IDLE)
    )


MAX_FAILED_CHECKS = 3
"""Consecutive failed port checks after which a machine that was ready counts as broken."""


def is_up(fleet: Fleet, name: str, machine: Machine) -> bool:
    """Return True if a machine is ready for tickets, or was ready before it failed."""
    if machine.state is not MachineState.RUNNING:
        # A machine that failed its checks was ready before: fleet drains it and stops waiting.
        return machine.state is MachineState.FAILED
    pool = fleet.pools.get(name)
    if not isinstance(pool, Pool) or not is_at_cloud(fleet, pool):
        return True
    answered = pool.ready is None or machine.misses == 0 or machine.was_ready
    return machine.address is not None and answered


def is_overdue(pool: object, machine: Machine, now: datetime) -> bool:
    """Return True if a machine missed the deadline to become ready.

    If the port was first checked late, the deadline counts from the first check.
    """
    boot = boot_of(pool)
    began = machine.created_at or machine.looked_since
    if began is None:
        return False
    ends = boot.fails_at(began)
    if _ready(pool) and machine.state is MachineState.RUNNING and machine.address is not None:
        if machine.misses is None:
            return False
        if machine.looked_since is not None and machine.looked_since > ends:
            ends = boot.fails_at(machine.looked_since)
    return now > ends


def has_failed(machine: Machine | None) -> bool:
    """Return True if a machine that was ready is now broken."""
    if machine is None:
        return False
    is_silent = machine.was_ready and (machine.misses or 0) >= MAX_FAILED_CHECKS
    return is_silent or machine.state is MachineState.FAILED


def why_late(pool: object, *, revoked: bool = False) -> str:
    """Return a sentence on the missed deadline; with `revoked`, also on the revoked token."""
    ready = _ready(pool)
    port = ready.port if ready else None
    return lives.explain_late(boot_of(pool).deadline, port, revoked=revoked)


def why_lost(pool: object) -> str:
    """Return why a machine that was ready is broken; empty if the pool's workers register."""
    ready = _ready(pool)
    return lives.explain_lost_port(ready.port) if ready else ""


def _ready(pool: object) -> Ready | None:
    return pool.ready if isinstance(pool, Pool) else None


class UnitState(Word):
    """State of a machine and its worker, according to provider, stack and registry."""

    IDLE = "idle"
    BUSY = "busy"
    STARTING = "starting"
    ASSUMED = "assumed"  # no registry exists: the unit counts as capacity
    DRAINING = "draining"
    DEAF = "deaf"  # connected for long without work: the queue knows none of its tags
    DISCONNECTED = "disconnected"
    FAILED = "failed"  # its provider reports a failure, and no registry exists
    DISABLED = "disabled"
    STOPPED = "stopped"  # provider and stack know the machine, which is off and runs no work
    NEVER_REGISTERED = "never-registered"
    UNRECORDED = "unrecorded"  # the provider lists it, but the stack does not contain it
    MISSING = "missing"  # the stack contains it, but the provider does not list it
    UNFINISHED = "unfinished"  # an apply was killed before it recorded the machine
    UNDELETED = "undeleted"  # an apply was killed before it deleted the machine
    STATIC = "static"


DEAF_GRACE = 120
"""Seconds in which a connected worker has to report tags; until then it is starting."""
RETURN_GRACE = DEAF_GRACE
"""Seconds for which a disconnected worker counts as capacity, because most reconnect."""
CAPACITY = frozenset({UnitState.IDLE, UnitState.STARTING, UnitState.ASSUMED, UnitState.UNFINISHED})
"""States that can take work; `is_capacity` also includes briefly disconnected workers."""


@dataclass(frozen=True)
class Unit:
    """A machine and its worker, as observed."""

    name: str
    pool: str
    state: UnitState
    machine: Machine | None = None
    worker: Worker | None = None
    inputs: WorkerInputs | None = None
    registry: str | None = None
    held: Hold | None = None
    """The operator's order to keep the unit without new work; None without an order."""
    returning: bool = False
    """The idle worker is disconnected, but had contact recently or connects soon."""
    is_leaving: bool = False
    """Another queue has stopped assigning work to the worker."""
    drains: int = 1
    """Number of runs needed to drain the unit: one per queue that assigns work to it."""
    departures: tuple[Departure, ...] = ()
    """Reasons why earlier runs drained or disabled the unit, oldest first."""
    resumes: tuple[Departure, ...] = ()
    """Drains by an ended keep order: the unit gets work again if no other reason exists."""

    @property
    def is_capacity(self) -> bool:
        """Return True if the machine can take work now, or after its boot or reconnection."""
        return self.state in CAPACITY or self.returning

    @property
    def since(self) -> datetime | None:
        """Return when the machine entered its current state; None if unknown."""
        if self.worker and self.worker.since:
            return self.worker.since
        return self.machine.created_at if self.machine else None

    @property
    def has_failed(self) -> bool:
        """Return True if the provider or failed checks report the machine as broken."""
        return has_failed(self.machine)

    @property
    def failure(self) -> str:
        """Return why the machine is broken, as text."""
        misses = self.machine.misses if self.machine else None
        return lives.explain_silent_port(misses) if misses else lives.FAILED

    @property
    def awaits_token(self) -> bool:
        """Return True if the worker needs an unused token to register."""
        if self.worker is not None:
            return self.worker.state is WorkerState.ENROLLED
        return self.state in (UnitState.STARTING, UnitState.NEVER_REGISTERED, UnitState.STOPPED)

    @property
    def holds_in_vain(self) -> bool:
        """Return True if the assigned work cannot run and has to be released."""
        if self.worker is None or not is_busy(self.worker):
            return False
        is_off = self.machine is not None and self.machine.state is MachineState.STOPPED
        return is_off or self.worker.stranded

    @property
    def work_in_vain(self) -> str | None:
        """Return the id of assigned work that cannot run; None if there is no such work."""
        return self.worker.running if self.worker and self.holds_in_vain else None

    @property
    def may_run(self) -> bool:
        """Return True if the machine possibly runs work. Such a machine is never deleted."""
        return self.worker is not None and is_busy(self.worker) and not self.holds_in_vain


@dataclass(frozen=True)
class Sightings:
    """The observations of one pool's machines and workers."""

    pool: str
    machines: Sequence[Machine]
    stack: Stack | Unknown | None
    workers: Mapping[str, tuple[str, Worker]]
    """Machine name to (registry, worker)."""


def units_of(
    seen: Sightings, *, is_overdue: Callable[[Machine], bool], now: datetime, has_registry: bool
) -> tuple[Unit, ...]:
    """Return the units (machines with their workers) of a pool, sorted by name."""
    machines = {machine.name: machine for machine in seen.machines}
    silent = isinstance(seen.stack, Unknown)
    inputs = {w.name: w for w in seen.stack.workers} if isinstance(seen.stack, Stack) else {}
    ids = seen.stack.ids if isinstance(seen.stack, Stack) else {}
    units = []
    for name in sorted(machines.keys() | inputs.keys() | ids.keys()):
        machine = machines.get(name)
        registry, worker = seen.workers.get(name, (None, None))
        # A name may be reused, so compare the ids of the machine.
        strange = machine is not None and ids.get(name, machine.id) != machine.id
        overdue = machine is not None and is_overdue(machine)
        state = (
            _conflict_state(
                listed=machine is not None,
                wanted=not strange and (silent or name in inputs),
                recorded=not strange and (silent or name in ids),
            )
            or (UnitState.STOPPED if machine and machine.state is MachineState.STOPPED else None)
            or registered_state(worker, now, has_registry=has_registry, overdue=overdue)
        )
        units.append(
            Unit(
                name=name,
                pool=seen.pool,
                state=UnitState.FAILED
                if state is UnitState.ASSUMED and has_failed(machine)
                else state,
                machine=machine,
                worker=worker,
                inputs=inputs.get(name),
                registry=registry,
                returning=state is UnitState.DISCONNECTED
                and _is_returning(worker, now, overdue=overdue),
            )
        )
    return tuple(units)


def _conflict_state(*, listed: bool, wanted: bool, recorded: bool) -> UnitState | None:
    """Return the state of a machine if provider and stack disagree; None if they agree."""
    match listed, wanted, recorded:
        case True, True, True:
            return None
        case _, True, False:
            return UnitState.UNFINISHED
        case _, False, True:
            return UnitState.UNDELETED
        case False, True, True:
            return UnitState.MISSING
        case _:
            return UnitState.UNRECORDED


def registered_state(
    worker: Worker | None, now: datetime, *, has_registry: bool, overdue: bool
) -> UnitState:
    """Return the state, by its registration, of a machine that is in provider and stack."""
    if worker is None:
        if not has_registry:
            return UnitState.ASSUMED
        return UnitState.NEVER_REGISTERED if overdue else UnitState.STARTING
    match worker.state:
        case WorkerState.ENROLLED:
            expired = worker.token_expires is not None and worker.token_expires <= now
            return UnitState.NEVER_REGISTERED if overdue or expired else UnitState.STARTING
        case WorkerState.IDLE | WorkerState.DEAF | WorkerState.DISCONNECTED if worker.draining:
            return UnitState.DRAINING
        case WorkerState.DEAF if _is_young(worker, now):
            return UnitState.STARTING
        case _:
            return UnitState(worker.state.value)


def _is_young(worker: Worker, now: datetime) -> bool:
    """Return True if a worker connected so recently that it can still report its tags."""
    return worker.since is not None and (now - worker.since).total_seconds() <= DEAF_GRACE


def _is_returning(worker: Worker | None, now: datetime, *, overdue: bool) -> bool:
    """Return True if a disconnected worker had contact recently, or still boots."""
    if worker is None:
        return False
    if worker.last_seen is None and not overdue:
        return True
    heard = worker.last_seen or worker.since
    return heard is not None and (now - heard).total_seconds() <= RETURN_GRACE
