"""An answer in parts is rounded: ranks in turn, by fixing numbers or by searching whole ones."""

import pytest

from fleet.planner.dive import dive
from fleet.planner.formulation import Answer, Component, Model
from tests.builders.choosing import a_middling_problem

ALWAYS, NEVER = 10**6, 0
"""Up to how many columns whole numbers are searched for."""


def a_model(seed: int) -> Model:
    problem = a_middling_problem(seed)
    return Model(Component(problem.groups, problem.places, problem.rows), by_rank=True, exact=0)


def rounded(model: Model, small: int) -> tuple[list[int], list[int]]:
    """Return how many of each rank an answer in parts serves, and how many whole numbers do."""
    rows = [row for row, _ in model.ranks]
    most = model.programme.most_in_parts(rows)
    values = dive(model, most, small=small)
    assert all(value == int(value) >= 0 for value in values)
    answer = Answer(model, model.in_whole_requests(values))
    served = [number for _, number in answer.sums_by_rank()]
    return most, served


@pytest.mark.parametrize("seed", range(6))
def test_rounding_serves_no_more_than_parts_do_and_hardly_less(seed: int) -> None:
    most, served = rounded(a_model(seed), NEVER)

    first = next(
        (n for n, pair in enumerate(zip(most, served, strict=True)) if len({*pair}) > 1), None
    )
    assert first is None or most[first] > served[first]
    assert sum(served) >= 0.9 * sum(most)


@pytest.mark.parametrize("seed", range(6))
def test_of_the_first_rank_that_differs_a_search_serves_more_than_rounding(seed: int) -> None:
    model = a_model(seed)

    assert rounded(model, ALWAYS)[1] >= rounded(model, NEVER)[1]
