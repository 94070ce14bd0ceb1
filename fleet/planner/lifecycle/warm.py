"""This module holds `min` workers and `spare` idle ones ready; an on-demand pool holds none.

Machines that boot count, so that nothing is made twice. `min` counts every worker that stays;
`spare` those that are free after everything that waits was given a worker.
"""

from decimal import Decimal

from fleet.model.plan import Cause, Reason
from fleet.planner.machine_inputs import new_inputs
from fleet.planner.pool_plan import Draft, Stopped, Why


def keep_warm(draft: Draft, *, turn: int) -> None:
    """Hold min workers and spare idle ones; an on-demand pool holds none."""
    if draft.pool is None or draft.on_demand:
        return
    workers = draft.pool.workers
    lacking = workers.min - len(draft.staying) - draft.made
    because = f"workers.min is {workers.min}"
    why = Why(Reason.BELOW_MIN, Cause.CONFIG, because, turn=turn)
    made_for_min = _make(draft, lacking, why)
    lacking = workers.spare - len(draft.unused) - made_for_min
    if draft.awaited:
        # What waits for this pool would take it at once, past the limit that stops it.
        if lacking > 0:
            said = "none is made while requests wait for this pool"
            draft.short[Reason.BELOW_SPARE] = said, None
        return
    because = f"workers.spare is {workers.spare}"
    _make(draft, lacking, Why(Reason.BELOW_SPARE, Cause.DEMAND, because, turn=turn))


def make_one(draft: Draft, why: Why) -> Stopped | str:
    """Make one machine more in the cheapest way that limits leave open; return why not, if not."""
    if draft.closed:
        return draft.closed
    stop: Stopped | str = ""
    ways = [option for option in draft.options if not option.closed]
    for option in sorted(ways, key=lambda way: way.price or Decimal(0)):
        forbidden = draft.headroom.take(option.key)
        if forbidden is None:
            way = draft.next_way(option)
            draft.create(new_inputs(draft.fleet, way, next(draft.names)), why)
            return ""
        stop = stop or forbidden
    return stop


def _make(draft: Draft, number: int, why: Why) -> int:
    """Make so many machines, or as many as there is room for; return how many."""
    for made in range(max(0, number)):
        stop = make_one(draft, why)
        if stop:
            lacking = number - made
            are = "is" if lacking == 1 else "are"
            said = f"{lacking} {are} not made"
            limit = stop if isinstance(stop, Stopped) else None
            draft.short[why.reason] = (said if limit else f"{said}: {stop}"), limit
            return made
    return max(0, number)
