"""Remove records of lost objects: a machine from its stack, a stack from the store.

A stack entry without a machine occupies capacity of its pool indefinitely. A provider may fail to
list a machine, so only an operator can confirm that it was deleted. fleet then also disables its
worker, and the queue restarts the worker's build.
"""

from collections.abc import Callable
from typing import NamedTuple

from fleet.apply.observe import Sources, stack_ref
from fleet.apply.rebuild import unknown_stacks
from fleet.errors import FleetError, PlanRefused, refusal
from fleet.model.facts import Stack, WorkerState, World
from fleet.planner.inventory import PoolInventory, desks_of, take_inventory
from fleet.planner.units import Unit, UnitState
from fleet.ports import Engine
from fleet.schema.model import Fleet
from fleet.state.store import Store
from fleet.words.figures import many

_CONNECTED = (WorkerState.BUSY, WorkerState.IDLE, WorkerState.DEAF)


class RemovedRecord(NamedTuple):
    """The result of removing a machine's record from its stack."""

    pool: str
    """Pool whose stack had the machine."""
    queue: str | None = None
    """Queue that disabled the worker; None if no queue had a worker to disable."""


def forget_machine(fleet: Fleet, world: World, name: str, sources: Sources) -> RemovedRecord:
    """Forget a missing machine and disable its worker. Raises PlanRefused if it perhaps exists."""
    pool = _find_pool(world, name)
    inventory = take_inventory(fleet, world)[pool]
    unit = _find_missing(fleet, world, inventory, name)
    queue = _release(unit, sources)
    engine = sources.engine_of(inventory.provider)
    engine.forget(stack_ref(fleet, pool, inventory.provider, inventory.stack), name)
    return RemovedRecord(pool, queue)


def _release(unit: Unit, sources: Sources) -> str | None:
    """Disable the worker of a machine; return its queue, or None if no worker is enabled."""
    worker, registry = unit.worker, sources.registries.get(unit.registry or "")
    if worker is None or registry is None:
        return None
    if worker.state is WorkerState.DISABLED and worker.running is None:
        return None
    registry.release(worker.name)
    return unit.registry


def _find_pool(world: World, name: str) -> str:
    """Return the pool whose stack has this machine. Raises PlanRefused if no stack has it."""
    for pool, stack in sorted(world.known_stacks.items()):
        if name in stack.names:
            return pool
    raise refusal("; ".join((f"no readable stack holds {name}", *unknown_stacks(world))))


def _find_missing(fleet: Fleet, world: World, inventory: PoolInventory, name: str) -> Unit:
    """Return a missing machine. Raises PlanRefused if the machine possibly exists."""
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
    if unit.state is not UnitState.MISSING:
        raise refusal(
            f"an interrupted apply was creating or deleting {name}; `fleet apply` finishes that"
        )
    # A ticket queue records which machines it assigned, but does not observe them.
    seen = None if unit.registry in desks_of(fleet, world.queues) else unit.worker
    if seen is not None and seen.state in _CONNECTED and not seen.away:
        raise refusal(
            f"the worker on {name} {_describe_use(unit)} ({unit.registry}), so its provider's "
            "list may be wrong; retry when it is disconnected"
        )
    return unit


def _describe_use(unit: Unit) -> str:
    running = unit.worker.running if unit.worker else None
    return f"runs {running}" if running else "is connected"


def forget_stack(store: Store, engine_of: Callable[[str], Engine], name: str) -> None:
    """Remove the record of a lost stack. Raises PlanRefused if the stack has machines."""
    records = {record.name: record for record in store.stacks()}
    if name not in records:
        known = ", ".join(records) or "none"
        raise FleetError(f"the store has no stack {name}; known: {known}")
    ref = records[name].ref
    try:
        stack = engine_of(ref.provider).read(ref)
    except FleetError:
        stack = None  # no engine can read the stack, so it is lost
    if isinstance(stack, Stack) and stack.ids:
        held, them = many(len(stack.ids), "machine"), "it" if len(stack.ids) == 1 else "them"
        raise PlanRefused(
            f"refused: stack {name} is not lost, it holds {held}; to delete {them}, remove the "
            "pool from fleet.yaml or set `mode: drain`, then `fleet apply`"
        )
    store.forget_stack(name)
