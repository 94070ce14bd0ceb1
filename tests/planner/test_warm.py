"""What a pool says of its warm capacity where a limit keeps it from making a machine."""

import pytest

from fleet.model.facts import World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_request, a_sim_world, a_worker
from tests.builders.budgeting import a_ledger
from tests.builders.deciding import fleet_with
from tests.builders.sentences import tells


def because(fleet: Fleet, world: World) -> str:
    """Return why the pool `builders` has so many."""
    (verdict,) = reconcile(fleet, world).pools
    return verdict.because


def test_pool_creating_its_min_has_only_that_reason() -> None:
    assert because(fleet_with(min=2), a_sim_world()) == "workers.min is 2"


def test_pool_names_the_limit_that_keeps_it_below_min() -> None:
    assert tells(
        because(fleet_with(min=3, max_starting=1), a_sim_world()),
        "workers.min",
        "3",
        "2",
        "builders",
        "workers.max_starting",
        "1",
    )


def test_pool_names_the_limit_that_keeps_it_below_spare() -> None:
    world = a_sim_world(a_worker(busy=True), requests=(a_request(),))

    assert tells(
        because(fleet_with(max=2, spare=1), world),
        "1",
        "workers.spare",
        "1",
        "1",
        "builders",
        "workers.max",
        "2",
    )


def test_exhausted_budget_is_named_with_its_remainder() -> None:
    machine = {"type": "ccx33", "price": "1 EUR/h"}
    fleet = fleet_with(min=2, machine=machine, budget={"per_hour": "1.40 EUR"})

    said = because(fleet, a_sim_world(ledger=a_ledger()))

    assert tells(
        said,
        "workers.min",
        "2",
        "1",
        "builders",
        "0.40",
        "1.40 EUR",
        "0.00",
        "0.00",
        "1.00",
        "1.00",
    )


def test_spare_machine_is_withheld_by_budget_used_by_requests() -> None:
    machine = {"type": "ccx33", "price": "1 EUR/h"}
    fleet = fleet_with(spare=1, machine=machine, budget={"per_hour": "1.40 EUR"})
    world = a_sim_world(requests=(a_request(expected_seconds=600),), ledger=a_ledger())

    said = because(fleet, world)

    assert tells(said, "workers.spare", "1", "1", "builders")
    assert tells(said, "0.40", "1.40 EUR", "1.00", "machine", "1.00")
    assert "0.00 planned" not in said


@pytest.mark.parametrize("key", ["min", "spare"])
@pytest.mark.parametrize("limit", ["per_day", "per_month"])
def test_permanent_machine_respects_budget_while_requests_wait(key: str, limit: str) -> None:
    machine = {"type": "ccx33", "price": "1 EUR/h"}
    fleet = fleet_with(machine=machine, budget={limit: "20 EUR"}, **{key: 1})
    world = a_sim_world(requests=(a_request(expected_seconds=600),), ledger=a_ledger())

    plan = reconcile(fleet, world)

    # It would cost more today or tomorrow than the budget allows, idle after the request.
    assert plan.actions == ()
    assert [each.path for each in plan.unserved] == [("pools", "builders", "budget", limit)]
    assert tells(plan.pools[0].because, f"workers.{key}")


def test_reason_for_pool_without_creations_is_given_once() -> None:
    said = because(fleet_with(min=1, mode="pause"), a_sim_world())

    assert tells(said, "workers.min", "1", "mode", "pause")


def test_pool_explains_missing_spare_machine_while_requests_wait() -> None:
    requests = tuple(a_request(id=str(number)) for number in range(1, 4))

    assert tells(
        because(fleet_with(max=2, spare=1), a_sim_world(requests=requests)),
        "2",
        "1",
        "workers.spare",
        "1",
    )
