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


def test_large_component_is_served_at_minimum_cost_within_capacity() -> None:
    allocation = solved(many(0.3, CHEAP, DEAR))

    assert allocation.unserved == {}
    assert allocation.machines == {CHEAP: 240}
    assert allocation.proof.cost == pytest.approx(240)
    assert allocation.proof.bound == pytest.approx(240)
    assert allocation.proof.relaxed == pytest.approx(240, rel=1e-4)


def test_existing_workers_serve_oldest_requests() -> None:
    allocation = solved(many(1.0, CHEAP, FREE))

    assert keys_at(allocation, FREE) == [f"g{number:04}" for number in range(20)]
    assert allocation.machines == {CHEAP: SIZE - 20}


def test_earlier_ranks_are_served_first_at_proven_cost() -> None:
    allocation = solved(many(1.0, CHEAP, DEAR, ranks=3), a_limit(300, CHEAP), a_limit(50, DEAR))

    assert served_by_rank(allocation) == {0: 267, 1: 83}
    assert allocation.machines == {CHEAP: 300, DEAR: 50}
    assert allocation.proof.cost == pytest.approx(400)
    assert allocation.proof.bound == pytest.approx(400)


@pytest.mark.parametrize("ranks", slow_but([200], [200, 320, 400, SIZE]))
def test_earlier_ranks_are_served_first_among_hundreds(ranks: int) -> None:
    groups = many(1.0, CHEAP, DEAR, ranks=ranks)

    allocation = solved(groups, a_limit(500, CHEAP), a_limit(100, DEAR))

    first = sorted(group.rank[0] for group in groups)[:600]
    assert served_by_rank(allocation) == Counter(first)


def test_oldest_requests_of_a_rank_are_served() -> None:
    allocation = solved(many(0.5, CHEAP, DEAR), a_limit(100, CHEAP), a_limit(50, DEAR))

    assert sorted(allocation.unserved) == [f"g{number:04}" for number in range(300, SIZE)]


def test_unserved_request_names_every_limit_of_each_place() -> None:
    cheap, dear = a_limit(100, CHEAP), a_limit(50, DEAR)

    allocation = solved(many(1.0, CHEAP, DEAR, FREE), cheap, dear)

    stops = allocation.unserved[f"g{SIZE - 1:04}"]
    assert [(stop.place, stop.rows) for stop in stops] == [
        (CHEAP, (cheap,)),
        (DEAR, (dear,)),
        (FREE, ()),
    ]


def test_later_rank_is_served_when_earlier_ranks_fit_no_place() -> None:
    stuck = many(1.0, CHEAP, DEAR)
    other = [replace(group, rank=(1,), fits={FREE: Fit()}) for group in stuck[:10]]
    other = [replace(group, id=f"other{nth}") for nth, group in enumerate(other)]

    allocation = solved([*stuck, *other], a_limit(5, CHEAP), a_limit(0, DEAR))

    assert served_by_rank(allocation) == {0: 5, 1: 10}


@pytest.mark.parametrize("room", ["101", "100.5", "99.9"])
def test_budget_with_unequal_weights_is_respected_and_nearly_used(room: str) -> None:
    groups = many(1.0, CHEAP, DEAR, ranks=2)
    takes = {
        (group.id, place): Decimal(1 + number % 3)
        for number, group in enumerate(groups)
        for place in group.fits
    }
    budget = LimitRow(("budgets", "b"), "b is used up", Decimal(room), requests=takes)

    allocation = solved(groups, budget)

    taken = sum((takes[at] * count for at, count in allocation.counts.items()), Decimal(0))
    assert Decimal(room) - 3 < taken <= Decimal(room)
    assert set(served_by_rank(allocation)) == {0}


def test_bound_is_proven_when_budget_is_used_to_its_last_cent() -> None:
    budget = LimitRow(("budgets", "b"), "b is used up", Decimal("52.5"), {CHEAP: Decimal("0.5")})

    allocation = solved(many(1.0, CHEAP, DEAR, ranks=2), budget, a_limit(5, DEAR))

    assert served_by_rank(allocation) == {0: 110}
    assert allocation.machines == {CHEAP: 105, DEAR: 5}
    assert allocation.proof.bound == allocation.proof.cost == pytest.approx(115)


def test_machines_and_requests_count_to_one_limit_together() -> None:
    groups = many(0.5, CHEAP, DEAR)
    takes = {(group.id, CHEAP): Decimal(1) for group in groups}
    both = LimitRow(("budgets", "b"), "b is used up", Decimal(200), {CHEAP: Decimal(2)}, takes)

    allocation = solved(groups, both, a_limit(10, DEAR))

    assert allocation.machines == {CHEAP: 50, DEAR: 10}
    assert len(allocation.unserved) == SIZE - 100 - 20


def test_expensive_machine_is_created_when_its_work_is_cheaper() -> None:
    fits = {CHEAP: Fit(money=Decimal(3)), DEAR: Fit(money=Decimal(1))}

    allocation = solved([a_group(number, fits) for number in range(SIZE)])

    assert allocation.machines == {DEAR: SIZE}
    assert allocation.proof.cost == pytest.approx(3 * SIZE)


def test_allocation_is_independent_of_group_order() -> None:
    groups = many(0.3, CHEAP, DEAR, FREE, ranks=3)
    rows = a_limit(40, CHEAP), a_limit(20, DEAR)

    there, back = solved(groups, *rows), solved(groups[::-1], *rows)

    assert there.served == back.served
    assert there.machines == back.machines


def test_scarce_worker_serves_request_without_alternative() -> None:
    choosy = [replace(group, fits={FREE: Fit()}) for group in many(1.0, FREE)]
    choosy += [
        replace(a_group(SIZE + number, {FREE: Fit()}), id=f"more{number}")
        for number in range(SIZE)
    ]
    easy = [a_group(-number, {FREE: Fit(), OTHER: Fit()}) for number in range(1, 21)]

    allocation = solved([*choosy, *easy])

    assert len(keys_at(allocation, FREE)) == 20
    assert len(keys_at(allocation, OTHER)) == 20


def test_repair_removes_requests_that_count_to_the_exceeded_limit() -> None:
    counted = many(1.0, CHEAP, DEAR)
    takes = {
        (group.id, place): Decimal(1 + number % 3)
        for number, group in enumerate(counted)
        for place in group.fits
    }
    budget = LimitRow(("budgets", "b"), "b is used up", Decimal("100.5"), requests=takes)
    others = [
        replace(a_group(SIZE + number, {DEAR: Fit()}), rank=(1,)) for number in range(SIZE // 4)
    ]

    allocation = solved([*counted, *others], budget)

    taken = sum((takes.get(at, 0) * count for at, count in allocation.counts.items()), Decimal(0))
    assert taken <= Decimal("100.5")
    assert served_by_rank(allocation)[1] == len(others)


def test_request_that_gains_least_from_worker_gets_a_machine() -> None:
    fits = [
        {CHEAP: Fit(money=Decimal(number % 3)), FREE: Fit(share=0.5)} for number in range(SIZE)
    ]

    allocation = solved([a_group(number, each) for number, each in enumerate(fits)])

    served = {int(key[1:]) % 3 for key in keys_at(allocation, FREE)}
    assert served == {2}
    assert len(allocation.served[FREE]) == 41
    assert allocation.proof.bound == pytest.approx(allocation.proof.cost)


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
