"""What freezes withhold, and what a budget still lets go."""

import pytest

from fleet.guard import guard
from fleet.model.orders import Freeze
from fleet.model.plan import BudgetVerdict, Cause, Drain, Reason
from tests.builders import NOW, a_plan, a_pool_verdict, a_sim_fleet, ago
from tests.builders.guarding import creates, drains, said


def a_freeze(pool: str | None, *stops: str) -> Freeze:
    return Freeze.model_validate(
        {"by": "ada", "at": NOW, "until": ago(hours=-1), "reason": "why", "pool": pool}
        | ({"stops": stops} if stops else {})
    )


def exceeded(*path: str) -> BudgetVerdict:
    return BudgetVerdict.model_validate(
        {"budget": path[1], "path": path, "period": "month", "unit": "EUR", "limit": "1"}
        | {"spent": "2", "reserved": "0", "planned": "0", "exceeded": True}
    )


@pytest.mark.parametrize(
    ("freeze", "left"),
    [
        (a_freeze(None), []),
        (a_freeze("builders"), []),
        (a_freeze("builders", "creates"), ["drain"]),
        (a_freeze("builders", "deletes"), ["create"]),
        (a_freeze("others"), ["create", "drain"]),
    ],
)
def test_freeze_withholds_its_actions_in_its_pool(freeze: Freeze, left: list[str]) -> None:
    plan = a_plan(
        orders=(freeze,),
        pools=(a_pool_verdict(pool="builders", idle=9),),
        actions=(*creates(1), *drains(1, Cause.DEMAND)),
    )

    guarded = guard(a_sim_fleet(), plan)

    assert [each.action for each in guarded.actions] == left
    assert {each[0] for each in said(guarded)} == ({"freeze"} if len(left) < 2 else set())


@pytest.mark.parametrize(
    ("path", "cause", "goes"),
    [
        (("pools", "builders", "budget", "per_month"), Cause.DEMAND, True),
        (("budgets", "all", "per_month"), Cause.DEMAND, True),
        (("budgets", "security", "per_month"), Cause.DEMAND, False),
        (("pools", "others", "budget", "per_month"), Cause.DEMAND, False),
        (("pools", "builders", "budget", "per_month"), Cause.KNOWLEDGE, False),
    ],
)
def test_freeze_permits_deletion_when_budget_is_exceeded(
    path: tuple[str, ...], cause: Cause, *, goes: bool
) -> None:
    fleet = a_sim_fleet(
        budgets={"all": {"per_month": "1 EUR"}, "security": {"team": "sec", "per_month": "1 EUR"}}
    )
    plan = a_plan(
        orders=(a_freeze(None),),
        budgets=(exceeded(*path),),
        pools=(a_pool_verdict(pool="builders", idle=9),),
        actions=drains(1, cause),
    )

    assert bool(guard(fleet, plan).actions) is goes


def test_freeze_permits_drains_of_workers_of_a_used_up_budget() -> None:
    """Without them, the queue would give the workers work until the budget is exceeded."""
    first, second = drains(2, Cause.DEMAND)
    assert isinstance(first, Drain)
    plan = a_plan(
        orders=(a_freeze(None),),
        pools=(a_pool_verdict(pool="builders", idle=9),),
        actions=(first.altered(reason=Reason.BUDGET_USED_UP), second),
    )

    assert [each.worker for each in guard(a_sim_fleet(), plan).actions] == [first.worker]
