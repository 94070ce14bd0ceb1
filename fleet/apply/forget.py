"""Remove from the records what is gone: a machine from its stack, a stack from the store.

A stack entry without a machine keeps a slot of its pool for ever. Only a person can say that the
machine is gone, since a provider may fail to list one. Then its worker is disabled too, and what
it ran goes back to the queue.
"""

from collections.abc import Callable
from typing import NamedTuple

from fleet.apply.observe import Sources, stack_ref
from fleet.apply.rebuild import unknown_stacks
from fleet.errors import FleetError, PlanRefused, refusal
from fleet.model.facts import Stack, WorkerState, World
from fleet.planner.inventory import PoolInventory, desks_of, take_inventory
from fleet.planner.units import State, Unit
from fleet.ports import Engine, Store
from fleet.report.words import many
from fleet.schema.model import Fleet

_CONNECTED = (WorkerState.BUSY, WorkerState.IDLE, WorkerState.DEAF)


class Forgotten(NamedTuple):
    """What was done."""

    pool: str
    """Whose stack held the machine."""
    queue: str | None = None
    """Where its worker was disabled; None: no queue had it."""


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
    for pool, stack in sorted(world.known_stacks.items()):
        if name in stack.names:
            return pool
    raise refusal("; ".join((f"no readable stack holds {name}", *unknown_stacks(world))))


def _gone(fleet: Fleet, world: World, inventory: PoolInventory, name: str) -> Unit:
    """Return a machine that is gone; raises PlanRefused where it may be there still."""
    for provider, machine in world.machines():
        if machine.name == name:
            raise refusal(
                f"provider {provider} still lists {name} (id {machine.id}); to delete it: `fleet "
                f"machine delete {name} --apply`"
            )
    if inventory.blind:
        raise refusal(
            f"cannot tell whether {name} is gone: {'; '.join(inventory.blind)}; fix that first"
        )
    unit = next(unit for unit in inventory.known if unit.name == name)
    if unit.state is not State.MISSING:
        raise refusal(
            f"an interrupted apply was creating or deleting {name}; `fleet apply` finishes that"
        )
    # A queue of tickets knows what it gave out, and sees no machine.
    seen = None if unit.registry in desks_of(fleet, world.queues) else unit.worker
    if seen is not None and seen.state in _CONNECTED and not seen.away:
        raise refusal(
            f"the worker on {name} {_does(unit)} ({unit.registry}), so its provider's list may "
            "be wrong; retry when it is disconnected"
        )
    return unit


def _does(unit: Unit) -> str:
    running = unit.worker.running if unit.worker else None
    return f"runs {running}" if running else "is connected"


def forget_stack(store: Store, engine_of: Callable[[str], Engine], name: str) -> None:
    """Forget a stack that is lost; one that still holds machines is refused."""
    records = {record.name: record for record in store.stacks()}
    if name not in records:
        known = ", ".join(records) or "none"
        raise FleetError(f"the store has no stack {name}; known: {known}")
    ref = records[name].ref
    try:
        stack = engine_of(ref.provider).read(ref)
    except FleetError:
        stack = None  # nothing can read it any more, so it is lost
    if isinstance(stack, Stack) and stack.ids:
        held, them = many(len(stack.ids), "machine"), "it" if len(stack.ids) == 1 else "them"
        raise PlanRefused(
            f"refused: stack {name} is not lost, it holds {held}; to delete {them}, remove the "
            "pool from fleet.yaml or set `mode: drain`, then `fleet apply`"
        )
    store.forget_stack(name)
