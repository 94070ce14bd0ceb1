"""What budgets allow, one sentence per test. Machines cost 1 EUR/h; it is 08:00 on a Saturday."""

from decimal import Decimal

import pytest

from fleet.model.facts import Ledger, Unknown
from fleet.model.values import amount_of
from fleet.planner.budgets import HOURS
from tests.builders import a_pool, a_worker, ago
from tests.builders.budgeting import (
    HOUR,
    MACHINE,
    NEW,
    TAIL,
    a_budgeted_fleet,
    a_busy,
    a_charge,
    a_spent_world,
    accounts,
    rounded,
    these,
)
from tests.builders.sentences import tells

# what is left


def test_fleet_without_budgets_has_no_accounts() -> None:
    assert accounts(a_budgeted_fleet(), a_spent_world()) == []


def test_budget_has_accounts_of_this_and_next_period() -> None:
    found = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world())

    assert [these(a.limit.period, a.coming, a.limit.amount, a.row.room) for a in found] == [
        ("day", False, 10, 10),
        ("day", True, 10, 10),
    ]
    assert found[0].row.path == ("pools", "builders", "budget", "per_day")


def test_spending_reduces_current_period_only() -> None:
    world = a_spent_world(charges=[a_charge("4")])

    today, tomorrow = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), world)

    assert these(today.spent, today.row.room) == (4, 6)
    assert these(tomorrow.spent, tomorrow.row.room) == (0, 10)


def test_uncharged_time_counts_as_spent() -> None:
    ledger = Ledger(charged_until=ago(minutes=30))
    world = a_spent_world(a_worker(), ledger=ledger)

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), world)

    assert today.spent == Decimal("0.5")


def test_exceeded_budget_has_remainder_zero() -> None:
    world = a_spent_world(charges=[a_charge("14")])

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), world)

    assert today.row.room == 0


def test_budget_row_has_sentence_with_figures() -> None:
    world = a_spent_world(a_busy(), charges=[a_charge("4")])

    today, tomorrow = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), world)

    for figures in ("4.42 of 10.00 EUR left today", "4.00 spent, 1.58 reserved"):
        assert figures in today.row.because
    for figures in ("10.00 of 10.00 EUR left tomorrow", "0.00 spent, 0.00 reserved"):
        assert figures in tomorrow.row.because


def test_budget_in_other_currency_uses_stated_rate() -> None:
    fleet = a_budgeted_fleet(
        {"per_day": "10 USD"}, money={"exchange": {"USD": {"rate": 0.5, "as_of": "2026-11-01"}}}
    )

    today, _ = accounts(fleet, a_spent_world(charges=[a_charge("4")]))

    assert these(today.limit.amount, today.limit.unit, today.row.room) == (5, "EUR", 1)


def test_machine_priced_in_dollars_uses_euros_of_budget_in_euros() -> None:
    fleet = a_budgeted_fleet(
        budgets={"all": {"per_day": "10 EUR"}},
        money={"exchange": {"USD": {"rate": 0.5, "as_of": "2026-11-01"}}},
        pools={
            "builders": a_pool(provider="desk", machine=MACHINE | {"price": "4 USD/h"}),
        },
    )

    today, _ = accounts(fleet, a_spent_world())

    assert rounded(today.row.machines[NEW.key]) == rounded(2 * TAIL)


def test_budget_has_no_remainder_when_ledger_is_unknown() -> None:
    fleet = a_budgeted_fleet({"per_day": "10 EUR"}, budgets={"all": {"per_month": "99 EUR"}})
    world = a_spent_world(ledger=Unknown(unknown="no store"))

    found = accounts(fleet, world)

    assert [these(a.row.room, amount_of(a.spent)) for a in found] == [(0, None)] * 4
    assert tells(found[0].row.because, "pool builders", "unknown", "unknown")
    assert all(a.row.machines or a.coming for a in found)


# what exists is reserved


def test_running_work_reserves_its_expected_remaining_cost() -> None:
    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(a_busy(2 * HOUR)))

    assert rounded(today.reserved) == rounded(2 + TAIL - Decimal(90) / HOUR)


def test_work_of_unknown_duration_reserves_both_periods_to_their_end() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"})

    today, tomorrow = accounts(fleet, a_spent_world(a_busy(None)))

    assert these(today.reserved, tomorrow.reserved) == (16, 24)


def test_default_duration_is_expected_without_history() -> None:
    fleet = a_budgeted_fleet(
        budgets={"debian": {"scope": "debian", "per_day": "9 EUR"}}, durations={"any": "3h"}
    )

    today, _ = accounts(fleet, a_spent_world(a_busy(None)))

    assert rounded(today.reserved) == rounded(3 + TAIL - Decimal(90) / HOUR)


def test_idle_machine_reserves_until_it_can_be_deleted() -> None:
    idle = a_worker(since=ago(minutes=5))

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(idle))

    assert today.reserved == Decimal(10 * 60 + 2 * 600) / HOUR


def test_idle_hourly_machine_reserves_its_paid_hours() -> None:
    fleet = a_budgeted_fleet(
        {"per_day": "10 EUR"},
        providers={"desk": {"kind": "sim", "billing": {"increment": "1h"}}},
    )

    today, _ = accounts(fleet, a_spent_world(a_worker(since=ago(minutes=5))))

    assert today.reserved == 1  # it was made an hour ago: the next hour begins now


def test_machines_that_stay_for_min_reserve_both_periods_to_their_end() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, pool={"min": 1})

    today, tomorrow = accounts(fleet, a_spent_world(a_worker()))

    assert these(today.reserved, tomorrow.reserved) == (16, 24)


def test_machine_to_delete_reserves_two_runs() -> None:
    going = a_worker(draining=True)

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(going))

    assert rounded(today.reserved) == rounded(Decimal(1200) / HOUR)


def test_machines_of_silent_provider_reserve_by_stack() -> None:
    world = a_spent_world(a_worker())
    blind = world.altered(providers={"desk": Unknown(unknown="no answer")})

    today, tomorrow = accounts(a_budgeted_fleet({"per_day": "99 EUR"}), blind)

    assert these(today.reserved, tomorrow.reserved) == (16, 24)


def test_budget_has_no_remainder_when_machines_are_unknown() -> None:
    silent = Unknown(unknown="no answer")
    world = a_spent_world(providers={"desk": silent}, stacks={"builders": silent})

    today, _ = accounts(a_budgeted_fleet(budgets={"all": {"per_day": "9 EUR"}}), world)

    assert today.row.room == 0
    assert tells(today.row.because, "unknown", "pool builders", "unknown")


@pytest.mark.parametrize("milliseconds", [0, 400])
@pytest.mark.parametrize(("limit", "left"), [(2, 0), (3, 1)])
def test_charged_and_reserved_work_sum_to_its_use(
    limit: int, left: int, milliseconds: int
) -> None:
    hours = {"scope": "debian", "machine_hours_per_day": limit}
    begun = ago(minutes=10, milliseconds=milliseconds)
    # It is idle for 15 minutes and two runs before it is deleted, in whole seconds.
    busy = a_busy(2 * HOUR - 15 * 60 - 1200 - 1, started_at=begun)
    world = a_spent_world(busy, ledger=Ledger(charged_until=begun))

    today, _ = accounts(a_budgeted_fleet(budgets={"debian": hours}), world)

    assert these(round(today.row.room, 2), today.exceeded) == (left, False)


# who pays what


def test_filtered_budget_counts_machines_of_matching_work() -> None:
    fleet = a_budgeted_fleet(budgets={"debian": {"scope": "debian", "per_day": "10 EUR"}})
    charges = [a_charge("4", scope="debian"), a_charge("2", scope="kali"), a_charge("1")]

    today, _ = accounts(fleet, a_spent_world(a_busy(2 * HOUR), charges=charges))

    assert today.spent == 4
    assert rounded(today.reserved) == rounded(2 + TAIL - Decimal(90) / HOUR)


def test_filtered_budget_ignores_other_work() -> None:
    fleet = a_budgeted_fleet(budgets={"kali": {"scope": "kali", "per_day": "10 EUR"}})

    today, _ = accounts(fleet, a_spent_world(a_busy()))

    assert these(today.reserved, today.row.requests, today.row.machines) == (0, {}, {})


@pytest.mark.parametrize(
    ("only", "counts"),
    [
        ({"scope": "debian"}, True),
        ({"scope": "debian", "team": "x"}, False),
        ({"tags": ["big", "huge"]}, True),
        ({"tags": ["huge"]}, False),
        ({"scope": "debian", "tags": ["big"]}, True),
        ({"owner": "ann"}, False),
    ],
)
def test_budget_counts_only_work_that_matches_every_filter(
    only: dict[str, object], *, counts: bool
) -> None:
    fleet = a_budgeted_fleet(budgets={"some": {**only, "per_day": "10 EUR"}})
    charge = a_charge("1", scope="debian", tags=("big",))
    world = a_spent_world(a_busy(required=("big",)), charges=[charge])

    today, _ = accounts(fleet, world)

    taken = (bool(today.spent), bool(today.reserved), bool(today.row.requests))
    assert taken == (counts, counts, counts)


def test_budget_without_a_filter_counts_everything() -> None:
    fleet = a_budgeted_fleet(budgets={"all": {"per_day": "10 EUR"}})
    charges = [a_charge("4", scope="debian"), a_charge("1"), a_charge("1", pool="gone")]

    today, _ = accounts(fleet, a_spent_world(charges=charges))

    assert today.spent == 6


def test_pool_budget_counts_all_charges_of_that_pool_only() -> None:
    charges = [a_charge("4", scope="debian"), a_charge("1"), a_charge("1", pool="other")]

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(charges=charges))

    assert today.spent == 5


def test_machine_hours_count_time_and_no_money() -> None:
    fleet = a_budgeted_fleet(budgets={"all": {"machine_hours_per_day": 40}})
    world = a_spent_world(a_busy(), charges=[a_charge("99", hours=3)])

    today, _ = accounts(fleet, world)

    assert these(today.limit.unit, today.limit.amount, today.spent) == (HOURS, 40, 3)
    assert rounded(today.reserved) == rounded(1 + TAIL - Decimal(90) / HOUR)
    assert today.row.path == ("budgets", "all", "machine_hours_per_day")
