"""Workers whose new work a budget cannot pay for are drained. It is 08:00; 1 EUR/h a machine."""

import pytest

from fleet.model.facts import Listing, Unknown, World
from fleet.model.plan import Plan, Reason
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_request, a_worker, ago
from tests.builders.budgeting import (
    MACHINE,
    a_budgeted_fleet,
    a_charge,
    a_spent_world,
)
from tests.builders.deciding import FIRST, SECOND

DAY = {"per_day": "10 EUR"}
OTHER = "debian-ci-more-0001"
IDLE = a_worker(name=FIRST, since=ago(minutes=1))


def drains(fleet: Fleet, world: World) -> list[str]:
    """Return the workers that the plan drains because of a budget."""
    return _workers(reconcile(fleet, world), "drain")


def _workers(plan: Plan, action: str) -> list[str]:
    found = [a for a in plan.actions if a.reason is Reason.BUDGET_USED_UP]
    return [a.worker for a in found if a.action == action]


@pytest.mark.parametrize(
    ("spent", "planned"), [("5", ["create"]), ("6.5", ["drain"]), ("7.5", ["drain", "drain"])]
)
def test_no_machine_is_created_when_workers_are_drained(spent: str, planned: list[str]) -> None:
    pools = {
        name: a_pool(provider="desk", machine=MACHINE, provides=[name])
        for name in ("builders", "more")
    }
    hourly = {"desk": {"kind": "sim", "billing": {"increment": "1h"}}}
    fleet = a_budgeted_fleet(budgets={"all": DAY}, pools=pools, providers=hourly)
    workers = [a_worker(name=name, since=ago(minutes=1)) for name in (FIRST, SECOND)]
    waiting = a_request(required=["more"], expected_seconds=300)
    world = a_spent_world(*workers, requests=(waiting,), charges=[a_charge(spent)])

    assert [a.action for a in reconcile(fleet, world).actions] == planned


def test_unknown_spending_drains_no_worker() -> None:
    world = a_spent_world(IDLE, ledger=Unknown(unknown="locked"))

    assert drains(a_budgeted_fleet(DAY), world) == []


def test_unknown_price_drains_no_worker() -> None:
    world = a_spent_world(IDLE, charges=[a_charge("12")])
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    machines = tuple(m.altered(type="m99") for m in listing.machines)
    world = world.altered(providers={"desk": listing.altered(machines=machines)})
    fleet = a_budgeted_fleet(pools={"builders": a_pool(provider="desk", budget=DAY)})

    assert [each.cost_known for each in reconcile(fleet, world).workers] == [False]
    assert drains(fleet, world) == []


def test_worker_drained_for_one_budget_uses_no_amount_of_another() -> None:
    pools = {
        name: a_pool(provider="desk", machine=MACHINE, provides=[name], budget=budget)
        for name, budget in (("builders", {"per_day": "5 EUR"}), ("more", None))
    }
    workers = [IDLE, a_worker(name=OTHER, pool="more", since=ago(minutes=1))]
    fleet = a_budgeted_fleet(budgets={"all": DAY}, pools=pools)
    charges = [a_charge("5"), a_charge("3.8", pool="more")]

    assert drains(fleet, a_spent_world(*workers, charges=charges)) == [FIRST]


@pytest.mark.parametrize(
    ("only", "exclusive", "drained"),
    [
        ({"tags": ["big"]}, True, [FIRST]),
        ({"tags": ["big"]}, False, []),
        ({"tags": ["big"], "scope": "debian"}, True, []),
        ({"scope": "debian"}, True, []),
    ],
)
def test_budget_with_filter_drains_only_workers_of_its_exclusive_tag(
    only: dict[str, object], *, exclusive: bool, drained: list[str]
) -> None:
    fleet = a_budgeted_fleet(
        pool={"provides": ["big"]},
        tags={"big": {"exclusive": exclusive}},
        budgets={"some": {**only, **DAY}},
    )
    charge = a_charge("10", tags=("big",), scope="debian")

    assert drains(fleet, a_spent_world(IDLE, charges=[charge])) == drained
