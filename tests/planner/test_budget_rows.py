"""What a plan takes of budgets, one sentence per test. Machines cost 1 EUR/h; it is 08:00."""

from dataclasses import replace
from decimal import Decimal

import pytest

from fleet.schema.model import Fleet
from tests.builders import NOW, a_worker
from tests.builders.budgeting import (
    FREE,
    HOUR,
    NEW,
    a_budgeted_fleet,
    a_busy,
    a_group,
    a_spent_world,
    accounts,
    rounded,
)

# what is chosen takes


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


# verdicts


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
