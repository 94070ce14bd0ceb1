"""A large component in whole requests: what rounding makes dearer is looked for once more."""

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from fleet.planner.allocation import Allocation, allocate, improve
from fleet.planner.demand import Fit, Group, Ordered, Place
from fleet.planner.dive import dive
from fleet.planner.formulation import Answer, Component, Model, components
from fleet.planner.programme import Programme
from fleet.planner.reassign import assign_anew
from tests.builders.choosing import a_middling_problem

FREE = {f"free{n:02}": Place(f"free{n:02}", "free", makes=False, room=1.0) for n in range(20)}
MADE = {
    f"p{n:02}/m/on-demand": Place(
        f"p{n:02}/m/on-demand", f"p{n:02}", makes=True, setup=Decimal(10 + n)
    )
    for n in range(20)
}
PLACES = FREE | MADE


def a_group(nth: int, share: float | None = None) -> Group:
    name, count = f"g{nth:02}", 1 + nth % 5
    requests = tuple(
        Ordered(order=(0, 0, "q", turn, name, turn), key=f"{name}-{turn}", seconds=600)
        for turn in range(count)
    )
    share = share or 0.25 + nth % 7 / 10
    # Each fits all but one pool, so that no two are alike.
    fits = {key: Fit(share, Decimal(0)) for n, key in enumerate(sorted(PLACES)) if n != nth}
    return Group(name, (0,), requests, fits)


GROUPS = [a_group(nth) for nth in range(40)]


@pytest.fixture(scope="module")
def model() -> Model:
    (component,) = components(GROUPS[:25], PLACES, ())
    return Model(component, by_rank=False, exact=0)


def test_whole_requests_near_the_answer_in_parts_cost_less_than_rounded_ones(model: Model) -> None:
    relaxed = model.programme.relax(model.everybody())
    assert relaxed is not None
    assert not model.is_exact
    rounded = Answer(model, model.in_whole_requests(relaxed.values))

    improved = improve(model, rounded)

    assert improved.cost() < rounded.cost()
    assert not any(improved.left)


@pytest.fixture(scope="module")
def allocation() -> Allocation:
    return allocate(GROUPS, PLACES, ())


def test_a_large_component_costs_no_more_than_in_parts_and_one_part_of_a_machine(
    allocation: Allocation,
) -> None:
    proof = allocation.proof

    assert proof.cost == pytest.approx(460)
    assert 454 < proof.relaxed <= proof.bound <= proof.cost


@pytest.mark.slow
def test_what_rounding_costs_is_named_as_the_cause_of_the_gap() -> None:
    groups = [a_group(nth, 0.6 + nth / 10_000) for nth in range(257)]

    proof = allocate(groups, PLACES, ()).proof

    assert proof.rounded
    assert proof.relaxed < 0.99 * proof.bound
    assert 1.001 * proof.bound < proof.cost < 1.005 * proof.bound


def test_what_is_cheaper_on_average_is_left_where_it_is_dearer_for_who_is_served() -> None:
    near, far = "a/m/on-demand", "b/m/on-demand"
    places = {
        near: Place(near, "a", makes=True, setup=Decimal(1)),
        far: Place(far, "b", makes=True, setup=Decimal(2)),
    }
    requests = [Ordered((0, 0, "q", n, f"g{n}", n), key=f"g{n}", seconds=600) for n in range(2)]
    groups = [
        Group("g0", (0,), (requests[0],), {near: Fit(1.0, Decimal(1)), far: Fit(0.5, Decimal(1))}),
        Group("g1", (0,), (requests[1],), {near: Fit(1.0, Decimal(3)), far: Fit(1.0, Decimal(1))}),
    ]

    allocation = allocate(groups, places, (), exact=0)

    assert allocation.proof.cost == pytest.approx(5)


def rounded_by_rank(seed: int) -> tuple[Model, Answer]:
    problem = a_middling_problem(seed)
    component = Component(problem.groups, problem.places, problem.rows)
    model = Model(component, by_rank=True, exact=0)
    most = model.programme.most_in_parts([row for row, _ in model.ranks])
    return model, Answer(model, model.in_whole_requests(dive(model, most, small=0)))


def test_with_limits_who_is_reassigned_costs_no_earlier_rank_anything() -> None:
    cheaper = 0
    for seed in range(10):
        model, rounded = rounded_by_rank(seed)

        improved = improve(model, rounded)

        assert improved.badness() <= rounded.badness()
        limits = zip(improved.taken, model.rows, strict=True)
        assert all(taken <= row.room for taken, row in limits)
        cheaper += improved.badness() < rounded.badness()
    assert cheaper > 0


def test_begun_anew_an_answer_keeps_all_limits_and_may_serve_ranks_better() -> None:
    better = 0
    for seed in range(10):
        model, rounded = rounded_by_rank(seed)
        relaxed = model.programme.relax(rounded.sums(), reached=rounded.values())
        assert relaxed is not None

        anew = assign_anew(model, rounded, relaxed)

        limits = zip(anew.taken, model.rows, strict=True)
        assert all(taken <= row.room for taken, row in limits)
        better += anew.badness() < rounded.badness()
    assert better > 0


def test_where_not_all_have_room_the_dearest_to_leave_out_is_placed() -> None:
    programme = Programme()
    columns = [
        *programme.columns([1.0], 1, whole=False),
        *programme.columns([2.0], 1, whole=False),
    ]
    rows = [programme.row([each], [1.0], 1) for each in columns]
    programme.row(columns, [1.0, 1.0], 1)
    sums, prices = [(row, 1) for row in rows], np.array([5.0, 9.0, 0.0])

    values = programme.search([columns], np.zeros(2), sums, prices=prices)

    assert values.tolist() == [0, 1]


def test_of_the_most_that_can_be_served_in_turn_a_cheapest_answer_is_found() -> None:
    programme = Programme()
    columns = programme.columns([1.0, 1.0], 5, whole=False)
    programme.row([columns[0]], [1.0], 2)
    programme.row(columns, [1.0, 1.0], 2.99995)
    rows = [programme.row([each], [1.0]) for each in columns]

    most = programme.most_in_parts(rows)

    assert most == [2, 0]
    assert programme.relax([*zip(rows, most, strict=True)]) is not None


def test_an_answer_in_parts_that_is_not_cheapest_proves_nothing() -> None:
    programme = Programme()
    columns = programme.columns([1.0], 5, whole=False)
    programme.row(columns, [1.0], 5)
    sifted = programme.sifted
    sifted.begin()
    sifted.solver.setOptionValue("simplex_iteration_limit", 0)

    assert not [*sifted.run(np.array([-1.0]))]


def test_a_request_left_out_by_rounding_goes_where_it_costs_least() -> None:
    near, far = "a/m/on-demand", "b/m/on-demand"
    places = {
        near: Place(near, "a", makes=True, setup=Decimal(10)),
        far: Place(far, "b", makes=True, setup=Decimal(1)),
    }
    requests = tuple(Ordered((0, 0, "q", n, "g", n), key=f"g{n}", seconds=600) for n in range(3))
    fits = {near: Fit(0.5, Decimal(0)), far: Fit(1.0, Decimal(5))}
    (component,) = components([Group("g", (0,), requests, fits)], places, ())

    answer = Answer(Model(component, by_rank=False, exact=0), [{near: 1}])

    assert [{place: len(own) for place, own in at.items()} for at in answer.served] == [
        {near: 2, far: 1}
    ]
    assert answer.machines == {near: 1, far: 1}


def test_an_answer_does_not_depend_on_the_processor(allocation: Allocation) -> None:
    here = Path(__file__).parents[2]

    told = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import tell; tell()"],
        cwd=here,
        env=os.environ | {"OPENBLAS_CORETYPE": "Prescott", "PYTHONPATH": str(here)},
        check=True,
        capture_output=True,
    ).stdout

    assert told.decode() == say(allocation)


def tell() -> None:
    sys.stdout.write(say(allocate(GROUPS, PLACES, ())))


def say(allocation: Allocation) -> str:
    return repr((allocation.machines, allocation.proof, sorted(allocation.counts.items())))
