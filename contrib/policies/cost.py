"""What one merge request may add to the lasting cost of the fleet."""

from decimal import Decimal

import pytest

from fleet.apply.policy_plugin import Require
from fleet.explain.changes import Changes, ComparedPlan

MOST, CURRENCY = Decimal(500), "EUR"
"""Money per month."""


def test_merge_request_stays_below_monthly_limit(plan: ComparedPlan, require: Require) -> None:
    change = plan.change
    if change is None:
        pytest.skip("nothing to compare with: give --base")
    # What is not known is no licence.
    assert isinstance(change, Changes), f"its cost is not known: {change.unknown}"
    before, after = change.rest_before, change.rest_after
    assert before is not None, "what the target branch costs is not known"
    assert after is not None, "what it costs is not known: a machine has no price"
    assert {change.currency_before, change.currency} == {CURRENCY}, f"MOST is in {CURRENCY}"
    added = after.month - before.month
    require(
        added <= MOST,
        f"adds {added:,.0f} {CURRENCY} per month; {MOST} is the most: split it, or ask for more",
        at=("pools",),
    )
