"""Drain the workers of a used-up budget, so that their queue gives them no new work."""

from collections.abc import Iterator

from fleet.model.plan import Reason
from fleet.planner.lifecycle.rule import LifeRule
from fleet.planner.pool_plan import PoolPlan, Proposal, drain, is_going
from fleet.planner.units import UnitState


class BudgetUsedUp(LifeRule):
    """Rule that stops new work on workers whose budget cannot pay for it (`budgets.py`)."""

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Propose to drain these workers. Running work finishes."""
        if not pool_plan.unpaid or not pool_plan.can_scale_down:
            return
        for unit in pool_plan.inventory.having(UnitState.IDLE, UnitState.BUSY):
            unpaid = pool_plan.unpaid.get(unit.name)
            if unpaid and unit.name not in pool_plan.leaving and not is_going(unit):
                yield drain(unit, Reason.BUDGET_USED_UP, unpaid.because)
