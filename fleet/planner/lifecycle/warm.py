"""Keep `min` workers and `spare` idle ones ready; an on-demand pool keeps none.

Machines that boot count, so that nothing is made twice. `min` counts every worker that stays;
`spare` those that are free after everything that waits was given a worker.
"""

from decimal import Decimal

from fleet.model.plan import Cause, Reason
from fleet.planner.machine_inputs import new_inputs
from fleet.planner.pool_plan import PoolPlan, Stopped, Why


def keep_warm(pool_plan: PoolPlan, *, turn: int) -> None:
    """Hold min workers and spare idle ones; an on-demand pool holds none."""
    if pool_plan.pool is None or pool_plan.on_demand:
        return
    workers = pool_plan.pool.workers
    if not (workers.min or workers.spare):
        return
    lacking = workers.min - len(pool_plan.staying) - pool_plan.made
    because = f"workers.min is {workers.min}"
    why = Why(Reason.BELOW_MIN, Cause.CONFIG, because, turn=turn)
    made_for_min = _make(pool_plan, lacking, why)
    lacking = workers.spare - len(pool_plan.unused) - made_for_min
    if pool_plan.awaited:
        # What waits for this pool would take it at once, past the limit that stops it.
        if lacking > 0:
            said = "none is created while requests wait for this pool"
            pool_plan.short[Reason.BELOW_SPARE] = said, None
        return
    because = f"workers.spare is {workers.spare}"
    _make(pool_plan, lacking, Why(Reason.BELOW_SPARE, Cause.DEMAND, because, turn=turn))


def make_one(pool_plan: PoolPlan, why: Why) -> Stopped | str:
    """Make one machine more in the cheapest way that limits leave open; return why not, if not."""
    if pool_plan.closed:
        return pool_plan.closed
    stop: Stopped | str = ""
    ways = [option for option in pool_plan.options if not option.closed]
    for option in sorted(ways, key=lambda way: way.price or Decimal(0)):
        forbidden = pool_plan.headroom.take(option.key)
        if forbidden is None:
            way = pool_plan.next_way(option)
            pool_plan.create(new_inputs(pool_plan.fleet, way, next(pool_plan.names)), why)
            return ""
        stop = stop or forbidden
    return stop


def _make(pool_plan: PoolPlan, number: int, why: Why) -> int:
    """Make so many machines, or as many as there is room for; return how many."""
    for made in range(max(0, number)):
        stop = make_one(pool_plan, why)
        if stop:
            lacking = number - made
            are = "is" if lacking == 1 else "are"
            said = f"{lacking} {are} not created"
            limit = stop if isinstance(stop, Stopped) else None
            pool_plan.short[why.reason] = (said if limit else f"{said}: {stop}"), limit
            return made
    return max(0, number)
