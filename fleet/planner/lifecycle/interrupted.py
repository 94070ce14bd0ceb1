"""This module finishes what an apply that was killed had begun, as far as it is still wanted.

A creation is finished with its recorded inputs; one that fleet.yaml no longer wants, and that
never came to be, is forgotten instead. A paused pool is left as it is.
"""

from fleet.model.plan import Cause, Reason
from fleet.planner.pool_plan import Draft, Why
from fleet.planner.units import State


def finish_interrupted(draft: Draft) -> None:
    """Add the creations and deletions that an earlier apply began and did not end."""
    paused = draft.pool is not None and draft.pool.mode == "pause"
    if draft.census.blind or paused:
        return
    _finish_creations(draft)
    because = "an earlier apply was interrupted while deleting it"
    for unit in draft.census.having(State.UNDELETED):
        draft.delete(unit, Reason.INTERRUPTED, because)


def _finish_creations(draft: Draft) -> None:
    units = draft.census.having(State.UNFINISHED)
    # What exists already counts to max whatever becomes of it.
    held = len(draft.census.units) - sum(unit.machine is None for unit in units)
    most = draft.pool.workers.max if draft.pool and draft.pool.mode != "drain" else 0
    for unit in units:
        if unit.inputs is None:
            continue
        if unit.machine is None and held >= most:
            because = "an earlier apply was interrupted before it was made; it is not wanted now"
            draft.delete(unit, Reason.INTERRUPTED, because)
            continue
        held += unit.machine is None
        because = "an earlier apply was interrupted while making it"
        exists = unit.machine is not None
        why = Why(Reason.INTERRUPTED, Cause.KNOWLEDGE, because, exists=exists)
        draft.create(unit.inputs, why)
