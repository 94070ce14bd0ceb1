"""What a change costs for good: once nothing waits, and nothing is replaced any more."""

from fleet.explain.changes import find_rest
from fleet.guard import guard
from fleet.model.facts import World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker
from tests.builders.deciding import fleet_with


def rest(fleet: Fleet, world: World) -> tuple[float, float] | None:
    """Return what a fleet costs at rest, in an hour and in a month."""
    found = find_rest(fleet, guard(fleet, reconcile(fleet, world)))
    return None if found is None else (float(found.hour), float(found.month))


def priced(price: str, **pool: object) -> Fleet:
    return fleet_with(machine={"type": "ccx33", "price": f"{price} EUR/h"}, **pool)


def test_outdated_machines_cost_price_of_their_replacements() -> None:
    world = a_sim_world(*(a_worker(name=n, machine=n, busy=True) for n in ("a", "b")))

    assert rest(priced("0.10", max=4), world) == (0.2, 146)
    assert rest(priced("0.25", max=4), world) == (0.5, 365)


def test_rest_cost_excludes_request_machines_and_keeps_spare_ones() -> None:
    world = a_sim_world(requests=tuple(a_request(id=str(number)) for number in range(4)))

    assert rest(priced("0.10", max=4), world) == (0, 0)
    assert rest(priced("0.10", max=4, spare=1), world) == (0.1, 73)
    assert rest(priced("0.10", max=4, min=3, spare=1), world) == (0.3, 219)


def test_month_has_at_most_the_hours_billed_by_its_provider() -> None:
    fleet = a_sim_fleet(
        pools={
            "builders": a_pool(
                provider="desk", max=1, min=1, machine={"type": "ccx33", "price": "1 EUR/h"}
            )
        },
        providers={"desk": {"kind": "sim", "billing": {"hours_per_month": 624}}},
    )

    assert rest(fleet, a_sim_world()) == (1, 624)


def test_rest_cost_is_unknown_without_a_price() -> None:
    fleet = fleet_with(max=2, machine={"cores": 8, "memory": "16GiB"})

    assert rest(fleet, a_sim_world(a_worker(busy=True))) is None
    assert rest(fleet, a_sim_world()) == (0, 0)
