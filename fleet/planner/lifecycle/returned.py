"""Delete machines that tickets returned, if no ticket of their sandbox came in time.

A machine with a paid hour is kept for such a ticket until the last run that can delete it before
the hour ends. Tickets that only wait for capacity of the pool override this: one machine per such
ticket is deleted, shortest paid time first. A ticket of the sandbox that cannot be served (blocked
or over a limit) keeps no machine.
"""

from fleet.model.facts import Demand, World
from fleet.model.plan import Delete, Reason
from fleet.planner.lifecycle.deletion_order import paid_for, scale_down_order
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import State, Unit
from fleet.schema.model import Reuse, TicketQueue
from fleet.schema.units import write_duration


def delete_returned(world: World, pool_plan: PoolPlan, *, is_staffed: bool = False) -> None:
    """Delete machines kept for their sandbox beyond `reuse.opportunity`, unless paid for.

    Before requests are assigned (`is_staffed`), every waiting request may still be served.
    """
    reuse = pool_plan.pool.reuse if pool_plan.pool else None
    if reuse is None or pool_plan.unwanted:
        return
    # Deletions of this plan free capacity too.
    short = pool_plan.blocked_by_max - sum(isinstance(a, Delete) for a in pool_plan.actions)
    idle = pool_plan.inventory.having(State.IDLE)
    for unit in scale_down_order(world, pool_plan, idle):
        because = _explain_reuse_over(world, pool_plan, unit, reuse)
        if not because or unit.name in pool_plan.leaving:
            continue
        paid = _explain_paid(world, pool_plan, unit)
        if not is_staffed:
            if paid or any(_match_sandboxes(world, pool_plan, unit)):
                continue
        elif unit.name in pool_plan.used or unit.name in pool_plan.kept:
            continue
        elif paid and short <= 0:
            pool_plan.kept.setdefault(unit.name, (Reason.PAID_FOR, f"{because}; {paid}"))
            continue
        short -= 1
        pool_plan.delete(
            unit,
            Reason.TICKET_RETURNED,
            f"its ticket ended and `reuse` no longer allows another: {because}",
        )


def _explain_reuse_over(world: World, pool_plan: PoolPlan, unit: Unit, reuse: Reuse) -> str:
    """Return why a unit is no longer kept for its sandbox; empty if no ticket has used it."""
    is_desk = isinstance(pool_plan.fleet.queues.get(unit.registry or ""), TicketQueue)
    if not is_desk or unit.worker is None or not unit.worker.uses or unit.since is None:
        return ""
    idle = int((world.time - unit.since).total_seconds())
    if idle < reuse.opportunity:
        return ""
    most = write_duration(reuse.opportunity)
    since = write_duration(idle)
    return f"no ticket of its sandbox came for {since}, reuse.opportunity is {most}"


def _explain_paid(world: World, pool_plan: PoolPlan, unit: Unit) -> str:
    """Return why to keep it for the paid hour; empty if that is over or disabled."""
    if pool_plan.pool is None or pool_plan.pool.retire.at == "once":
        return ""
    return paid_for(world, pool_plan, unit)


def _match_sandboxes(world: World, pool_plan: PoolPlan, unit: Unit) -> list[bool]:
    """Return for each ticket that fits the machine whether it is of its sandbox."""
    reading = world.queues.get(unit.registry or "")
    if reading is None or unit.worker is None or not isinstance(reading.demand, Demand):
        return []
    own, offered = set(unit.worker.requires), set(pool_plan.offer.provides)
    fitting = (
        request for request in reading.demand.requests if offered.issuperset(request.required)
    )
    return [not own.isdisjoint(request.provided) for request in fitting]
