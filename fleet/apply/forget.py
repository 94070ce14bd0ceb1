"""This module takes a machine that is gone out of its stack's record, when both witnesses agree.

A stack that holds what its provider lost keeps a slot of its pool for ever; that it is gone
is for a person to say, since a provider may fail to list a machine just once. With that word its
worker is switched off too, and what it ran goes back to the queue.
"""

from typing import NamedTuple

from fleet.apply.observe import Sources, stack_ref
from fleet.errors import PlanRefused
from fleet.model.facts import Listing, Stack, Unknown, WorkerState, World
from fleet.planner.desk import desks_of
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.planner.units import State, Unit
from fleet.schema.model import Fleet

_CONNECTED = (WorkerState.BUSY, WorkerState.IDLE, WorkerState.DEAF)


class Forgotten(NamedTuple):
    """What was done."""

    pool: str
    """Whose stack held the machine."""
    queue: str | None = None
    """Where its worker was switched off; None: no queue reckoned with one."""


def forget_machine(fleet: Fleet, world: World, name: str, sources: Sources) -> Forgotten:
    """Forget a machine and its worker; raises PlanRefused where it may be there still."""
    pool = _holder(world, name)
    inventory = take_inventory(fleet, world)[pool]
    unit = _gone(fleet, world, inventory, name)
    queue = _release(unit, sources)
    engine = sources.engine_of(inventory.provider)
    engine.forget(stack_ref(fleet, pool, inventory.provider, inventory.stack), name)
    return Forgotten(pool, queue)


def _release(unit: Unit, sources: Sources) -> str | None:
    """Switch off the worker of a machine, and say at which queue; None where there is nothing."""
    worker, registry = unit.worker, sources.registries.get(unit.registry or "")
    if worker is None or registry is None:
        return None
    if worker.state is WorkerState.DISABLED and worker.running is None:
        return None
    registry.release(worker.name)
    return unit.registry


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


def _gone(fleet: Fleet, world: World, inventory: PoolInventory, name: str) -> Unit:
    """Return a machine that is gone; raises PlanRefused where it may be there still."""
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
            f"of it: `fleet machine delete {name} --apply`"
        )
    if inventory.blind:
        raise _refusal(
            f"whether {name} is gone is not known: {'; '.join(inventory.blind)}; mend that first"
        )
    unit = next(unit for unit in inventory.units if unit.name == name)
    if unit.state is not State.MISSING:
        raise _refusal(
            f"an apply that was killed was making or deleting {name}; `fleet apply` finishes that"
        )
    # A queue of tickets knows what it gave out, and sees no machine.
    seen = None if unit.registry in desks_of(fleet, world.queues) else unit.worker
    if seen is not None and seen.state in _CONNECTED and not seen.away:
        raise _refusal(
            f"{unit.registry} says that the worker on {name} {_does(unit)}, so its provider's "
            "listing may be wrong; look again when it is disconnected"
        )
    return unit


def _does(unit: Unit) -> str:
    running = unit.worker.running if unit.worker else None
    return f"runs {running}" if running else "is connected"


def _refusal(because: str) -> PlanRefused:
    return PlanRefused(f"refused, nothing was changed: {because}")
