"""This module joins the witnesses: what each pool really has, and what is not known of it.

A machine has two witnesses, the provider's listing and the stack's state; what only one of
them saw is kept, counted to the pool's max, and never deleted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleet.desk import desks_of
from fleet.estimates import estimate_of
from fleet.facts import (
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
from fleet.freshness import stale_demand
from fleet.registrations import (
    enrols_at,
    is_busy,
    queue_registries,
    registries_of,
    revokes_at,
)
from fleet.schema.model import Boot, Fleet, Pool
from fleet.sightings import Seen
from fleet.tagrules import serves_queue


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
FAILED_SAID = "its provider has looked at it several times, and each time it did not work"
DEAF_SAID = "its worker is connected, but its queue knows no tags of it and gives it nothing"
NEVER_REGISTERED_SAID = "its worker did not register within boot.deadline"
STOPPED_SAID = "its machine is off: nothing runs on it"

_NOT_READ = Unknown(unknown="it was not read in this run")
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
        return _has_failed(self.machine)

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
class PoolCensus:
    """What one pool has; `frozen` forbids deletions, `blind` forbids creations too."""

    pool: str
    provider: str
    units: tuple[Unit, ...] = ()
    unseen: tuple[Unit, ...] = ()
    """What its stack holds, and registries tell of, where its provider could not be read."""
    uncounted: int = 0
    """How many machines it may hold where neither its provider nor its stack could be read."""
    frozen: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()
    """Queues of which not all is known that waits: nothing goes for want of work."""
    blind: tuple[str, ...] = ()
    stack: Stack | None = None
    listed: bool = True
    """False where its provider's machines could not be read: that is not the same as none."""
    tokens: str | None = None
    """Where the token of a worker that never registered can be revoked; None: nowhere."""
    has_registry: bool = True
    """False where nobody at all can be asked what its workers do."""
    enrols: str | None = None
    """The queue that a new worker needs a token of; None: it registers at its provider."""

    def having(self, *states: State) -> tuple[Unit, ...]:
        """Return the units in one of these states, sorted by name."""
        return tuple(unit for unit in self.units if unit.state in states)


def take_census(fleet: Fleet, world: World) -> dict[str, PoolCensus]:
    """Return every pool that is configured or still has machines, by name, sorted."""
    names = {name for name, pool in fleet.pools.items() if isinstance(pool, Pool)}
    seen = Seen(fleet, world)
    return {
        name: _census_of(fleet, world, name, seen)
        for name in sorted(names | _vanished(fleet, seen))
    }


def _vanished(fleet: Fleet, seen: Seen) -> set[str]:
    """Return pools that fleet.yaml no longer has but the world does."""
    stacks = {} if isinstance(seen.owners.stacks, Unknown) else seen.owners.stacks
    with_stack = {
        name
        for name, stack in stacks.items()
        if isinstance(stack, Unknown) or stack.workers or stack.ids
    }
    known = with_stack | seen.pools()
    return {name for name in known if not isinstance(fleet.pools.get(name), Pool)}


def _census_of(fleet: Fleet, world: World, name: str, seen: Seen) -> PoolCensus:
    pool = fleet.pools.get(name)
    stack = _stack_of(seen, name)
    provider = pool.provider if isinstance(pool, Pool) else _provider_of(name, stack, seen)
    listing: Listing | Unknown = world.providers.get(provider, _NOT_READ)
    blind = list(_hidden(world, name, provider, seen))
    queues = sorted(q for q in world.queues if not isinstance(pool, Pool) or serves_queue(pool, q))
    if isinstance(listing, Unknown):
        return PoolCensus(
            pool=name,
            provider=provider,
            unseen=_unseen((name, world.time), stack, seen, queue_registries(world, queues)),
            uncounted=pool.workers.max
            if isinstance(pool, Pool) and isinstance(stack, Unknown)
            else 0,
            blind=tuple(blind),
            frozen=tuple(blind),
            listed=False,
        )
    blind += _strays(seen, name, provider)
    desks = desks_of(fleet, queues)
    registries, unreadable = _registries(world, queues, (provider, listing), desks, seen)
    return PoolCensus(
        pool=name,
        provider=provider,
        units=_units(
            _Sightings(name, seen.machines(provider, name), stack, seen.registered(registries)),
            deadline=(pool.boot if isinstance(pool, Pool) else Boot()).deadline,
            now=world.time,
            has_registry=bool(registries) and not unreadable,
        ),
        blind=tuple(blind),
        frozen=(*blind, *unreadable, *stale_demand(fleet, world, queues)),
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


def _registries(
    world: World,
    queues: list[str],
    listed: tuple[str, Listing],
    desks: tuple[str, ...],
    seen: Seen,
) -> tuple[Mapping[str, tuple[Worker, ...]], tuple[str, ...]]:
    """Return the workers by registry, and what could not be read; desks know all machines."""
    if not desks:
        return registries_of(world, queues, *listed)
    attended = seen.attended(desks, *listed)
    if isinstance(attended, Unknown):
        return {}, (attended.unknown,)
    others, unreadable = queue_registries(world, [q for q in queues if q not in desks])
    return {**attended, **others}, unreadable


def _hidden(world: World, name: str, provider: str, seen: Seen) -> Iterator[str]:
    """Yield what of a pool could not be read, or is contested."""
    listing = world.providers.get(provider, _NOT_READ)
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
            f"pool {heir} says `previously: {name}`, but has a stack of its own; "
            f"remove that key, and pool {name} drains"
        )


def _stack_of(seen: Seen, name: str) -> Stack | Unknown | None:
    stacks = seen.owners.stacks
    return stacks if isinstance(stacks, Unknown) else stacks.get(name)


def _provider_of(name: str, stack: Stack | Unknown | None, seen: Seen) -> str:
    if isinstance(stack, Stack):
        return stack.provider
    return next(iter(seen.listers(name)), "")


def _strays(seen: Seen, name: str, provider: str) -> Iterator[str]:
    """Yield where else machines of a pool are listed: what it has is not known then."""
    for other in seen.listers(name):
        if other == provider:
            continue
        # Two providers of one account list the same machines.
        strays = [m for m in seen.machines(other, name) if not seen.lists(provider, m)]
        if strays:
            names = ", ".join(sorted(machine.name for machine in strays)[:3])
            yield (
                f"provider {other} lists machines of pool {name}, whose provider is "
                f"{provider or 'not known'} ({len(strays)}, as {names}); "
                "give the pool its old provider back, or a new name"
            )


def _unseen(
    pool_and_time: tuple[str, datetime],
    stack: Stack | Unknown | None,
    seen: Seen,
    registries: tuple[dict[str, tuple[Worker, ...]], tuple[str, ...]],
) -> tuple[Unit, ...]:
    """Return the machines that a pool's stack holds, as far as registries tell of them."""
    pool, now = pool_and_time
    readable, unreadable = registries
    known = seen.registered(readable)
    units = []
    for name in sorted(stack.ids) if isinstance(stack, Stack) else ():
        registry, worker = known.get(name, (None, None))
        has_registry = bool(readable) and not unreadable
        state = _registered(worker, now, has_registry=has_registry, overdue=False)
        units.append(Unit(name, pool, state, worker=worker, registry=registry))
    return tuple(units)


@dataclass(frozen=True)
class _Sightings:
    """What each witness says of one pool."""

    pool: str
    machines: Sequence[Machine]
    stack: Stack | Unknown | None
    workers: Mapping[str, tuple[str, Worker]]
    """Machine name to where its worker is registered, and the worker."""


def _units(
    seen: _Sightings, *, deadline: int, now: datetime, has_registry: bool
) -> tuple[Unit, ...]:
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
            or _registered(
                worker,
                now,
                has_registry=has_registry,
                overdue=machine is not None
                and (now - machine.created_at).total_seconds() > deadline,
            )
        )
        units.append(
            Unit(
                name=name,
                pool=seen.pool,
                state=State.FAILED if state is State.ASSUMED and _has_failed(machine) else state,
                machine=machine,
                worker=worker,
                inputs=inputs.get(name),
                registry=registry,
            )
        )
    return tuple(units)


def _has_failed(machine: Machine | None) -> bool:
    return machine is not None and machine.state is MachineState.FAILED


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


def _registered(
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
