"""Scale down: delete machines that are idle for too long and not paid for further.

Only registered workers count as ready: while a replacement boots, the old worker is kept.
`deletion_order.py` has the order. An unneeded booting machine is deleted before it registers.
"""

from fleet.model.facts import World
from fleet.model.plan import Reason
from fleet.planner.lifecycle.deletion_order import paid_for, scale_down_order, youngest_first
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import State, Unit
from fleet.schema.model import TicketQueue
from fleet.schema.units import write_duration


def release_surplus(world: World, pool_plan: PoolPlan) -> None:
    """Drain workers beyond min and spare that are idle for too long."""
    if pool_plan.pool is None or not pool_plan.can_scale_down:
        return
    idle = [u for u in pool_plan.unused if u.state is State.IDLE and not _is_held(pool_plan, u)]
    if not idle:
        return
    patience = pool_plan.pool.retire.idle_after
    surplus = len(idle)
    if not pool_plan.on_demand:
        ready = sum(unit.state in (State.IDLE, State.BUSY) for unit in pool_plan.staying)
        surplus = min(surplus - pool_plan.size.spare, ready - pool_plan.size.min)
    for unit in scale_down_order(world, pool_plan, idle):
        because = _idle_because(world, unit, None if pool_plan.on_demand else patience)
        if surplus <= 0 or not because:
            continue
        surplus -= 1
        # A queue of fleet itself assigns no work during a run, so its workers need no drain.
        is_ours = isinstance(pool_plan.fleet.queues.get(unit.registry or ""), TicketQueue)
        reason = Reason.NOT_WANTED if pool_plan.on_demand else Reason.IDLE_TOO_LONG
        paid = _explain_paid(world, pool_plan, unit)
        if paid:
            pool_plan.kept.setdefault(unit.name, (Reason.PAID_FOR, f"{because}; {paid}"))
        elif is_ours:
            pool_plan.delete(unit, reason, because)
        else:
            pool_plan.drain(unit, reason, because)


def _explain_paid(world: World, pool_plan: PoolPlan, unit: Unit) -> str:
    """Return why to keep a machine that is paid for; empty to delete it immediately.

    No ticket has used it, so any ticket may get it; `returned.py` handles the used ones. A machine
    that one queue already drains is drained at the others too.
    """
    at_once = pool_plan.pool is not None and pool_plan.pool.retire.at == "once"
    return "" if at_once or unit.is_leaving else paid_for(world, pool_plan, unit)


def _is_held(pool_plan: PoolPlan, unit: Unit) -> bool:
    """Return whether a machine is kept for the next ticket of its sandbox."""
    reuse = pool_plan.pool.reuse if pool_plan.pool else None
    if reuse is None or unit.worker is None or not unit.worker.uses:
        return False
    because = (
        "kept for the next ticket of its sandbox, reuse.opportunity is "
        f"{write_duration(reuse.opportunity)}"
    )
    pool_plan.kept.setdefault(unit.name, (Reason.IDLE_RECENTLY, because))
    return True


def dismiss_booting(world: World, pool_plan: PoolPlan) -> None:
    """Delete machines that boot for withdrawn requests, youngest first.

    Due machines do not count as ready: the booting machine may be their replacement.
    """
    if pool_plan.pool is None or not pool_plan.can_scale_down:
        return
    unused = [unit for unit in pool_plan.booting if unit.name not in pool_plan.used]
    if not unused:
        return
    fresh = [
        u
        for u in pool_plan.staying
        if u.name not in pool_plan.due and (u.is_capacity or u.state is State.BUSY)
    ]
    free = [u for u in fresh if u.state is not State.BUSY and u.name not in pool_plan.used]
    surplus = len(free)
    if not pool_plan.on_demand:
        surplus = min(surplus - pool_plan.size.spare, len(fresh) - pool_plan.size.min)
    for unit in youngest_first(unused)[: max(0, surplus)]:
        because = "no waiting request fits it; its request was withdrawn or served"
        paid = _explain_paid(world, pool_plan, unit)
        if paid:
            pool_plan.kept.setdefault(unit.name, (Reason.PAID_FOR, f"{because}; {paid}"))
        else:
            pool_plan.delete(unit, Reason.NOT_WANTED, because)


def _idle_because(world: World, unit: Unit, patience: int | None) -> str:
    """Return why a worker is idle for too long; empty if it is not. No `patience`: no time-out."""
    if unit.since is None:
        return ""
    if patience is None:
        return "idle, and no request asks for this on-demand pool"
    seconds = int((world.time - unit.since).total_seconds())
    if seconds < patience:
        return ""
    return f"idle for {write_duration(seconds)}, retire.idle_after is {write_duration(patience)}"
