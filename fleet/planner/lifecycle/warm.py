"""Keep `min` workers and `spare` idle workers ready, except in an on-demand pool.

Booting machines count too, to avoid duplicates. `min` counts every kept worker. `spare` counts
workers that are idle after all waiting requests are assigned.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import ClassVar

from fleet.model.plan import Cause, Reason
from fleet.planner.lifecycle.rule import LifeRule
from fleet.planner.machine_inputs import new_inputs
from fleet.planner.pool_plan import PoolPlan, Proposal, ReachedLimit, Why
from fleet.words import lives


class WarmWorkers(LifeRule):
    """Rule that keeps workers ready without demand, as `min` and `spare` require."""

    keys: ClassVar = {
        Reason.BELOW_MIN: ("workers", "min"),
        Reason.KEPT_FOR_MIN: ("workers", "min"),
        Reason.BELOW_SPARE: ("workers", "spare"),
        Reason.KEPT_SPARE: ("workers", "spare"),
    }

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Create machines up to min and spare, except in an on-demand pool."""
        if pool_plan.pool is None or pool_plan.on_demand:
            return
        size = pool_plan.size
        if not size.permanent:
            return
        lacking = size.min - len(pool_plan.staying) - pool_plan.made
        because = lives.describe_figure("min", size.min)
        why = Why(Reason.BELOW_MIN, Cause.CONFIG, because, turn=pool_plan.turn)
        made_for_min = _create_machines(pool_plan, lacking, why)
        lacking = size.spare - len(pool_plan.unused) - made_for_min
        if pool_plan.awaited:
            # A waiting request would use the spare machine and so bypass the limit that blocks it.
            if lacking > 0:
                pool_plan.short[Reason.BELOW_SPARE] = lives.NO_SPARE_CREATED, None
            return
        because = lives.describe_figure("spare", size.spare)
        why = Why(Reason.BELOW_SPARE, Cause.DEMAND, because, turn=pool_plan.turn)
        _create_machines(pool_plan, lacking, why)
        yield from ()  # creations are not proposals


def make_one(pool_plan: PoolPlan, why: Why) -> ReachedLimit | str:
    """Create a machine by the cheapest option within all limits.

    Return an empty string if a machine was created, else the reached limit or the reason.
    """
    if pool_plan.closed:
        return pool_plan.closed.reason
    stop: ReachedLimit | str = ""
    ways = [option for option in pool_plan.options if not option.closed]
    for option in sorted(ways, key=lambda way: way.price or Decimal(0)):
        forbidden = pool_plan.headroom.take(option.key)
        if forbidden is None:
            way = pool_plan.next_way(option)
            pool_plan.create(new_inputs(pool_plan.fleet, way, next(pool_plan.names)), why)
            return ""
        stop = stop or forbidden
    return stop


def _create_machines(pool_plan: PoolPlan, number: int, why: Why) -> int:
    """Create at most `number` machines within all limits; return the number of new machines."""
    for made in range(max(0, number)):
        stop = make_one(pool_plan, why)
        if stop:
            limit, closed = (stop, "") if isinstance(stop, ReachedLimit) else (None, stop)
            pool_plan.short[why.reason] = lives.explain_lacking(number - made, closed), limit
            return made
    return max(0, number)
