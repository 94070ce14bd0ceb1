"""This module joins the witnesses: what each pool really has, and what is not known of it.

A machine has two witnesses, the provider's listing and the stack's state; what only one of
them saw is kept, counted to the pool's max, and never deleted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleet.facts import (
    Listing,
    Machine,
    Stack,
    Unknown,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.registrations import workers_by_machine
from fleet.schema.model import Boot, Fleet, Pool
from fleet.schema.units import write_duration
from fleet.tagrules import serves_queue, static_names


class State(StrEnum):
    """What a unit is, both witnesses and its registry heard."""

    IDLE = "idle"
    BUSY = "busy"
    STARTING = "starting"
    ASSUMED = "assumed"  # there is no registry to ask: counted as capacity
    DRAINING = "draining"
    DISCONNECTED = "disconnected"
    DISABLED = "disabled"
    NEVER_REGISTERED = "never-registered"
    UNRECORDED = "unrecorded"  # the provider lists it, the stack does not know it
    MISSING = "missing"  # the stack knows it, the provider does not list it
    UNFINISHED = "unfinished"  # an apply was killed before its machine was recorded
    UNDELETED = "undeleted"  # an apply was killed before its machine was deleted
    STATIC = "static"


_CLOCK_SKEW = 60
"""Seconds that clocks may differ; demand from further ahead is not fresh but of unknown age."""

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


@dataclass(frozen=True)
class PoolCensus:
    """What one pool has; `frozen` forbids deletions, `blind` forbids creations too."""

    pool: str
    provider: str
    units: tuple[Unit, ...] = ()
    frozen: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    stack: Stack | None = None
    listed: bool = True
    """False where its provider's machines could not be read: that is not the same as none."""

    def having(self, *states: State) -> tuple[Unit, ...]:
        """Return the units in one of these states, sorted by name."""
        return tuple(unit for unit in self.units if unit.state in states)


def take_census(fleet: Fleet, world: World) -> dict[str, PoolCensus]:
    """Return every pool that is configured or still has machines, by name, sorted."""
    names = {name for name, pool in fleet.pools.items() if isinstance(pool, Pool)}
    return {
        name: _census_of(fleet, world, name) for name in sorted(names | _vanished(fleet, world))
    }


def _vanished(fleet: Fleet, world: World) -> set[str]:
    """Return pools that fleet.yaml no longer has but the world does."""
    stacks = {} if isinstance(world.stacks, Unknown) else world.stacks
    with_stack = {
        name
        for name, stack in stacks.items()
        if isinstance(stack, Unknown) or stack.workers or stack.ids
    }
    listed = {
        machine.pool
        for listing in world.providers.values()
        if isinstance(listing, Listing)
        for machine in listing.machines
    }
    return {name for name in with_stack | listed if not isinstance(fleet.pools.get(name), Pool)}


def _census_of(fleet: Fleet, world: World, name: str) -> PoolCensus:
    pool = fleet.pools.get(name)
    stack = _stack_of(world, name)
    provider = pool.provider if isinstance(pool, Pool) else _provider_of(world, name, stack)
    listing: Listing | Unknown = world.providers.get(
        provider, Unknown(unknown="it was not read in this run")
    )
    blind = []
    if isinstance(listing, Unknown):
        blind.append(f"machines of provider {provider} are unknown: {listing.unknown}")
    if isinstance(world.stacks, Unknown):
        blind.append(f"stacks are unknown: {world.stacks.unknown}")
    elif isinstance(stack, Unknown):
        blind.append(f"the stack of pool {name} is unknown: {stack.unknown}")
    if isinstance(listing, Unknown):
        return PoolCensus(name, provider, blind=tuple(blind), frozen=tuple(blind), listed=False)
    blind += _strays(world, name, provider, listing)
    queues = sorted(q for q in world.queues if not isinstance(pool, Pool) or serves_queue(pool, q))
    registries, unreadable = _registries(world, queues, provider, listing)
    return PoolCensus(
        pool=name,
        provider=provider,
        units=_units(
            _Sightings(name, listing, stack, workers_by_machine(registries, static_names(fleet))),
            deadline=(pool.boot if isinstance(pool, Pool) else Boot()).deadline,
            now=world.time,
            has_registry=bool(registries) and not unreadable,
        ),
        blind=tuple(blind),
        frozen=(*blind, *unreadable, *_stale_demand(fleet, world, queues)),
        stack=stack if isinstance(stack, Stack) else None,
    )


def _stack_of(world: World, name: str) -> Stack | Unknown | None:
    return world.stacks if isinstance(world.stacks, Unknown) else world.stacks.get(name)


def _provider_of(world: World, name: str, stack: Stack | Unknown | None) -> str:
    if isinstance(stack, Stack):
        return stack.provider
    for provider, listing in sorted(world.providers.items()):
        if isinstance(listing, Listing) and any(m.pool == name for m in listing.machines):
            return provider
    return ""


def _strays(world: World, name: str, provider: str, own: Listing) -> Iterator[str]:
    """Yield where else machines of a pool are listed: what it has is not known then."""
    known = {(machine.name, machine.id) for machine in own.machines}
    for other, listing in sorted(world.providers.items()):
        if other == provider or isinstance(listing, Unknown):
            continue
        # Two providers of one account list the same machines.
        strays = [m for m in listing.machines if m.pool == name and (m.name, m.id) not in known]
        if strays:
            names = ", ".join(sorted(machine.name for machine in strays)[:3])
            yield (
                f"provider {other} lists machines of pool {name}, whose provider is "
                f"{provider or 'not known'} ({len(strays)}, as {names}); "
                "give the pool its old provider back, or a new name"
            )


def _registries(
    world: World, queues: list[str], provider: str, listing: Listing
) -> tuple[dict[str, tuple[Worker, ...]], tuple[str, ...]]:
    """Return the workers by registry, and what could not be read."""
    if listing.workers is not None:
        return {provider: listing.workers}, ()
    registries = {}
    unreadable = []
    for queue in queues:
        workers = world.queues[queue].workers
        if isinstance(workers, Unknown):
            unreadable.append(f"workers of queue {queue} are unknown: {workers.unknown}")
        elif workers is not None:
            registries[queue] = workers
    return registries, tuple(unreadable)


def _stale_demand(fleet: Fleet, world: World, queues: list[str]) -> tuple[str, ...]:
    reasons = []
    for queue in queues:
        trouble = demand_trouble(fleet, world, queue)
        if trouble:
            reasons.append(f"demand of queue {queue} is unknown: {trouble}")
    return tuple(reasons)


def demand_trouble(fleet: Fleet, world: World, queue: str) -> str:
    """Return why a queue's demand may not be relied on; empty when it may."""
    demand = world.queues[queue].demand
    if isinstance(demand, Unknown):
        return demand.unknown
    age = (world.time - demand.read_at).total_seconds()
    if age < -_CLOCK_SKEW:
        return (
            f"it claims to be read {write_duration(int(-age))} later than everything else; "
            "compare the clocks of the computers that recorded it"
        )
    if age > fleet.guards.demand_max_age:
        return (
            f"it was read {write_duration(int(age))} before, more than "
            f"guards.demand_max_age ({write_duration(fleet.guards.demand_max_age)})"
        )
    return ""


@dataclass(frozen=True)
class _Sightings:
    """What each witness says of one pool."""

    pool: str
    listing: Listing
    stack: Stack | Unknown | None
    workers: Mapping[str, tuple[str, Worker]]
    """Machine name to where its worker is registered, and the worker."""


def _units(
    seen: _Sightings, *, deadline: int, now: datetime, has_registry: bool
) -> tuple[Unit, ...]:
    machines = {m.name: m for m in seen.listing.machines if m.pool == seen.pool}
    silent = isinstance(seen.stack, Unknown)
    inputs = {w.name: w for w in seen.stack.workers} if isinstance(seen.stack, Stack) else {}
    ids = seen.stack.ids if isinstance(seen.stack, Stack) else {}
    units = []
    for name in sorted(machines.keys() | inputs.keys() | ids.keys()):
        machine = machines.get(name)
        registry, worker = seen.workers.get(name, (None, None))
        # Another machine may carry the name of one that is gone: a name proves nothing.
        strange = machine is not None and ids.get(name, machine.id) != machine.id
        state = _witnessed(
            listed=machine is not None,
            wanted=not strange and (silent or name in inputs),
            recorded=not strange and (silent or name in ids),
        ) or _registered(
            worker,
            has_registry=has_registry,
            overdue=machine is not None and (now - machine.created_at).total_seconds() > deadline,
        )
        units.append(
            Unit(
                name=name,
                pool=seen.pool,
                state=state,
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


def _registered(worker: Worker | None, *, has_registry: bool, overdue: bool) -> State:
    """Return what the registry says of a machine that both witnesses saw."""
    if worker is None:
        if not has_registry:
            return State.ASSUMED
        return State.NEVER_REGISTERED if overdue else State.STARTING
    if worker.state == WorkerState.BUSY:
        return State.BUSY
    if worker.draining and worker.state == WorkerState.IDLE:
        return State.DRAINING
    return State(worker.state.value)
