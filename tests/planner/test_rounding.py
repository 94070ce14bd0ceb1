"""Rounding puts nobody where no room is; what it takes past a limit is taken back exactly."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from fleet.planner.allocation import allocate
from fleet.planner.assignment import Assignment
from fleet.planner.demand import Fit, LimitRow, Ordered, RequestGroup
from fleet.planner.formulation import Component, Model
from tests.builders.choosing import CHEAP, FREE, a_place, free_workers


def a_group(name: str, rank: int, came: int, *places: str) -> RequestGroup:
    request = Ordered(order=(0, 0, "q", came, name, came), key=name, seconds=600)
    return RequestGroup(name, (rank,), (request,), {place: Fit() for place in places})


def answered(
    groups: Sequence[RequestGroup], counts: Mapping[str, int], *rows: LimitRow
) -> Assignment:
    """Return the answer that begins with so many of each group at each place."""
    places = (a_place(CHEAP), free_workers(FREE, 9))
    component = Component(tuple(groups), places, rows)
    model = Model(component, by_rank=True, exact=0)
    return Assignment.rounded(model, dict.fromkeys(range(len(model.blocks)), counts))


def left(answer: Assignment) -> list[str]:
    return [request.key for block in answer.unserved for _, request, _ in block]


def test_repair_removes_latest_rank_at_a_limit() -> None:
    groups = [a_group("early", 1, 1, FREE), a_group("late", 0, 2, FREE)]
    takes = {(group.id, FREE): Decimal(1) for group in groups}
    row = LimitRow(("x",), "at x", Decimal(1), requests=takes)

    answer = answered(groups, {FREE: 1}, row)

    assert left(answer) == ["early"]
    assert answer.used == [1]


def test_repair_keeps_requests_that_do_not_count_to_the_limit() -> None:
    groups = [a_group("first", 0, 1, FREE), a_group("last", 1, 2, FREE)]
    row = LimitRow(("x",), "at x", Decimal(0), requests={("first", FREE): Decimal(1)})

    assert left(answered(groups, {FREE: 1}, row)) == ["first"]


def test_repair_removes_surplus_machine_with_its_requests() -> None:
    groups = [a_group("first", 0, 1, CHEAP), a_group("last", 1, 2, CHEAP)]
    row = LimitRow(("x",), "at x", Decimal(1), {CHEAP: Decimal(1)})

    answer = answered(groups, {CHEAP: 1}, row)

    assert left(answer) == ["last"]
    assert answer.machines == {CHEAP: 1}


def test_limit_exceeded_by_fixed_use_removes_no_request() -> None:
    groups = [a_group("first", 0, 1, FREE)]
    row = LimitRow(("x",), "at x", Decimal(-1), {CHEAP: Decimal(1)})

    assert left(answered(groups, {FREE: 1}, row)) == []


def test_integer_requests_fit_their_worker_together() -> None:
    places = {key: free_workers(key, 1.0) for key in ("a", "b", "c")}
    groups = [
        replace(a_group(name, 0, nth, *places), fits=dict.fromkeys(places, Fit(0.6)))
        for nth, name in enumerate("12345")
    ]

    allocation = allocate(groups, places, (), exact=0)

    assert [len(allocation.served[place]) for place in places] == [1, 1, 1]
    assert sorted(allocation.unserved) == ["4", "5"]
