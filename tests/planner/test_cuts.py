"""Rows that are cut hold of every answer in whole numbers, and not of the one in parts."""

from itertools import product
from random import Random

import numpy as np

from fleet.planner.cuts import SLACK
from fleet.planner.programme import Programme

KINDS, EACH = 5, 3
"""Kinds of requests, and how many there are of each: what is not served here is elsewhere."""
SUMS = [(kind, EACH) for kind in range(KINDS)]


def a_programme(seed: int) -> Programme:
    """Return one where all want to be served here, which two limits keep from them."""
    chance, programme = Random(seed), Programme()  # noqa: S311 - the same in every run
    for _ in range(KINDS):
        both = programme.columns([1.0, float(chance.randint(3, 9))], EACH, whole=False)
        programme.row(both, [1.0, 1.0], EACH)
    here = range(0, 2 * KINDS, 2)
    for _ in range(2):
        takes = [chance.choice((0.35, 0.6, 1.0, 2.5)) for _ in here]
        programme.row(here, takes, chance.choice((3.0, 3.7, 5.2)))
    return programme


def whole_answers(programme: Programme) -> list[np.ndarray]:
    answers = []
    for here in product(range(EACH + 1), repeat=KINDS):
        values = np.array([n for own in here for n in (own, EACH - own)], dtype=float)
        if (programme.room_beside(values) >= -SLACK).all():
            answers.append(values)
    return answers


def test_no_whole_answer_is_cut_off_and_the_one_in_parts_is() -> None:
    found = 0
    for seed in range(40):
        programme = a_programme(seed)
        sifted, first = programme.sifted, len(programme.ends)
        assert sifted.reach(SUMS, ())
        assert sifted.cheapest(np.array(programme.costs)) is not None
        before, whole = sifted.values(), whole_answers(programme)

        sifted.cut()

        limits = sifted.solver.getLp().row_upper_[first:]
        for (columns, factors), limit in zip(sifted.rows[first:], limits, strict=True):
            assert factors @ before[columns] > limit
            assert all(factors @ values[columns] <= limit for values in whole)
            found += 1
    assert found > 40


def test_a_cut_bound_is_never_above_the_cheapest_whole_answer() -> None:
    raised = 0
    for seed in range(40):
        programme = a_programme(seed)
        least = min(np.array(programme.costs) @ values for values in whole_answers(programme))

        relaxed = programme.relax(SUMS)

        assert relaxed is not None
        assert relaxed.cost <= relaxed.bound <= least + SLACK
        raised += relaxed.bound > relaxed.cost + SLACK
    assert raised > 20
