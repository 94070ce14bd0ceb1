"""Allocation of large components: solved in parts, and in whole numbers near that."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from bench.worlds import Size, scene_of, world_of
from fleet.planner.allocation import Allocation, allocate
from fleet.planner.demand import Fit, LimitRow, Ordered, Place, RequestGroup
from fleet.reconcile import reconcile
from tests.rigs.repeats import slow_but

EQUAL = "also/m/on-demand"
CHEAP, DEAR, FREE, OTHER = "cheap/m/on-demand", "dear/m/on-demand", "free", "other"
PLACES = {
    CHEAP: Place(CHEAP, "cheap", makes=True, setup=Decimal(1)),
    DEAR: Place(DEAR, "dear", makes=True, setup=Decimal(2)),
    FREE: Place(FREE, "free", makes=False, room=20.5),
    OTHER: Place(OTHER, "other", makes=False, room=20),
}
SIZE = 800
"""Groups with two places each: more pairs than are searched whole."""


def a_group(number: int, fits: dict[str, Fit], rank: int = 0) -> RequestGroup:
    """Return a group of one request; the lower its number, the earlier it came."""
    name = f"g{number:04}"
    request = Ordered(order=(0, 0, "q", number, name, 1), key=name, seconds=600)
    return RequestGroup(name, (rank,), (request,), fits)


def many(share: float, *places: str, ranks: int = 1) -> list[RequestGroup]:
    fits = {place: Fit(share) for place in places}
    return [a_group(number, fits, number % ranks) for number in range(SIZE)]


def solved(groups: list[RequestGroup], *rows: LimitRow) -> Allocation:
    return allocate(groups, PLACES, rows)


def a_limit(room: int, place: str) -> LimitRow:
    return LimitRow(("pools", place), f"at {room}", Decimal(room), {place: Decimal(1)})


def served_by_rank(allocation: Allocation) -> Counter[int]:
    return Counter(rank for at in allocation.served.values() for (rank, *_), _ in at)


def keys_at(allocation: Allocation, place: str) -> list[str]:
    return [request.key for _, request in allocation.served[place]]


def test_existing_workers_serve_oldest_requests() -> None:
    allocation = solved(many(1.0, CHEAP, FREE))

    assert keys_at(allocation, FREE) == [f"g{number:04}" for number in range(20)]
    assert allocation.machines == {CHEAP: SIZE - 20}


@pytest.mark.parametrize("ranks", slow_but([200], [200, 320, 400, SIZE]))
def test_earlier_ranks_are_served_first_among_hundreds(ranks: int) -> None:
    groups = many(1.0, CHEAP, DEAR, ranks=ranks)

    allocation = solved(groups, a_limit(500, CHEAP), a_limit(100, DEAR))

    first = sorted(group.rank[0] for group in groups)[:600]
    assert served_by_rank(allocation) == Counter(first)


def test_oldest_requests_of_a_rank_are_served() -> None:
    allocation = solved(many(0.5, CHEAP, DEAR), a_limit(100, CHEAP), a_limit(50, DEAR))

    assert sorted(allocation.unserved) == [f"g{number:04}" for number in range(300, SIZE)]


def test_bound_is_proven_when_budget_is_used_to_its_last_cent() -> None:
    budget = LimitRow(("budgets", "b"), "b is used up", Decimal("52.5"), {CHEAP: Decimal("0.5")})

    allocation = solved(many(1.0, CHEAP, DEAR, ranks=2), budget, a_limit(5, DEAR))

    assert served_by_rank(allocation) == {0: 110}
    assert allocation.machines == {CHEAP: 105, DEAR: 5}
    assert allocation.proof.bound == allocation.proof.cost == pytest.approx(115)


def test_bound_omits_worker_capacity_below_one_request() -> None:
    fits = {CHEAP: Fit(), OTHER: Fit()}
    places = PLACES | {OTHER: replace(PLACES[OTHER], room=19.9)}

    allocation = allocate([a_group(number, fits) for number in range(SIZE)], places, ())

    assert allocation.proof.bound == allocation.proof.cost == pytest.approx(SIZE - 19)


@pytest.mark.parametrize(("by_priority", "made"), [(False, {CHEAP: 800}), (True, {DEAR: 800})])
def test_priority_of_pools_precedes_or_breaks_ties_of_cost(
    *, by_priority: bool, made: dict[str, int]
) -> None:
    fits = {CHEAP: Fit(), EQUAL: Fit(priority=-1), DEAR: Fit(priority=1)}
    places = PLACES | {EQUAL: replace(PLACES[CHEAP], key=EQUAL, pool="also")}
    groups = [replace(a_group(number, fits), by_priority=by_priority) for number in range(SIZE)]

    allocation = allocate(groups, places, ())

    assert allocation.machines == made
    assert allocation.proof.bound == pytest.approx(SIZE, rel=1e-4)


@pytest.mark.engine  # takes long
@pytest.mark.parametrize(("limited", "most"), [(False, 1.01), (True, 1.06)])
def test_generated_fleet_costs_nearly_its_bound(*, limited: bool, most: float) -> None:
    scene = scene_of(Size(1_000, 300, 40, 100, limited=limited))

    optimum = reconcile(scene.fleet, world_of(scene)).optimum

    assert optimum is not None
    assert float(optimum.cost / optimum.model_bound) <= most
