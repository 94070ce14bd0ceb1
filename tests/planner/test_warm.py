"""What a pool says of its warm capacity where a limit keeps it from making a machine."""

from fleet.model.facts import World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_request, a_sim_world, a_worker
from tests.builders.budgeting import a_ledger
from tests.builders.deciding import fleet_with


def because(fleet: Fleet, world: World) -> str:
    """Return why the pool `builders` has so many."""
    (verdict,) = reconcile(fleet, world).pools
    return verdict.because


def test_a_pool_whose_min_is_made_only_says_what_min_is() -> None:
    assert because(fleet_with(min=2), a_sim_world()) == "workers.min is 2"


def test_a_pool_names_the_limit_that_keeps_it_below_min() -> None:
    assert because(fleet_with(min=3, max_starting=1), a_sim_world()) == (
        "workers.min is 3, but 2 are not created: pool builders is at workers.max_starting (1) "
        "with what this plan makes"
    )


def test_a_pool_names_the_limit_that_keeps_it_below_spare() -> None:
    world = a_sim_world(a_worker(busy=True), requests=(a_request(),))

    assert because(fleet_with(max=2, spare=1), world) == (
        "1 waiting request is served here; workers.spare is 1, but 1 is not created: "
        "pool builders is at workers.max (2) with what this plan makes"
    )


def test_a_budget_that_is_used_up_is_named_with_what_it_leaves() -> None:
    machine = {"type": "ccx33", "price": "1 EUR/h"}
    fleet = fleet_with(min=2, machine=machine, budget={"per_hour": "1.40 EUR"})

    said = because(fleet, a_sim_world(ledger=a_ledger()))

    assert said == (
        "workers.min is 2, but 1 is not created: the budget of pool builders has 0.40 of 1.40 EUR "
        "left this hour (0.00 spent, 0.00 reserved, 1.00 planned), and one machine more "
        "needs 1.00"
    )


def test_a_spare_machine_is_kept_back_by_a_budget_that_waiting_requests_use() -> None:
    machine = {"type": "ccx33", "price": "1 EUR/h"}
    fleet = fleet_with(spare=1, machine=machine, budget={"per_hour": "1.40 EUR"})
    world = a_sim_world(requests=(a_request(expected_seconds=600),), ledger=a_ledger())

    said = because(fleet, world)

    assert "workers.spare is 1, but 1 is not created: the budget of pool builders has " in said
    assert " planned), and one machine more needs " in said
    assert "0.00 planned" not in said


def test_why_a_pool_makes_no_machine_at_all_is_said_once() -> None:
    said = because(fleet_with(min=1, mode="pause"), a_sim_world())

    assert said == "workers.min is 1; creates no machines: mode is pause"


def test_a_pool_says_that_no_spare_machine_is_made_while_requests_wait_for_it() -> None:
    requests = tuple(a_request(id=str(number)) for number in range(1, 4))

    assert because(fleet_with(max=2, spare=1), a_sim_world(requests=requests)) == (
        "2 waiting requests are served here; 1 more could run here, but waits; workers.spare is "
        "1, but none is created while requests wait for this pool"
    )
