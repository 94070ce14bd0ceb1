"""What a plan takes of budgets, one sentence per test. Machines cost 1 EUR/h; it is 08:00."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import pytest

from fleet.planner.budgets import judge_budgets
from fleet.schema.model import Fleet
from tests.builders import NOW, a_worker
from tests.builders.budgeting import (
    FREE,
    HOUR,
    NEW,
    TAIL,
    a_budgeted_fleet,
    a_busy,
    a_charge,
    a_group,
    a_spent_world,
    accounts,
    rounded,
    these,
)

# what is chosen takes


def test_machine_uses_budget_for_boot_and_idle_and_request_for_work() -> None:
    today, _ = accounts(a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world())

    assert rounded(today.row.machines[NEW.key]) == rounded(TAIL)
    assert rounded(today.row.requests["g", NEW.key]) == 1


def test_hourly_machine_and_request_use_whole_hours_of_budget() -> None:
    fleet = a_budgeted_fleet(
        {"per_day": "10 EUR"},
        providers={"desk": {"kind": "sim", "billing": {"increment": "1h"}}},
    )

    today, _ = accounts(fleet, a_spent_world())

    assert these(today.row.machines[NEW.key], today.row.requests["g", NEW.key]) == (1, 1)


def test_permanent_machine_uses_both_periods_to_their_end() -> None:
    today, tomorrow = accounts(a_budgeted_fleet({"per_day": "99 EUR"}), a_spent_world())

    assert these(today.row.kept[NEW.key], tomorrow.row.kept[NEW.key]) == (16, 24)


@pytest.mark.parametrize("key", ["min", "spare"])
@pytest.mark.parametrize("increment", ["1s", "1h"])
@pytest.mark.parametrize(
    ("of_pool", "overrides"),
    [
        ({"per_day": "99 EUR"}, {}),
        (None, {"budgets": {"all": {"per_day": "99 EUR"}}}),
        (None, {"budgets": {"all": {"machine_hours_per_day": 99}}}),
    ],
    ids=["of a pool", "of all", "of hours"],
)
def test_first_machines_use_both_periods_when_pool_is_below_min(
    of_pool: dict[str, str] | None, overrides: dict[str, object], increment: str, key: str
) -> None:
    billed = {"desk": {"kind": "sim", "billing": {"increment": increment}}}
    fleet = a_budgeted_fleet(of_pool, pool={key: 1}, providers=billed, **overrides)

    for duration in (HOUR, None):
        today, tomorrow = accounts(fleet, a_spent_world(), a_group(duration))

        assert these(today.row.machines[NEW.key], tomorrow.row.machines[NEW.key]) == (16, 24)
        assert ("g", NEW.key) not in {*today.row.requests, *tomorrow.row.requests}


def test_new_machine_uses_budget_to_its_end_when_min_is_reached() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, pool={"min": 1})

    today, _ = accounts(fleet, a_spent_world(a_worker()))

    assert rounded(today.row.machines[NEW.key]) == rounded(TAIL)


def test_request_of_unknown_duration_uses_budget_to_end_of_periods() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"})

    today, tomorrow = accounts(fleet, a_spent_world(), a_group(None))

    assert rounded(today.row.requests["g", NEW.key] + today.row.machines[NEW.key]) == 16
    assert tomorrow.row.requests["g", NEW.key] == 24


def test_request_on_idle_machine_uses_unreserved_time() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"})

    today, _ = accounts(fleet, a_spent_world(a_worker(since=NOW)))

    assert today.row.requests["g", FREE.key] == 1


def test_request_on_permanent_machine_uses_no_budget() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, pool={"spare": 1})

    today, _ = accounts(fleet, a_spent_world(a_worker()))

    assert ("g", FREE.key) not in today.row.requests


def test_requests_that_share_a_machine_use_its_time_once() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, pool={"target_wait": "1h"})

    today, _ = accounts(fleet, a_spent_world(), a_group(600, share=0.2))

    assert rounded(today.row.machines[NEW.key]) == rounded(1 + TAIL - Decimal(90) / HOUR)
    assert ("g", NEW.key) not in today.row.requests


def test_request_beyond_target_wait_uses_budget_for_the_rest() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, pool={"target_wait": "1h"})

    today, _ = accounts(fleet, a_spent_world(), a_group(5 * HOUR, share=0.9))

    both = today.row.machines[NEW.key] + today.row.requests["g", NEW.key]
    assert rounded(both) == rounded(5 + TAIL)


@pytest.mark.parametrize(
    ("limit", "count", "reserved", "takes"),
    [
        (9, 5, 4, None),  # two machines take one more hour each, for any number of requests
        (9, 1, 2, 1),
        (3, 5, 3, None),  # the budget pays for one machine, whose next hour is reserved
    ],
)
def test_requests_that_share_existing_machines_extend_each_bill_once(
    limit: int, count: int, reserved: int, takes: int | None
) -> None:
    billed = {"desk": {"kind": "sim", "billing": {"increment": "1h"}}}
    pool = {"target_wait": "1h"}
    fleet = a_budgeted_fleet({"per_day": f"{limit} EUR"}, pool=pool, providers=billed)
    world = a_spent_world(a_worker(), a_worker(name="debian-ci-builders-0002"))

    today, _ = accounts(fleet, world, a_group(600, share=0.2, count=count))

    assert today.reserved == reserved
    assert today.row.requests.get(("g", FREE.key)) == takes
    assert today.row.room == limit - reserved


def test_next_work_stays_reserved_when_requests_share_no_machine() -> None:
    billed = {"desk": {"kind": "sim", "billing": {"increment": "1h"}}}
    fleet = a_budgeted_fleet({"per_day": "3 EUR"}, providers=billed)
    world = a_spent_world(a_worker(), a_worker(name="debian-ci-builders-0002"))

    today, _ = accounts(fleet, world, a_group(600, count=1))

    assert these(today.reserved, today.row.room) == (3, 0)


def test_request_on_busy_machine_uses_time_after_current_work() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"})

    today, _ = accounts(fleet, a_spent_world(a_busy(HOUR)), a_group(2 * HOUR))

    assert today.row.requests["g", FREE.key] == 2


@pytest.mark.parametrize(
    "budget",
    [{"per_day": "99 EUR"}, {"per_hour": "99 EUR"}, {"machine_hours_per_day": 99}],
)
def test_request_uses_no_more_when_its_machine_is_permanent(budget: dict[str, str]) -> None:
    fleet = a_budgeted_fleet(
        pool={"target_wait": "1h"}, budgets={"debian": {"scope": "debian", **budget}}
    )

    found = accounts(fleet, a_spent_world(a_busy(None)), a_group(HOUR, share=0.5))

    assert [("g", FREE.key) in account.row.requests for account in found] == [False, False]
    assert all(account.reserved for account in found)


def test_build_of_20_hours_uses_budget_of_tomorrow() -> None:
    fleet = a_budgeted_fleet(budgets={"debian": {"scope": "debian", "per_day": "10 EUR"}})
    evening = datetime.fromisoformat("2026-11-21T20:00Z")
    world = a_spent_world(time=evening)

    today, tomorrow = accounts(fleet, world, a_group(20 * HOUR))

    takes = [
        each.row.machines.get(NEW.key, 0) + each.row.requests["g", NEW.key]
        for each in (today, tomorrow)
    ]
    assert [rounded(each) for each in takes] == [4, rounded(16 + TAIL)]
    assert takes[0] < today.row.room
    assert takes[1] > tomorrow.row.room


def test_budget_period_has_25_hours_when_clocks_go_back() -> None:
    fleet = a_budgeted_fleet({"per_day": "99 EUR"}, money={"time_zone": "Europe/Berlin"})
    evening = datetime.fromisoformat("2026-10-24T20:00Z")  # 22:00 on the day before

    today, tomorrow = accounts(fleet, a_spent_world(time=evening), a_group(None))

    assert these(today.row.kept[NEW.key], tomorrow.row.kept[NEW.key]) == (2, 25)


def test_batch_of_machines_never_exceeds_budget() -> None:
    fleet = a_budgeted_fleet({"per_hour": "6 EUR"})

    this_hour, next_hour = accounts(fleet, a_spent_world(), a_group(20 * HOUR))

    for account in (this_hour, next_hour):
        each = account.row.machines.get(NEW.key, Decimal(0)) + account.row.requests["g", NEW.key]
        assert account.row.room // each == 6


# verdicts


def test_budget_verdict_has_spent_reserved_and_planned() -> None:
    fleet = a_budgeted_fleet({"per_day": "10 EUR"})
    found = accounts(fleet, a_spent_world(a_busy(), charges=[a_charge("4")]))

    today, _ = judge_budgets(found, {NEW.key: 2}, {}, {("g", NEW.key): 2})

    assert these(today.spent, today.exceeded, today.coming) == (4, False, False)
    assert today.planned == rounded(2 * (1 + TAIL))


def test_build_past_midnight_exceeds_budget_of_tomorrow() -> None:
    fleet = a_budgeted_fleet(budgets={"debian": {"scope": "debian", "per_day": "10 EUR"}})
    evening = datetime.fromisoformat("2026-11-21T20:00Z")
    running = a_busy(20 * HOUR, started_at=evening)

    found = accounts(fleet, a_spent_world(running, time=evening))

    assert [verdict.exceeded for verdict in judge_budgets(found, {}, {}, {})] == [False, True]


def test_exceeded_budget_is_reported() -> None:
    found = accounts(
        a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(charges=[a_charge("14")])
    )

    assert [verdict.exceeded for verdict in judge_budgets(found, {}, {}, {})] == [True, False]


# time for which `reuse` keeps a machine

HELD = Decimal(90 + 2 * HOUR + 2 * 600) / HOUR
"""Boot, reuse.opportunity and two runs."""
KEEPS = [{}, {"min": 1}, {"spare": 1}, {"mode": "pause"}]
ALL = {"budgets": {"all": {"per_day": "99 EUR"}}}
OWN = {"budgets": {"debian": {"scope": "debian", "per_day": "99 EUR"}}}


def a_reusing_fleet(
    of_pool: dict[str, str] | None, pool: dict[str, object], **overrides: object
) -> Fleet:
    """Return a fleet whose pool keeps a machine of a sandbox for two hours."""
    reuse = {"reuse": {"opportunity": "2h", "max_age": None}}
    return a_budgeted_fleet(of_pool, pool=reuse | pool, **overrides)


@pytest.mark.parametrize("keeps", KEEPS)
@pytest.mark.parametrize(
    ("of_pool", "overrides"), [({"per_day": "99 EUR"}, {}), (None, ALL), (None, OWN)]
)
def test_request_takes_time_of_reuse_when_it_is_in_a_sandbox(
    of_pool: dict[str, str] | None, overrides: dict[str, object], keeps: dict[str, object]
) -> None:
    fleet, world = a_reusing_fleet(of_pool, keeps, **overrides), a_spent_world(a_worker())

    for is_held, tail in ((True, HELD), (False, TAIL)):
        today, _ = accounts(fleet, world, replace(a_group(), is_held=is_held))

        both = today.row.machines[NEW.key] + today.row.requests["g", NEW.key]
        assert rounded(both) == rounded(1 + tail)


@pytest.mark.parametrize("keeps", KEEPS)
def test_request_takes_time_of_reuse_when_it_gets_an_existing_machine(
    keeps: dict[str, object],
) -> None:
    fleet, world = a_reusing_fleet(None, keeps, **OWN), a_spent_world(a_worker(since=NOW))

    for is_held, seconds in ((True, 2 * HOUR), (False, 15 * 60)):
        today, _ = accounts(fleet, world, replace(a_group(), is_held=is_held))

        expected = Decimal(HOUR + seconds + 2 * 600) / HOUR
        assert rounded(today.row.requests["g", FREE.key]) == rounded(expected)


@pytest.mark.parametrize(
    ("reuse", "seconds"),
    [
        ({"opportunity": "2h", "max_age": "30m"}, 30 * 60),
        ({"opportunity": "2h"}, HOUR),
        ({"opportunity": "5m"}, 5 * 60),
    ],
)
def test_request_takes_shorter_time_when_reuse_ends_before(
    reuse: dict[str, str], seconds: int
) -> None:
    fleet = a_reusing_fleet({"per_day": "99 EUR"}, {"reuse": reuse})

    today, _ = accounts(fleet, a_spent_world(), replace(a_group(), is_held=True))

    both = today.row.machines[NEW.key] + today.row.requests["g", NEW.key]
    assert rounded(both) == rounded(Decimal(HOUR + 90 + seconds + 2 * 600) / HOUR)


@pytest.mark.parametrize(
    ("mode", "seconds"), [("pause", 15 * 60), ("apply", 0), ("observe", 0), ("drain", 0)]
)
def test_idle_time_counts_when_a_pool_on_demand_is_paused(mode: str, seconds: int) -> None:
    tags = {"extra": {"on_demand": True}}
    pool: dict[str, object] = {"provides": ["extra"], "mode": mode}
    fleet = a_reusing_fleet(None, pool, tags=tags, **OWN)

    today, _ = accounts(fleet, a_spent_world(a_worker(since=NOW)), a_group())

    expected = Decimal(HOUR + seconds + 2 * 600) / HOUR
    assert rounded(today.row.requests["g", FREE.key]) == rounded(expected)


def test_request_takes_time_of_reuse_when_its_pool_is_on_demand() -> None:
    tags = {"extra": {"on_demand": True}}
    fleet = a_reusing_fleet({"per_day": "99 EUR"}, {"provides": ["extra"]}, tags=tags)

    today, _ = accounts(fleet, a_spent_world(), replace(a_group(), is_held=True))

    both = today.row.machines[NEW.key] + today.row.requests["g", NEW.key]
    assert rounded(both) == rounded(1 + HELD)


def test_idle_machine_reserves_time_of_reuse_when_it_is_in_a_sandbox() -> None:
    fleet = a_reusing_fleet({"per_day": "99 EUR"}, {})

    for sandbox, seconds in (("sandbox:ann/one", 2 * HOUR), ("sandbox: ticket 1", 15 * 60)):
        worker = a_worker(since=NOW, uses=1, requires=(sandbox,))
        today, _ = accounts(fleet, a_spent_world(worker))

        assert rounded(today.reserved) == rounded(Decimal(seconds + 2 * 600) / HOUR)
