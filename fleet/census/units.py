"""This module says what a unit is, a worker and its machine, by all that was told of the two."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleet.census.readiness import has_failed
from fleet.census.registrations import is_busy
from fleet.facts import Machine, MachineState, Stack, Unknown, Worker, WorkerInputs, WorkerState


class State(StrEnum):
    """What a unit is, both witnesses and its registry heard."""

    IDLE = "idle"
    BUSY = "busy"
    STARTING = "starting"
    ASSUMED = "assumed"  # there is no registry to ask: counted as capacity
    DRAINING = "draining"
    DEAF = "deaf"  # connected for long, but its queue gives it nothing: it knows no tags of it
    DISCONNECTED = "disconnected"
    FAILED = "failed"  # its provider says that it does not work, and there is no registry to ask
    DISABLED = "disabled"
    STOPPED = "stopped"  # both witnesses know its machine, which is off: it runs nothing
    NEVER_REGISTERED = "never-registered"
    UNRECORDED = "unrecorded"  # the provider lists it, the stack does not know it
    MISSING = "missing"  # the stack knows it, the provider does not list it
    UNFINISHED = "unfinished"  # an apply was killed before its machine was recorded
    UNDELETED = "undeleted"  # an apply was killed before its machine was deleted
    STATIC = "static"


DEAF_GRACE = 120
"""Seconds that a connected worker has to tell its queue what it can do; until then it starts."""
FAILED_SAID = "its provider says that it does not work: its livechecks or its `new` failed"
DEAF_SAID = "its worker is connected, but its queue knows no tags of it and gives it nothing"
STOPPED_SAID = "its machine is off: nothing runs on it"
CAPACITY = frozenset({State.IDLE, State.STARTING, State.ASSUMED, State.UNFINISHED})


@dataclass(frozen=True)
class Unit:
    """One worker and its machine, as far as anybody saw them."""

    name: str
    pool: str
    state: State
    machine: Machine | None = None
    worker: Worker | None = None
    inputs: WorkerInputs | None = None
    registry: str | None = None

    @property
    def since(self) -> datetime | None:
        """Return since when it is in this state."""
        if self.worker and self.worker.since:
            return self.worker.since
        return self.machine.created_at if self.machine else None

    @property
    def has_failed(self) -> bool:
        """Say whether its provider found again and again that its machine does not work."""
        return has_failed(self.machine)

    @property
    def failed_said(self) -> str:
        """Return what was found of a machine that does not work."""
        misses = self.machine.misses if self.machine else None
        if misses:
            return f"the port of its `ready` did not answer at the last {misses} looks"
        return FAILED_SAID

    @property
    def awaits_token(self) -> bool:
        """Say whether its worker can only come with a token that it has not used so far."""
        if self.worker is not None:
            return self.worker.state is WorkerState.ENROLLED
        return self.state in (State.STARTING, State.NEVER_REGISTERED, State.STOPPED)

    @property
    def holds_in_vain(self) -> bool:
        """Say whether it was given something that it can surely not run: it has to be released."""
        if self.worker is None or not is_busy(self.worker):
            return False
        is_off = self.machine is not None and self.machine.state is MachineState.STOPPED
        return is_off or self.worker.stranded

    @property
    def may_run(self) -> bool:
        """Say whether it may run something: then it is never deleted."""
        return self.worker is not None and is_busy(self.worker) and not self.holds_in_vain


@dataclass(frozen=True)
class Sightings:
    """What each witness says of one pool."""

    pool: str
    machines: Sequence[Machine]
    stack: Stack | Unknown | None
    workers: Mapping[str, tuple[str, Worker]]
    """Machine name to where its worker is registered, and the worker."""


def units_of(
    seen: Sightings, *, is_overdue: Callable[[Machine], bool], now: datetime, has_registry: bool
) -> tuple[Unit, ...]:
    """Return the units of a pool, sorted by name."""
    machines = {machine.name: machine for machine in seen.machines}
    silent = isinstance(seen.stack, Unknown)
    inputs = {w.name: w for w in seen.stack.workers} if isinstance(seen.stack, Stack) else {}
    ids = seen.stack.ids if isinstance(seen.stack, Stack) else {}
    units = []
    for name in sorted(machines.keys() | inputs.keys() | ids.keys()):
        machine = machines.get(name)
        registry, worker = seen.workers.get(name, (None, None))
        # Another machine may carry the name of one that is gone: a name proves nothing.
        strange = machine is not None and ids.get(name, machine.id) != machine.id
        state = (
            _witnessed(
                listed=machine is not None,
                wanted=not strange and (silent or name in inputs),
                recorded=not strange and (silent or name in ids),
            )
            or (State.STOPPED if machine and machine.state is MachineState.STOPPED else None)
            or registered_state(
                worker,
                now,
                has_registry=has_registry,
                overdue=machine is not None and is_overdue(machine),
            )
        )
        units.append(
            Unit(
                name=name,
                pool=seen.pool,
                state=State.FAILED if state is State.ASSUMED and has_failed(machine) else state,
                machine=machine,
                worker=worker,
                inputs=inputs.get(name),
                registry=registry,
            )
        )
    return tuple(units)


def _witnessed(*, listed: bool, wanted: bool, recorded: bool) -> State | None:
    """Return what the two witnesses of a machine make of it; None when they agree."""
    match listed, wanted, recorded:
        case True, True, True:
            return None
        case _, True, False:
            return State.UNFINISHED
        case _, False, True:
            return State.UNDELETED
        case False, True, True:
            return State.MISSING
        case _:
            return State.UNRECORDED


def registered_state(
    worker: Worker | None, now: datetime, *, has_registry: bool, overdue: bool
) -> State:
    """Return what the registry says of a machine that both witnesses saw."""
    if worker is None:
        if not has_registry:
            return State.ASSUMED
        return State.NEVER_REGISTERED if overdue else State.STARTING
    match worker.state:
        case WorkerState.ENROLLED:
            expired = worker.token_expires is not None and worker.token_expires <= now
            return State.NEVER_REGISTERED if overdue or expired else State.STARTING
        case WorkerState.IDLE | WorkerState.DEAF | WorkerState.DISCONNECTED if worker.draining:
            return State.DRAINING
        case WorkerState.DEAF if _is_young(worker, now):
            return State.STARTING
        case _:
            return State(worker.state.value)


def _is_young(worker: Worker, now: datetime) -> bool:
    """Say whether a worker connected so lately that it may yet say what it can do."""
    return worker.since is not None and (now - worker.since).total_seconds() <= DEAF_GRACE
