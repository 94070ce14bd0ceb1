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


@pytest.mark.parametrize(
    "budget", [{"per_day": "99 EUR"}, {"per_hour": "99 EUR"}, {"machine_hours_per_day": 99}]
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


# time for which `reuse` keeps a machine

HELD = Decimal(90 + 2 * HOUR + 3 * 600) / HOUR
"""Boot, reuse.opportunity and three runs: the first assigns the ticket."""
KEEPS = [{}, {"min": 1}, {"spare": 1}, {"mode": "pause"}]
ALL = {"budgets": {"all": {"per_day": "99 EUR"}}}
OWN = {"budgets": {"debian": {"scope": "debian", "per_day": "99 EUR"}}}
TICKETS = {"queues": {"debian": {"kind": "tickets"}}}
TICKET = replace(a_group(), id="debian/g")


def a_reusing_fleet(
    of_pool: dict[str, str] | None, pool: dict[str, object], **overrides: object
) -> Fleet:
    """Return a fleet whose pool keeps a machine of a sandbox for two hours."""
    reuse = {"reuse": {"opportunity": "2h", "max_age": None}}
    return a_budgeted_fleet(of_pool, pool=reuse | pool, **(TICKETS | overrides))


@pytest.mark.parametrize("keeps", KEEPS)
@pytest.mark.parametrize(
    ("of_pool", "overrides"), [({"per_day": "99 EUR"}, {}), (None, ALL), (None, OWN)]
)
def test_request_takes_time_of_reuse(
    of_pool: dict[str, str] | None, overrides: dict[str, object], keeps: dict[str, object]
) -> None:
    fleet, world = a_reusing_fleet(of_pool, keeps, **overrides), a_spent_world(a_worker())

    today, _ = accounts(fleet, world, TICKET)

    both = today.row.machines[NEW.key] + today.row.requests[TICKET.id, NEW.key]
    assert rounded(both) == rounded(1 + HELD)


@pytest.mark.parametrize("keeps", KEEPS)
def test_request_takes_time_of_reuse_when_it_gets_an_existing_machine(
    keeps: dict[str, object],
) -> None:
    fleet, world = a_reusing_fleet(None, keeps, **OWN), a_spent_world(a_worker(since=NOW))

    today, _ = accounts(fleet, world, TICKET)

    expected = Decimal(HOUR + 2 * HOUR + 2 * 600) / HOUR
    assert rounded(today.row.requests[TICKET.id, FREE.key]) == rounded(expected)


def test_request_without_ticket_takes_no_time_of_reuse() -> None:
    fleet = a_reusing_fleet({"per_day": "99 EUR"}, {})

    today, _ = accounts(fleet, a_spent_world(a_worker(since=NOW)), a_group())

    both = today.row.machines[NEW.key] + today.row.requests["g", NEW.key]
    assert rounded(both) == rounded(1 + TAIL)
    assert today.row.requests["g", FREE.key] == 1


@pytest.mark.parametrize(
    ("reuse", "seconds"),
    [
        ({"opportunity": "2h", "max_age": "30m"}, 30 * 60),
        ({"opportunity": "2h"}, HOUR),
        ({"opportunity": "5m"}, 15 * 60),
    ],
)
def test_request_takes_longer_of_idle_time_and_time_of_reuse(
    reuse: dict[str, str], seconds: int
) -> None:
    fleet = a_reusing_fleet({"per_day": "99 EUR"}, {"reuse": reuse})

    today, _ = accounts(fleet, a_spent_world(), TICKET)

    both = today.row.machines[NEW.key] + today.row.requests[TICKET.id, NEW.key]
    assert rounded(both) == rounded(Decimal(HOUR + 90 + seconds + 3 * 600) / HOUR)


@pytest.mark.parametrize(
    ("mode", "seconds"), [("pause", 15 * 60), ("apply", 0), ("observe", 0), ("drain", 0)]
)
def test_idle_time_counts_when_a_pool_on_demand_is_paused(mode: str, seconds: int) -> None:
    tags = {"extra": {"on_demand": True}}
    pool: dict[str, object] = {"provides": ["extra"], "mode": mode}
    fleet = a_budgeted_fleet(None, pool=pool, tags=tags, **OWN)

    today, _ = accounts(fleet, a_spent_world(a_worker(since=NOW)), a_group())

    expected = Decimal(HOUR + seconds + 2 * 600) / HOUR
    assert rounded(today.row.requests["g", FREE.key]) == rounded(expected)


def test_request_takes_time_of_reuse_when_its_pool_is_on_demand() -> None:
    tags = {"extra": {"on_demand": True}}
    fleet = a_reusing_fleet({"per_day": "99 EUR"}, {"provides": ["extra"]}, tags=tags)

    today, _ = accounts(fleet, a_spent_world(), TICKET)

    both = today.row.machines[NEW.key] + today.row.requests[TICKET.id, NEW.key]
    assert rounded(both) == rounded(1 + HELD)


def test_idle_machine_reserves_time_of_reuse_when_it_is_in_a_sandbox() -> None:
    fleet = a_reusing_fleet({"per_day": "99 EUR"}, {})

    for sandbox, seconds in (("sandbox:ann/one", 2 * HOUR), ("sandbox: ticket 1", 15 * 60)):
        worker = a_worker(since=NOW, uses=1, requires=(sandbox,))
        today, _ = accounts(fleet, a_spent_world(worker))

        assert rounded(today.reserved) == rounded(Decimal(seconds + 2 * 600) / HOUR)
