"""This module takes a machine that is gone out of its stack's record, when both witnesses agree.

A stack that holds what its provider lost keeps a slot of its pool for ever; that it is gone
is for a person to say, since a provider may fail to list a machine just once.
"""

from fleet.census import PoolCensus, State, Unit, take_census
from fleet.desk import desks_of
from fleet.errors import PlanRefused
from fleet.facts import Listing, Stack, Unknown, WorkerState, World
from fleet.operate.observe import Sources, stack_ref
from fleet.schema.model import Fleet

_CONNECTED = (WorkerState.BUSY, WorkerState.IDLE, WorkerState.DEAF)


def forget_machine(fleet: Fleet, world: World, name: str, sources: Sources) -> str:
    """Forget a machine and return its pool's name; PlanRefused where it may be there still."""
    pool = _holder(world, name)
    census = take_census(fleet, world)[pool]
    _refuse_unless_gone(fleet, world, census, name)
    engine = sources.engine_of(census.provider)
    engine.forget(stack_ref(fleet, pool, census.provider, census.stack), name)
    return pool


def _holder(world: World, name: str) -> str:
    """Return the pool whose stack holds a machine."""
    stacks = {} if isinstance(world.stacks, Unknown) else world.stacks
    for pool, stack in sorted(stacks.items()):
        if isinstance(stack, Stack) and name in {*stack.ids, *(w.name for w in stack.workers)}:
            return pool
    silent = [
        f"the stack of pool {pool} is unknown: {stack.unknown}"
        for pool, stack in sorted(stacks.items())
        if isinstance(stack, Unknown)
    ]
    if isinstance(world.stacks, Unknown):
        silent = [f"stacks are unknown: {world.stacks.unknown}"]
    raise _refusal("; ".join((f"no stack that could be read holds {name}", *silent)))


def _refuse_unless_gone(fleet: Fleet, world: World, census: PoolCensus, name: str) -> None:
    listed = [
        (provider, machine.id)
        for provider, listing in sorted(world.providers.items())
        if isinstance(listing, Listing)
        for machine in listing.machines
        if machine.name == name
    ]
    if listed:
        provider, machine_id = listed[0]
        raise _refusal(
            f"provider {provider} lists {name} (id {machine_id}), so it is not gone; to be rid "
            f"of it give pool {census.pool} `mode: drain`, or delete it at the provider first"
        )
    if census.blind:
        raise _refusal(
            f"whether {name} is gone is not known: {'; '.join(census.blind)}; mend that first"
        )
    unit = next(unit for unit in census.units if unit.name == name)
    if unit.state is not State.MISSING:
        raise _refusal(
            f"an apply that was killed was making or deleting {name}; `fleet apply` finishes that"
        )
    # A queue of tickets knows what it gave out, and sees no machine.
    seen = None if unit.registry in desks_of(fleet, world.queues) else unit.worker
    if seen is not None and seen.state in _CONNECTED:
        raise _refusal(
            f"{unit.registry} says that the worker on {name} {_does(unit)}, so its provider's "
            "listing may be wrong; look again when it is disconnected"
        )


def _does(unit: Unit) -> str:
    running = unit.worker.running if unit.worker else None
    return f"runs {running}" if running else "is connected"


def _refusal(because: str) -> PlanRefused:
    return PlanRefused(f"refused, nothing was changed: {because}")
