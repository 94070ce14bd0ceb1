"""Ranks of a large component are served in turn, as if it was searched whole."""

import pytest

from fleet.planner.programme import Programme
from tests.builders.choosing import a_middling_problem

WHOLE, LARGE = 10**6, 0
"""How many pairs of group and place are searched whole."""


@pytest.mark.parametrize("seed", range(20))
def test_no_rank_gets_less_than_if_all_was_searched(seed: int) -> None:
    problem = a_middling_problem(seed)

    large, whole = problem.solved(LARGE), problem.solved(WHOLE)

    assert problem.lacking(large) == problem.lacking(whole)
    assert large.proof.cost <= 1.05 * whole.proof.cost


def test_an_answer_in_parts_bounds_how_many_more_may_be_served() -> None:
    programme = Programme()
    columns = programme.columns([1.0, 1.0], 5, whole=False)
    programme.row(columns, [1.0, 1.0], least=None, most=6)

    assert programme.most([1], [([0], 4)]) == pytest.approx([4, 2])
    assert programme.most([1], [([0], 6)]) is None
