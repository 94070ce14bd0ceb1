"""Large components: rounding, repair of ranks, search, and the bounds of the relaxation."""

import os
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from fleet.planner.allocation import Allocation, allocate
from fleet.planner.assignment import Assignment
from fleet.planner.demand import Fit, LimitRow, Ordered, Place, RequestGroup
from fleet.planner.formulation import Component, Model, components
from fleet.planner.solver import Program, Relaxation
from tests.builders.choosing import a_middling_problem

FREE = {f"free{n:02}": Place(f"free{n:02}", "free", makes=False, room=1.0) for n in range(20)}
MADE = {
    f"p{n:02}/m/on-demand": Place(
        f"p{n:02}/m/on-demand", f"p{n:02}", makes=True, setup=Decimal(10 + n)
    )
    for n in range(20)
}
PLACES = FREE | MADE


def a_group(nth: int, share: float | None = None) -> RequestGroup:
    name, count = f"g{nth:02}", 1 + nth % 5
    requests = tuple(
        Ordered(order=(0, 0, "q", turn, name, turn), key=f"{name}-{turn}", seconds=600)
        for turn in range(count)
    )
    share = share or 0.25 + nth % 7 / 10
    # Each fits all but one pool, so that no two are alike.
    fits = {key: Fit(share, Decimal(0)) for n, key in enumerate(sorted(PLACES)) if n != nth}
    return RequestGroup(name, (0,), requests, fits)


GROUPS = [a_group(nth) for nth in range(40)]


@pytest.fixture(scope="module")
def allocation() -> Allocation:
    return allocate(GROUPS, PLACES, ())


def test_large_component_costs_the_relaxation_rounded_up(allocation: Allocation) -> None:
    proof = allocation.proof

    assert proof.cost == pytest.approx(460)
    assert 450 < proof.relaxed <= proof.bound <= proof.cost


@pytest.mark.slow
def test_proof_names_rounding_as_the_cause_of_a_gap() -> None:
    groups = [a_group(nth, 0.6 + nth / 10_000) for nth in range(257)]

    proof = allocate(groups, PLACES, ()).proof

    assert proof.rounded
    assert 1.001 * proof.bound < proof.cost < 1.02 * proof.bound


def test_large_component_weighs_each_request_by_its_own_cost() -> None:
    near, far = "a/m/on-demand", "b/m/on-demand"
    places = {
        near: Place(near, "a", makes=True, setup=Decimal(1)),
        far: Place(far, "b", makes=True, setup=Decimal(2)),
    }
    requests = [Ordered((0, 0, "q", n, f"g{n}", n), key=f"g{n}", seconds=600) for n in range(2)]
    groups = [
        RequestGroup(
            "g0", (0,), (requests[0],), {near: Fit(1.0, Decimal(1)), far: Fit(0.5, Decimal(1))}
        ),
        RequestGroup(
            "g1", (0,), (requests[1],), {near: Fit(1.0, Decimal(3)), far: Fit(1.0, Decimal(1))}
        ),
    ]

    allocation = allocate(groups, places, (), exact=0)

    assert allocation.proof.cost == pytest.approx(5)


@pytest.mark.parametrize("seed", range(10))
def test_large_component_serves_each_rank_as_the_exact_search_does(seed: int) -> None:
    problem = a_middling_problem(seed)

    large, best = (problem.lacking(problem.solved(exact)) for exact in (0, 10**6))

    assert large == best


@pytest.mark.parametrize("seed", range(10))
def test_large_component_costs_little_more_than_the_exact_search(seed: int) -> None:
    problem = a_middling_problem(seed)

    large, best = (problem.solved(exact).proof.cost for exact in (0, 10**6))

    assert large <= 1.01 * best + 1e-6


NEAR, FAR = "a/m/on-demand", "b/m/on-demand"


def two_ranks(*rows: LimitRow) -> Program:
    """Return the program of two requests of an earlier and two of a later rank at one place."""
    place = Place(NEAR, "a", makes=False, room=9.0)
    groups = [
        replace(a_group(1), id=f"g{rank}", rank=(rank,), fits={NEAR: Fit()}) for rank in (0, 1)
    ]
    return Model(Component(tuple(groups), (place,), rows), by_rank=True, exact=0).program


def limit_both(room: str) -> LimitRow:
    takes = {(f"g{rank}", NEAR): Decimal(1) for rank in (0, 1)}
    return LimitRow(("x",), "at x", Decimal(room), requests=takes)


def test_search_serves_one_more_of_a_rank_when_a_later_rank_yields() -> None:
    program = two_ranks(limit_both("2"))
    values = np.array([1.0, 1.0, 1.0, 1.0])
    values[2:] = 0.0
    values[program.totals] = values[:2]
    first = program.count_costs([0])

    raised = program.search(
        [np.arange(len(values))], values, first, program.row_bounds(), nodes=9, gap=0.1
    )

    assert raised[:2].tolist() == [2, 0]


def test_search_moves_requests_to_cheaper_columns_with_the_same_sums() -> None:
    places = tuple(
        Place(key, key[0], makes=False, room=room) for key, room in ((NEAR, 1.0), (FAR, 9.0))
    )
    fits = {NEAR: Fit(), FAR: Fit()}
    component = Component((replace(a_group(1), fits=fits),), places, ())
    program = Model(component, by_rank=False, exact=0).program
    values, costs = np.array([0.0, 2.0, 2.0]), np.array([1.0, 3.0, 0.0])

    found = program.search([np.arange(2)], values, costs, program.row_bounds(), nodes=1, gap=0.0)

    assert found.tolist() == [1, 1, 2]


def test_relaxation_reaches_the_maxima_that_it_found() -> None:
    program = two_ranks(limit_both("2.99995"))
    relaxation = Relaxation(program)
    maxima = []
    for rank, row in enumerate(program.rank_rows):
        found = relaxation.minimize(program.count_costs([rank]))
        assert found is not None
        maxima.append(int(1e-6 - found.bound))
        relaxation.bound_row(row, maxima[-1], np.inf)

    assert maxima == [2, 0]
    assert relaxation.minimize(program.costs) is not None


def test_relaxation_yields_no_bound_when_the_solver_stopped_early() -> None:
    program = two_ranks()
    relaxation = Relaxation(program)
    relaxation.solver.setOptionValue("simplex_iteration_limit", 0)

    assert relaxation.minimize(program.count_costs([0])) is None


def test_assignment_serves_a_request_left_by_rounding_at_least_cost() -> None:
    near, far = "a/m/on-demand", "b/m/on-demand"
    places = {
        near: Place(near, "a", makes=True, setup=Decimal(10)),
        far: Place(far, "b", makes=True, setup=Decimal(1)),
    }
    requests = tuple(Ordered((0, 0, "q", n, "g", n), key=f"g{n}", seconds=600) for n in range(3))
    fits = {near: Fit(0.5, Decimal(0)), far: Fit(1.0, Decimal(5))}
    (component,) = components([RequestGroup("g", (0,), requests, fits)], places, ())

    assignment = Assignment.rounded(Model(component, by_rank=False, exact=0), {0: {near: 1}})

    assert [{place: len(own) for place, own in at.items()} for at in assignment.served] == [
        {near: 2, far: 1}
    ]
    assert assignment.machines == {near: 1, far: 1}


def test_allocation_does_not_depend_on_the_processor(allocation: Allocation) -> None:
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
