"""What a month has cost: sums are those of the ledger, and the projection is as it says."""

from decimal import Decimal

import pytest
from hypothesis import strategies as st

from fleet.model.facts import Charge, Ledger, Unknown, World
from fleet.schema.model import Fleet
from fleet.site.charges import PAID_BY_POOLS, Cost, MonthCost, RecentCharges, money_of
from tests.builders import NOW, a_fleet, a_pool, a_world, ago

NINE_DAYS_16_HOURS = 232
"""From NOW, the 21st at 08:00, to the end of November, in hours."""


def a_charge(month: str, **overrides: object) -> Charge:
    defaults = {"pool": "builders", "seconds": (0, 60, 3600), "money": ("0", "0", month)}
    return Charge.model_validate(defaults | overrides)


def money(
    *charges: Charge, recent: RecentCharges | None = None, fleet: Fleet | None = None
) -> MonthCost:
    found = money_of(fleet or a_fleet(), a_world_with(*charges), recent)
    assert isinstance(found, MonthCost)
    return found


def a_world_with(*charges: Charge) -> World:
    return a_world(ledger=Ledger(charged_until=NOW, charges=charges))


def by_name(costs: tuple[Cost, ...]) -> dict[str, Decimal]:
    return {cost.name: cost.month for cost in costs}


def test_month_is_split_by_pool_scope_and_team() -> None:
    found = money(
        a_charge("1.5", scope="debian", team="java"),
        a_charge("2.25", scope="debian", owner="ann"),
        a_charge("0.125", pool="arm"),
    )

    assert by_name(found.pools) == {"builders": Decimal("3.75"), "arm": Decimal("0.125")}
    assert by_name(found.scopes) == {"debian": Decimal("3.75"), PAID_BY_POOLS: Decimal("0.125")}
    teams = by_name(found.teams)
    assert (teams.pop("java"), teams.pop(PAID_BY_POOLS)) == (Decimal("1.5"), Decimal("0.125"))
    assert [*teams.values()] == [Decimal("2.25")]
    assert (found.total.month, found.total.seconds) == (Decimal("3.875"), 3 * 3600)


@pytest.mark.parametrize(
    "ledger", [Ledger(), Unknown(unknown="the store does not answer")], ids=["never", "unread"]
)
def test_cost_is_unknown_when_ledger_is_missing(ledger: Ledger | Unknown) -> None:
    assert isinstance(money_of(a_fleet(), a_world(ledger=ledger)), Unknown)


def test_projection_uses_cost_of_last_days() -> None:
    week = a_charge("0").altered(money=(Decimal(0), Decimal("16.8"), Decimal(0)))
    recent = RecentCharges(since=ago(days=7), until=NOW, charges=(week,))

    found = money(a_charge("50"), recent=recent)

    assert found.total.week == Decimal("16.8")
    assert found.total.projected == 50 + Decimal("0.1") * NINE_DAYS_16_HOURS


def test_projection_uses_cost_of_month_without_store() -> None:
    found = money(a_charge("48.8"))

    assert found.total.projected == Decimal("48.8") + Decimal("0.1") * NINE_DAYS_16_HOURS
    assert (found.total.week, found.week_since) == (None, None)


def test_projection_is_unknown_after_a_few_hours() -> None:
    recent = RecentCharges(since=ago(hours=5), until=NOW, charges=())

    assert money(a_charge("1"), recent=recent).total.projected is None


def test_payer_only_in_the_last_days_has_a_row() -> None:
    week = a_charge("0", pool="arm", money=("0", "7", "0"))
    recent = RecentCharges(since=ago(days=7), until=NOW, charges=(week,))

    found = money(a_charge("1"), recent=recent)

    assert by_name(found.pools) == {"builders": Decimal(1), "arm": Decimal(0)}


def test_monthly_budgets_are_projected_in_their_unit() -> None:
    fleet = a_fleet(
        pools={"builders": a_pool(budget={"per_month": "100 EUR", "per_day": "9 EUR"})},
        budgets={"java": {"team": "java", "machine_hours_per_month": 100}},
    )
    java = a_charge("48.8", team="java", seconds=(0, 0, 488 * 3600))

    found = money(java, a_charge("48.8", pool="arm"), fleet=fleet)

    expected = Decimal("48.8") + Decimal("0.1") * NINE_DAYS_16_HOURS
    assert found.projected == {
        ("pools", "builders", "budget", "per_month"): expected,
        ("budgets", "java", "machine_hours_per_month"): 10 * expected,
    }


names = st.none() | st.sampled_from(["debian", "java", "<b>"])
amounts = st.decimals("-1", "10000", places=9)
charges = st.builds(
    Charge,
    pool=st.sampled_from(["builders", "arm"]),
    scope=names,
    team=names,
    owner=names,
    seconds=st.tuples(*[st.integers(0, 10**6)] * 3),
    money=st.tuples(*[amounts] * 3),
)
