"""A large component in whole requests: what rounding makes dearer is looked for once more."""

from decimal import Decimal

import pytest

from fleet.allocate import allocate
from fleet.answer import Answer
from fleet.choices import Fit, Group, Place
from fleet.components import components
from fleet.demand import Ordered
from fleet.formulation import Model
from fleet.neighbourhood import improve

FREE = {f"free{n:02}": Place(f"free{n:02}", "free", makes=False, room=1.0) for n in range(20)}
MADE = {
    f"p{n:02}/m/on-demand": Place(
        f"p{n:02}/m/on-demand", f"p{n:02}", makes=True, setup=Decimal(10 + n)
    )
    for n in range(20)
}
PLACES = FREE | MADE


def a_group(nth: int) -> Group:
    name, count = f"g{nth:02}", 1 + nth % 5
    requests = tuple(
        Ordered(order=(0, "", "q", turn, name, turn), key=f"{name}-{turn}", seconds=600)
        for turn in range(count)
    )
    share = 0.25 + nth % 7 / 10
    # Each fits all but one pool, so that no two are averaged.
    fits = {key: Fit(share, Decimal(0)) for n, key in enumerate(sorted(PLACES)) if n != nth}
    return Group(name, (0,), requests, fits)


GROUPS = [a_group(nth) for nth in range(40)]


@pytest.fixture(scope="module")
def model() -> Model:
    (component,) = components(GROUPS, PLACES, ())
    return Model(component, by_rank=False)


def test_whole_requests_near_the_answer_in_parts_cost_less_than_rounded_ones(model: Model) -> None:
    solution = model.programme.solve(model.everybody())
    assert solution is not None
    assert not model.is_exact
    rounded = Answer(model, model.in_whole_requests(solution))

    improved = improve(model, rounded, solution)

    assert improved.cost() < rounded.cost()
    assert improved.is_everybody


def test_what_rounding_costs_is_named_as_the_cause_of_the_gap() -> None:
    proof = allocate(GROUPS, PLACES, ()).proof

    assert proof.rounded
    assert proof.bound < proof.cost < 1.2 * proof.bound
