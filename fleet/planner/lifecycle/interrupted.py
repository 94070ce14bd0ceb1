"""Finish what an apply that was killed had begun, as far as it is still wanted.

A creation is finished with its recorded inputs; one that fleet.yaml no longer wants, and that
never came to be, is forgotten instead. A paused pool is left as it is.
"""

from fleet.model.plan import Cause, Reason
from fleet.planner.pool_plan import PoolPlan, Why
from fleet.planner.units import State


def finish_interrupted(pool_plan: PoolPlan) -> None:
    """Add the creations and deletions that an earlier apply began and did not end."""
    paused = pool_plan.pool is not None and pool_plan.pool.mode == "pause"
    if pool_plan.inventory.blind or paused:
        return
    _finish_creations(pool_plan)
    because = "an earlier apply was interrupted while deleting it"
    for unit in pool_plan.inventory.having(State.UNDELETED):
        pool_plan.delete(unit, Reason.INTERRUPTED, because)


def _finish_creations(pool_plan: PoolPlan) -> None:
    units = pool_plan.inventory.having(State.UNFINISHED)
    # What exists already counts to max whatever becomes of it.
    held = len(pool_plan.inventory.units) - sum(unit.machine is None for unit in units)
    most = pool_plan.pool.workers.max if pool_plan.pool and pool_plan.pool.mode != "drain" else 0
    for unit in units:
        if unit.inputs is None:
            continue
        if unit.machine is None and held >= most:
            because = "an earlier apply was interrupted before creating it; no longer needed"
            pool_plan.delete(unit, Reason.INTERRUPTED, because)
            continue
        held += unit.machine is None
        because = "an earlier apply was interrupted while creating it"
        exists = unit.machine is not None
        why = Why(Reason.INTERRUPTED, Cause.KNOWLEDGE, because, exists=exists)
        pool_plan.create(unit.inputs, why)
