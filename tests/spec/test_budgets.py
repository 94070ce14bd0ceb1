"""What budgets allow, one sentence per test. Machines cost 1 EUR/h; it is 08:00 on a Saturday."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

import pytest

from fleet.budgets import Account, judge_budgets, open_accounts
from fleet.census import take_census
from fleet.choices import Fit, Group, Place
from fleet.demand import Payer
from fleet.facts import Charge, Ledger, Unknown, Work, Worker, World
from fleet.schema.model import Fleet
from fleet.spending_limits import HOURS
from tests.builders import NOW, a_pool, a_sim_fleet, a_sim_world, a_worker, ago

NEW = Place(key="builders/ccx33/on-demand", pool="builders", makes=True, type="ccx33")
FREE = Place(key="builders", pool="builders", makes=False, room=1)
MACHINE = {"type": "ccx33", "price": "1 EUR/h"}
HOUR = 3600
TAIL = Decimal(90 + 15 * 60 + 2 * 600) / HOUR
"""Boot, idle_after and two runs: what a machine costs beside its work, in hours."""


def a_budgeted_fleet(pool_budget: dict[str, str] | None = None, **overrides: object) -> Fleet:
    """Return a fleet whose pool has this budget; `pool` and `budgets` may be given."""
    pool = overrides.pop("pool", {})
    assert isinstance(pool, dict)
    budget = {"budget": pool_budget} if pool_budget else {}
    pools = {"builders": a_pool(provider="desk", machine=MACHINE, **budget, **pool)}
    return a_sim_fleet(**({"pools": pools} | overrides))


def a_group(seconds: int | None = HOUR, *, scope: str = "debian", share: float = 1) -> Group:
    """Return requests of a scope that run for so long, on a new or a free machine."""
    fit = Fit(seconds=seconds, longest=seconds, share=share)
    fits = {NEW.key: fit, FREE.key: fit}
    return Group(
        id="g",
        rank=(0,),
        requests=(),
        fits=fits,
        payer=Payer(scope=scope),
        tags=frozenset({"big"}),
    )


def a_ledger(*charges: Charge) -> Ledger:
    return Ledger(charged_until=NOW, charges=charges)


def a_charge(money: str, hours: int = 0, **overrides: object) -> Charge:
    """Return what was charged in this hour, day and month alike."""
    seconds = (hours * HOUR,) * 3
    defaults = {"pool": "builders", "seconds": seconds, "money": (money,) * 3}
    return Charge.model_validate(defaults | overrides)


def a_spent_world(*workers: Worker, charges: Sequence[Charge] = (), **overrides: object) -> World:
    defaults: dict[str, object] = {"ledger": a_ledger(*charges)}
    return a_sim_world(*workers, **(defaults | overrides))  # type: ignore[arg-type]  # builders take any field


def accounts(fleet: Fleet, world: World, *groups: Group) -> list[Account]:
    census = take_census(fleet, world)
    return list(open_accounts(fleet, world, census, groups or (a_group(),), (NEW, FREE)))


def a_busy(seconds: int | None = HOUR, **work: object) -> Worker:
    """Return a worker whose work has just begun and is expected to run for so long."""
    defaults = {"scope": "debian", "started_at": NOW, "expected_seconds": seconds}
    return a_worker(busy=True, work=Work.model_validate(defaults | work))


def these(*values: object) -> tuple[object, ...]:
    """Return these figures, to be compared with whole numbers too."""
    return values


def rounded(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.0001"))


# what is left


def test_a_fleet_without_budgets_has_no_accounts() -> None:
    assert accounts(a_budgeted_fleet(), a_spent_world()) == []


def test_a_budget_has_an_account_of_this_period_and_of_the_next() -> None:
    found = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world())

    assert [these(a.period, a.coming, a.limit, a.row.room) for a in found] == [
        ("day", False, 10, 10),
        ("day", True, 10, 10),
    ]
    assert found[0].row.path == ("pools", "builders", "budget", "per_day")


def test_what_was_spent_is_gone_from_this_period_and_not_from_the_next() -> None:
    world = a_spent_world(charges=[a_charge("4")])

    today, tomorrow = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), world)

    assert these(today.spent, today.row.room) == (4, 6)
    assert these(tomorrow.spent, tomorrow.row.room) == (0, 10)


def test_what_is_not_charged_yet_is_spent_all_the_same() -> None:
    ledger = Ledger(charged_until=ago(minutes=30))
    world = a_spent_world(a_worker(), ledger=ledger)

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), world)

    assert today.spent == Decimal("0.5")


def test_an_existing_excess_leaves_nothing_and_not_less() -> None:
    world = a_spent_world(charges=[a_charge("14")])

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), world)

    assert today.row.room == 0


def test_the_row_says_its_figures_in_a_sentence() -> None:
    world = a_spent_world(a_busy(), charges=[a_charge("4")])

    today, tomorrow = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), world)

    assert today.row.because == (
        "the budget of pool builders leaves this plan 4.42 of 10 EUR today (4.00 spent, 1.58 reserved)"
    )
    assert tomorrow.row.because == (
        "the budget of pool builders leaves this plan 10.00 of 10 EUR tomorrow (0.00 spent, 0.00 reserved)"
    )


def test_a_budget_in_another_currency_counts_at_the_stated_rate() -> None:
    fleet = a_budgeted_fleet(
        {"per_day": "10 USD"}, money={"exchange": {"USD": {"rate": 0.5, "as_of": "2026-11-01"}}}
    )

    today, _ = accounts(fleet, a_spent_world(charges=[a_charge("4")]))

    assert these(today.limit, today.unit, today.row.room) == (5, "EUR", 1)


def test_a_machine_priced_in_dollars_takes_euros_of_a_budget_in_euros() -> None:
    fleet = a_budgeted_fleet(
        budgets={"all": {"per_day": "10 EUR"}},
        money={"exchange": {"USD": {"rate": 0.5, "as_of": "2026-11-01"}}},
        pools={
            "builders": a_pool(provider="desk", machine=MACHINE | {"price": "4 USD/h"}),
        },
    )

    today, _ = accounts(fleet, a_spent_world())

    assert rounded(today.row.machines[NEW.key]) == rounded(2 * TAIL)


def test_an_unknown_ledger_leaves_nothing_and_says_so() -> None:
    fleet = a_budgeted_fleet({"per_day": "10 EUR"}, budgets={"all": {"per_month": "99 EUR"}})
    world = a_spent_world(ledger=Unknown(unknown="no store"))

    found = accounts(fleet, world)

    assert [these(a.row.room, a.known) for a in found] == [(0, False)] * 4
    assert found[0].row.because == (
        "what the budget of pool builders has left today is not known: what was spent is unknown: "
        "no store"
    )
    assert all(a.row.machines or a.coming for a in found)


# what exists is reserved


def test_running_work_reserves_what_it_is_expected_still_to_cost() -> None:
    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(a_busy(2 * HOUR)))

    assert rounded(today.reserved) == rounded(2 + TAIL - Decimal(90) / HOUR)


def test_work_of_unknown_duration_reserves_both_periods_to_their_end() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"})

    today, tomorrow = accounts(fleet, a_spent_world(a_busy(None)))

    assert these(today.reserved, tomorrow.reserved) == (16, 24)


def test_a_default_duration_is_expected_where_history_says_nothing() -> None:
    fleet = a_budgeted_fleet(
        budgets={"debian": {"scope": "debian", "per_day": "9 EUR"}}, durations={"any": "3h"}
    )

    today, _ = accounts(fleet, a_spent_world(a_busy(None)))

    assert today.reserved == 3


def test_an_idle_machine_reserves_until_it_can_be_let_go() -> None:
    idle = a_worker(since=ago(minutes=5))

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(idle))

    assert today.reserved == Decimal(10 * 60 + 2 * 600) / HOUR


def test_an_idle_machine_on_hourly_billing_reserves_the_hours_it_is_kept_through() -> None:
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


def test_a_machine_that_waits_to_be_deleted_reserves_two_runs() -> None:
    going = a_worker(draining=True)

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(going))

    assert rounded(today.reserved) == rounded(Decimal(1200) / HOUR)


def test_machines_of_a_silent_provider_reserve_as_their_stack_records_them() -> None:
    world = a_spent_world(a_worker())
    blind = world.model_copy(update={"providers": {"desk": Unknown(unknown="no answer")}})

    today, tomorrow = accounts(a_budgeted_fleet({"per_day": "99 EUR"}), blind)

    assert these(today.reserved, tomorrow.reserved) == (16, 24)


def test_nothing_is_left_where_nobody_knows_what_a_pool_holds() -> None:
    silent = Unknown(unknown="no answer")
    world = a_spent_world(providers={"desk": silent}, stacks={"builders": silent})

    today, _ = accounts(a_budgeted_fleet(budgets={"all": {"per_day": "9 EUR"}}), world)

    assert today.row.room == 0
    assert today.row.because == (
        "what budget all has left today is not known: nobody knows what pool builders holds"
    )


# who pays what


def test_a_filtered_budget_counts_only_the_busy_time_of_its_work() -> None:
    fleet = a_budgeted_fleet(budgets={"debian": {"scope": "debian", "per_day": "10 EUR"}})
    charges = [a_charge("4", scope="debian"), a_charge("2", scope="kali"), a_charge("1")]

    today, _ = accounts(fleet, a_spent_world(a_busy(2 * HOUR), charges=charges))

    assert these(today.spent, today.reserved) == (4, 2)


def test_work_of_others_takes_nothing_of_a_filtered_budget() -> None:
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
def test_every_filter_that_a_budget_names_has_to_fit(
    only: dict[str, object], *, counts: bool
) -> None:
    fleet = a_budgeted_fleet(budgets={"some": {**only, "per_day": "10 EUR"}})
    charge = a_charge("1", scope="debian", tags=("big",))
    world = a_spent_world(a_busy(required=("big",)), charges=[charge])

    today, _ = accounts(fleet, world)

    taken = (bool(today.spent), bool(today.reserved), bool(today.row.requests))
    assert taken == (counts, counts, counts)


def test_a_budget_without_a_filter_counts_everything() -> None:
    fleet = a_budgeted_fleet(budgets={"all": {"per_day": "10 EUR"}})
    charges = [a_charge("4", scope="debian"), a_charge("1"), a_charge("1", pool="gone")]

    today, _ = accounts(fleet, a_spent_world(charges=charges))

    assert today.spent == 6


def test_the_budget_of_a_pool_counts_all_money_of_that_pool_and_of_no_other() -> None:
    charges = [a_charge("4", scope="debian"), a_charge("1"), a_charge("1", pool="other")]

    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(charges=charges))

    assert today.spent == 5


def test_machine_hours_count_time_and_no_money() -> None:
    fleet = a_budgeted_fleet(budgets={"all": {"machine_hours_per_day": 40}})
    world = a_spent_world(a_busy(), charges=[a_charge("99", hours=3)])

    today, _ = accounts(fleet, world)

    assert these(today.unit, today.limit, today.spent) == (HOURS, 40, 3)
    assert rounded(today.reserved) == rounded(1 + TAIL - Decimal(90) / HOUR)
    assert today.row.path == ("budgets", "all", "machine_hours_per_day")


# what is chosen takes


def test_a_new_machine_takes_its_boot_and_idle_time_and_a_request_its_work() -> None:
    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world())

    assert rounded(today.row.machines[NEW.key]) == rounded(TAIL)
    assert rounded(today.row.requests["g", NEW.key]) == 1


def test_on_hourly_billing_machine_and_request_together_take_whole_hours() -> None:
    fleet = a_budgeted_fleet(
        {"per_day": "10 EUR"},
        providers={"desk": {"kind": "sim", "billing": {"increment": "1h"}}},
    )

    today, _ = accounts(fleet, a_spent_world())

    assert these(today.row.machines[NEW.key], today.row.requests["g", NEW.key]) == (1, 1)


def test_a_machine_made_to_stay_takes_both_periods_to_their_end() -> None:
    today, tomorrow = accounts(a_budgeted_fleet({"per_day": "99 EUR"}), a_spent_world())

    assert these(today.row.kept[NEW.key], tomorrow.row.kept[NEW.key]) == (16, 24)


def test_a_request_of_unknown_duration_takes_both_periods_to_their_end() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"})

    today, tomorrow = accounts(fleet, a_spent_world(), a_group(None))

    assert rounded(today.row.requests["g", NEW.key] + today.row.machines[NEW.key]) == 16
    assert tomorrow.row.requests["g", NEW.key] == 24


def test_a_request_on_an_idle_machine_takes_only_the_time_that_was_not_reserved() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"})

    today, _ = accounts(fleet, a_spent_world(a_worker(since=NOW)))

    assert today.row.requests["g", FREE.key] == 1


def test_a_request_on_a_machine_that_stays_anyway_takes_nothing_of_its_pool_s_budget() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, pool={"spare": 1})

    today, _ = accounts(fleet, a_spent_world(a_worker()))

    assert ("g", FREE.key) not in today.row.requests


def test_requests_that_share_a_machine_take_its_time_once() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, pool={"target_wait": "1h"})

    today, _ = accounts(fleet, a_spent_world(), a_group(600, share=0.2))

    assert rounded(today.row.machines[NEW.key]) == rounded(1 + TAIL - Decimal(90) / HOUR)
    assert ("g", NEW.key) not in today.row.requests


def test_a_request_that_outlasts_target_wait_takes_what_is_beyond_it() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, pool={"target_wait": "1h"})

    today, _ = accounts(fleet, a_spent_world(), a_group(5 * HOUR, share=0.9))

    both = today.row.machines[NEW.key] + today.row.requests["g", NEW.key]
    assert rounded(both) == rounded(5 + TAIL)


def test_a_request_on_a_busy_machine_takes_the_time_after_its_present_work() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"})

    today, _ = accounts(fleet, a_spent_world(a_busy(HOUR)), a_group(2 * HOUR))

    assert today.row.requests["g", FREE.key] == 2


def test_a_build_of_20_hours_is_weighed_against_tomorrow_too() -> None:
    fleet = a_budgeted_fleet(budgets={"debian": {"scope": "debian", "per_day": "10 EUR"}})
    evening = datetime.fromisoformat("2026-11-21T20:00Z")
    world = a_spent_world(time=evening)

    today, tomorrow = accounts(fleet, world, a_group(20 * HOUR))

    boot = Decimal(90) / HOUR
    assert rounded(today.row.requests["g", NEW.key]) == rounded(4 - boot)
    assert rounded(tomorrow.row.requests["g", NEW.key]) == rounded(16 + boot)
    assert today.row.requests["g", NEW.key] < today.row.room
    assert tomorrow.row.requests["g", NEW.key] > tomorrow.row.room


def test_the_day_on_which_clocks_go_back_has_an_hour_more_to_pay() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, money={"time_zone": "Europe/Berlin"})
    evening = datetime.fromisoformat("2026-10-24T20:00Z")  # 22:00 on the day before

    today, tomorrow = accounts(fleet, a_spent_world(time=evening), a_group(None))

    assert these(today.row.kept[NEW.key], tomorrow.row.kept[NEW.key]) == (2, 25)


def test_many_machines_in_one_batch_cannot_pass_the_limit_together() -> None:
    fleet = a_budgeted_fleet({"per_hour": "6 EUR"})

    this_hour, next_hour = accounts(fleet, a_spent_world(), a_group(20 * HOUR))

    for account in (this_hour, next_hour):
        each = account.row.machines.get(NEW.key, Decimal(0)) + account.row.requests["g", NEW.key]
        assert account.row.room // each == 6


# verdicts


def test_a_verdict_says_what_was_spent_is_reserved_and_planned() -> None:
    fleet = a_budgeted_fleet({"per_day": "10 EUR"})
    found = accounts(fleet, a_spent_world(a_busy(), charges=[a_charge("4")]))

    today, _ = judge_budgets(found, {NEW.key: 2}, {}, {("g", NEW.key): 2})

    assert these(today.spent, today.exceeded, today.coming) == (4, False, False)
    assert today.planned == rounded(2 * (1 + TAIL))


def test_a_build_that_runs_past_midnight_is_reported_where_it_passes_tomorrow_s_limit() -> None:
    fleet = a_budgeted_fleet(budgets={"debian": {"scope": "debian", "per_day": "10 EUR"}})
    evening = datetime.fromisoformat("2026-11-21T20:00Z")
    running = a_busy(20 * HOUR, started_at=evening)

    found = accounts(fleet, a_spent_world(running, time=evening))

    assert [verdict.exceeded for verdict in judge_budgets(found, {}, {}, {})] == [False, True]


def test_an_exceeded_budget_is_reported() -> None:
    found = accounts(
        a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(charges=[a_charge("14")])
    )

    assert [verdict.exceeded for verdict in judge_budgets(found, {}, {}, {})] == [True, False]
