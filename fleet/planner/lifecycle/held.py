"""Keep what an operator holds: it gets no new work, and nothing makes it go.

Its worker is drained, so once the hold is over it goes like any other that was.
"""

from fleet.model.facts import Unknown, World
from fleet.model.orders import Freeze, Frozen, Hold, Order
from fleet.model.plan import Reason
from fleet.planner.inventory import takers_of
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import State
from fleet.schema.model import Fleet


def orders_of(fleet: Fleet, world: World) -> tuple[Order, ...]:
    """Return the orders in force, by the pools' names of today.

    Where they cannot be read, everything is frozen: nobody knows what was ordered.
    """
    if isinstance(world.orders, Unknown):
        because = f"what operators ordered is unknown: {world.orders.unknown}"
        return (Freeze(by="fleet", at=world.time, until=world.time, reason=because),)
    takers = takers_of(fleet, world)
    return tuple(
        order
        if isinstance(order, Hold) or order.pool not in takers
        else order.model_copy(update={"pool": takers[order.pool]})
        for order in world.orders
        if order.until > world.time
    )


def why_frozen(fleet: Fleet, world: World, pool: str, what: Frozen) -> str:
    """Return why nothing is created, or nothing goes, in a pool; empty where nobody froze it."""
    for order in orders_of(fleet, world):
        if isinstance(order, Freeze) and order.pool in (None, pool) and what in order.stops:
            return order.sentence
    return ""


def is_all_frozen(fleet: Fleet, world: World) -> bool:
    """Say whether nothing is created anywhere: then nothing moves that all pools share."""
    return bool(why_frozen(fleet, world, "", "creates"))


def keep_held(pool_plan: PoolPlan) -> None:
    """Drain what is held, and say who holds it."""
    for unit in pool_plan.inventory.units:
        if unit.held is None:
            continue
        because = f"held {unit.held.said}"
        pool_plan.due.pop(unit.name, None)
        pool_plan.kept[unit.name] = (Reason.HELD, because)
        is_drained = unit.worker is not None and unit.worker.draining
        if unit.state in (State.IDLE, State.BUSY, State.DISCONNECTED) and not is_drained:
            pool_plan.drain(unit, Reason.HELD, because)
