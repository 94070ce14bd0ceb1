"""Join machines with their workers (units), as provider, stack and registries observe them.

If a worker has several registrations, the most active one counts, so that an idle, draining or
dead registration never hides an active one. A machine is deleted only after every queue that knows
its worker has stopped assigning work to it.

Without registration, a machine is ready if its provider reports it as running with an address and,
with `ready`, its port has answered. Before the first check of the port, a machine is neither ready
nor failed.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter

from fleet.model.facts import (
    Departure,
    Machine,
    MachineState,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.orders import Hold
from fleet.model.pool_limits import boot_of
from fleet.model.values import Word
from fleet.schema.model import Fleet, Pool, is_at_cloud
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


class Registrations:
    """The workers of some registries, by the name of their machine."""

    def __init__(
        self, registries: Registries, unreadable: tuple[str, ...], static: frozenset[str]
    ) -> None:
        """Index the workers. `static` has the names of workers that fleet does not create."""
        self.names = frozenset(registries)
        self.unreadable = unreadable
        """An error message per unreadable registry."""
        self.draining: defaultdict[str, set[str]] = defaultdict(set)
        """Machine to the registries that drain it (assign no new work)."""
        self.working: defaultdict[str, set[str]] = defaultdict(set)
        """Machine to the registries that assign work to it."""
        self.workers: dict[str, tuple[str, Worker]] = {}
        """Machine to (registry, most active worker), without static workers."""
        self.static = set(static)
        """Machines that fleet never changes: their worker is static."""
        dynamic = []
        for registry, workers in registries.items():
            for worker in workers:
                machine = worker.machine or worker.name
                if worker.draining:
                    self.draining[machine].add(registry)
                elif worker.state is not WorkerState.DISABLED:
                    self.working[machine].add(registry)
                if worker.static or worker.name in static:
                    self.static.add(machine)
                else:
                    is_asleep = worker.draining and worker.state is WorkerState.IDLE
                    activity = len(_INACTIVE_STATES)
                    if worker.stranded or not is_busy(worker):
                        activity = _INACTIVE_STATES.index((worker.state, is_asleep))
                    order = -activity, registry, worker.name, str(worker.since)
                    dynamic.append((order, machine, (registry, worker)))
        for _, machine, registered in sorted(dynamic, key=itemgetter(0)):
            self.workers.setdefault(machine, registered)

    @property
    def are_complete(self) -> bool:
        """Return True if there is a registry and all registries are readable."""
        return bool(self.names) and not self.unreadable


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


def is_overdue(pool: Pool | None, machine: Machine, now: datetime) -> bool:
    """Return True if a machine missed the deadline to become ready.

    If the port was first checked late, the deadline counts from the first check.
    """
    boot = boot_of(pool)
    began = machine.created_at or machine.looked_since
    if began is None:
        return False
    ends = boot.fails_at(began)
    if (
        pool
        and pool.ready
        and machine.state is MachineState.RUNNING
        and machine.address is not None
    ):
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


def why_late(pool: Pool | None, *, revoked: bool = False) -> str:
    """Return a sentence on the missed deadline; with `revoked`, also on the revoked token."""
    port = pool.ready.port if pool and pool.ready else None
    return lives.explain_late(port, boot_of(pool).deadline, revoked)


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
    STATIC = "static"  # its worker is static: it is no capacity, and no run changes it


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


def conflict_of(*, listed: bool, wanted: bool, recorded: bool) -> UnitState | None:
    """Return the state of a machine if provider and stack disagree; None if they agree."""
    if wanted and recorded:
        return None if listed else UnitState.MISSING
    if wanted:
        return UnitState.UNFINISHED
    return UnitState.UNDELETED if recorded else UnitState.UNRECORDED


def observed_state(
    machine: Machine, worker: Worker | None, now: datetime, *, has_registry: bool, overdue: bool
) -> UnitState:
    """Return the state of a machine that provider and stack report."""
    if machine.state is MachineState.STOPPED:
        return UnitState.STOPPED
    state = registered_state(worker, now, has_registry=has_registry, overdue=overdue)
    return UnitState.FAILED if state is UnitState.ASSUMED and has_failed(machine) else state


def may_return(worker: Worker | None, now: datetime, *, overdue: bool) -> bool:
    """Return True if a disconnected worker had contact recently, or possibly still boots."""
    if worker is None:
        return False
    is_booting = worker.last_seen is None and not overdue
    return is_booting or _is_within(RETURN_GRACE, worker.last_seen or worker.since, now)


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
        case WorkerState.DEAF if _is_within(DEAF_GRACE, worker.since, now):
            # It connected so recently that it can still report its tags.
            return UnitState.STARTING
        case _:
            return UnitState(worker.state.value)


def _is_within(seconds: int, since: datetime | None, now: datetime) -> bool:
    return since is not None and (now - since).total_seconds() <= seconds
