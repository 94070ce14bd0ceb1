"""A build above a whole budget is found on each day of the month."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from fleet.explain.costs import BuildCosts, compare_builds, find_budget_needs
from fleet.guard import guard
from fleet.model.facts import World
from fleet.planner.step import move_time
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_reading, a_request, a_sim_fleet, a_sim_world, a_worker

PATH = ("budgets", "all", "per_month")
FIRST, LAST = (datetime(2026, 11, day, 7, tzinfo=UTC) for day in (1, 30))


def a_budget_fleet(
    amount: str, others: dict[str, object] | None = None, **budget: object
) -> Fleet:
    """Return a fleet whose builds take a day, which costs 1.91 EUR with boot and idle time."""
    pools = {"builders": a_pool(provider="desk", max=5), **(others or {})}
    budgets = {"all": {"per_month": f"{amount} EUR"} | budget}
    return a_sim_fleet(pools=pools, budgets=budgets, durations={"any": "24h"})


def a_world_at(moment: datetime) -> World:
    return move_time(a_sim_world(requests=(a_request(),)), moment)


@pytest.mark.parametrize("moment", [FIRST, LAST], ids=["first", "last"])
def test_need_is_that_of_a_whole_month_on_each_day(moment: datetime) -> None:
    needs = find_budget_needs(a_budget_fleet("1.60"), a_world_at(moment))

    assert needs.keys() == {PATH}
    assert (needs[PATH].builds, needs[PATH].needed > Decimal("1.9")) == (1, True)
    assert needs == find_budget_needs(a_budget_fleet("1.60"), a_world_at(FIRST))


@pytest.mark.parametrize("moment", [FIRST, LAST], ids=["first", "last"])
def test_budget_above_one_build_has_no_need(moment: datetime) -> None:
    assert find_budget_needs(a_budget_fleet("2.20"), a_world_at(moment)) == {}


def test_static_workers_need_no_budget() -> None:
    fleet = a_budget_fleet("1.60", {"lab": {"static": ["lab-1"]}})
    worker = a_worker(name="lab-1", machine=None, pool=None, static=True)

    queues = {"debian": a_reading(a_request(), workers=(worker,))}

    assert find_budget_needs(fleet, move_time(a_sim_world(queues=queues), LAST)) == {}


@pytest.mark.parametrize("moment", [FIRST, LAST], ids=["first", "last"])
def test_report_of_a_change_names_builds_above_a_whole_budget(moment: datetime) -> None:
    world = a_world_at(moment)
    costs = [
        BuildCosts(fleet, world, guard(fleet, reconcile(fleet, world)))
        for fleet in map(a_budget_fleet, ("9", "1.60"))
    ]

    (stopped,) = compare_builds(world, costs[0], costs[1], [PATH], ()).stopped

    assert (stopped.count, stopped.path, stopped.is_lasting) == (1, PATH, True)
