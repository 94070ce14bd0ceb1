"""Allocation: of one rank, who came first is served."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleet.planner.allocation import Allocation
from fleet.planner.demand import RequestGroup
from tests.builders.choosing import (
    CHEAP,
    DEAR,
    FREE,
    Problem,
    a_group,
    a_limit,
    a_place,
    free_workers,
    lost,
    served,
    solved,
)


def arriving(group: RequestGroup, first: int, step: int = 1) -> RequestGroup:
    """Return a group whose requests come at these turns of the queue."""
    return replace(
        group,
        requests=tuple(
            request._replace(order=(0, 0, "q", first + step * nth, request.key, 1))
            for nth, request in enumerate(group.requests)
        ),
    )


THIRD = "third/m/on-demand"


@pytest.mark.parametrize("first", [(CHEAP,), (CHEAP, DEAR), (CHEAP, THIRD)])
@pytest.mark.parametrize("second", [(CHEAP,), (CHEAP, DEAR), (DEAR, CHEAP, THIRD)])
def test_oldest_requests_of_rank_are_served_despite_other_fits(
    first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    places = [a_place(CHEAP), a_place(DEAR), a_place(THIRD)]
    odd, even = a_group("odd", 3, *first), a_group("even", 3, *second)

    allocation = solved(
        places,
        [arriving(even, 2, 2), arriving(odd, 1, 2)],
        a_limit(3, CHEAP),
        a_limit(0, DEAR),
        a_limit(0, THIRD),
    )

    assert served(allocation) == {CHEAP: ["odd1", "even1", "odd2"]}
    assert sorted(allocation.unserved) == ["even2", "even3", "odd3"]


def test_younger_request_moves_for_older_one_without_solver() -> None:
    young = arriving(a_group("young", 2, FREE, CHEAP), 1, 2)
    old = arriving(a_group("old", 1, FREE), 2)
    problem = Problem((young, old), (free_workers(FREE, 2.0), a_place(CHEAP)), ())

    allocation = problem.solved(solve=False)

    assert served(allocation) == {CHEAP: ["young2"], FREE: ["young1", "old1"]}


@given(
    st.lists(
        st.sets(st.sampled_from([FREE, "other", CHEAP, DEAR]), min_size=1), min_size=1, max_size=12
    )
)
@example([{"other", CHEAP, DEAR}, {"other", CHEAP}])
def test_existing_workers_serve_oldest_fitting_requests(fits: list[set[str]]) -> None:
    """The queue gives its free worker to the first that fits it, whatever a plan says."""
    groups = [
        arriving(a_group(f"g{nth:02}-", 1, *sorted(each)), nth) for nth, each in enumerate(fits)
    ]
    places = [free_workers(FREE, 2), free_workers("other", 1), a_place(CHEAP), a_place(DEAR)]

    at = {keys: place for place, found in served(solved(places, groups)).items() for keys in found}

    for older, younger in combinations(range(len(fits)), 2):
        new, existing = at.get(f"g{older:02}-1"), at.get(f"g{younger:02}-1")
        assert (
            new not in (CHEAP, DEAR)
            or existing not in (FREE, "other")
            or new not in fits[younger]
            or existing not in fits[older]
        )


def test_check_of_ranks_detects_wrong_order() -> None:
    groups = [a_group("early", 2, DEAR), a_group("late", 1, DEAR, rank=1)]
    places, rows = {DEAR: a_place(DEAR)}, [a_limit(1, DEAR)]
    found = Allocation(unserved={"early1": (), "early2": ()})
    found.counts["late", DEAR] = 1

    assert lost(groups, places, rows, found) == 2
    assert lost(groups, places, rows, solved([*places.values()], groups, *rows)) == 0
