"""This step holds `min` workers and `spare` idle ones ready; an on-demand pool holds none."""

from fleet.draft import Draft, Why
from fleet.making import new_inputs
from fleet.plan import Cause, Reason


def keep_warm(draft: Draft, *, turn: int) -> None:
    """Hold min workers and spare idle ones; an on-demand pool holds none."""
    if draft.pool is None or draft.on_demand or draft.closed or draft.option is None:
        return
    workers = draft.pool.workers
    lacking = workers.min - len(draft.staying) - draft.made
    because = f"workers.min is {workers.min}"
    for _ in range(min(lacking, draft.room_left)):
        inputs = new_inputs(draft.fleet, draft.option, next(draft.names))
        draft.create(inputs, Why(Reason.BELOW_MIN, Cause.CONFIG, because, turn=turn))
    made_for_min = sum(action.reason is Reason.BELOW_MIN for action in draft.actions)
    lacking = workers.spare - len(draft.unused) - made_for_min
    because = f"workers.spare is {workers.spare}"
    for _ in range(min(lacking, draft.room_left)):
        inputs = new_inputs(draft.fleet, draft.option, next(draft.names))
        draft.create(inputs, Why(Reason.BELOW_SPARE, Cause.DEMAND, because, turn=turn))
