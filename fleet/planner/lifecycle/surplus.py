"""Release what nothing needs: idle for long, and not paid for until later anyway.

Only registered workers count as ready: while a machine boots, the worker that it may stand in for
stays. `deletion_order.py` says which goes first. A machine that boots for nothing goes before it
registers.
"""

from fleet.model.facts import World
from fleet.model.plan import Reason
from fleet.planner.lifecycle.deletion_order import paid_for, scale_down_order, youngest_first
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import State, Unit
from fleet.schema.model import TicketQueue
from fleet.schema.units import write_duration


def release_surplus(world: World, pool_plan: PoolPlan) -> None:
    """Drain what is idle for long, beyond min and spare."""
    if pool_plan.pool is None or not pool_plan.may_shrink:
        return
    idle = [u for u in pool_plan.unused if u.state is State.IDLE and not _is_held(pool_plan, u)]
    if not idle:
        return
    patience = pool_plan.pool.retire.idle_after
    surplus = len(idle)
    if not pool_plan.on_demand:
        ready = sum(unit.state in (State.IDLE, State.BUSY) for unit in pool_plan.staying)
        workers = pool_plan.pool.workers
        surplus = min(surplus - workers.spare, ready - workers.min)
    for unit in scale_down_order(world, pool_plan, idle):
        because = _idle_because(world, unit, None if pool_plan.on_demand else patience)
        if surplus <= 0 or not because:
            continue
        surplus -= 1
        # What fleet alone gives out gets nothing while a run decides: it need not be drained.
        is_ours = isinstance(pool_plan.fleet.queues.get(unit.registry or ""), TicketQueue)
        reason = Reason.NOT_WANTED if pool_plan.on_demand else Reason.IDLE_TOO_LONG
        paid = _paid(world, pool_plan, unit)
        if paid:
            pool_plan.kept.setdefault(unit.name, (Reason.PAID_FOR, f"{because}; {paid}"))
        elif is_ours:
            pool_plan.delete(unit, reason, because)
        else:
            pool_plan.drain(unit, reason, because)


def _paid(world: World, pool_plan: PoolPlan, unit: Unit) -> str:
    """Return why to keep what is paid for anyway; empty where it goes at once, or that is wanted.

    No ticket has had it, so any ticket may get it; of what one gave back, `returned` says. What
    one queue drains already goes on to be drained at the others.
    """
    at_once = pool_plan.pool is not None and pool_plan.pool.retire.at == "once"
    return "" if at_once or unit.is_leaving else paid_for(world, pool_plan, unit)


def _is_held(pool_plan: PoolPlan, unit: Unit) -> bool:
    """Say whether a machine is kept for the next ticket of its sandbox."""
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
    """Delete machines that boot for withdrawn requests, the youngest first.

    What is due to be replaced does not count: a machine that boots may be its replacement.
    """
    if pool_plan.pool is None or not pool_plan.may_shrink:
        return
    unused = [unit for unit in pool_plan.booting if unit.name not in pool_plan.used]
    if not unused:
        return
    workers = pool_plan.pool.workers
    fresh = [
        u
        for u in pool_plan.staying
        if u.name not in pool_plan.due and (u.is_capacity or u.state is State.BUSY)
    ]
    free = [u for u in fresh if u.state is not State.BUSY and u.name not in pool_plan.used]
    surplus = len(free)
    if not pool_plan.on_demand:
        surplus = min(surplus - workers.spare, len(fresh) - workers.min)
    for unit in youngest_first(unused)[: max(0, surplus)]:
        because = "no waiting request fits it; its request was withdrawn or served"
        paid = _paid(world, pool_plan, unit)
        if paid:
            pool_plan.kept.setdefault(unit.name, (Reason.PAID_FOR, f"{because}; {paid}"))
        else:
            pool_plan.delete(unit, Reason.NOT_WANTED, because)


def _idle_because(world: World, unit: Unit, patience: int | None) -> str:
    """Return why an idle worker is idle for too long; empty when it is not; None: at once."""
    if unit.since is None:
        return ""
    if patience is None:
        return "idle, and no request asks for this on-demand pool"
    seconds = int((world.time - unit.since).total_seconds())
    if seconds < patience:
        return ""
    return f"idle for {write_duration(seconds)}, retire.idle_after is {write_duration(patience)}"
