"""Laws of comparison: they hold for every two fleet.yaml and every world."""

from collections import Counter

from hypothesis import given

from fleet.explain.changes import ComparedPlan, compare
from fleet.model.facts import World
from fleet.report.json import plan_to_json
from fleet.schema.model import Fleet
from tests.builders.queue_worlds import planned
from tests.laws.strategies import fleets, worlds


@given(fleets(), worlds())
def test_comparison_of_a_plan_with_itself_is_empty(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)

    change = compare(plan, plan)

    assert change.is_quiet
    assert change.same_config
    assert (change.pools, change.unknown) == ((), ())


@given(fleets(), fleets(), worlds())
def test_reverse_comparison_is_the_inverse(one: Fleet, other: Fleet, world: World) -> None:
    there = compare(planned(one, world), planned(other, world))
    back = compare(planned(other, world), planned(one, world))

    assert there.is_quiet == back.is_quiet
    assert Counter((a.pool, a.action, a.before, a.after, a.cost) for a in there.actions) == (
        Counter((a.pool, a.action, a.after, a.before, -a.cost) for a in back.actions)
    )
    gained = sum(
        len(each.requests) if each.served else -len(each.requests) for each in there.requests
    )
    lost = sum(
        -len(each.requests) if each.served else len(each.requests) for each in back.requests
    )
    assert gained == lost


@given(fleets(), fleets(), worlds())
def test_action_differences_sum_to_difference_of_plans(
    one: Fleet, other: Fleet, world: World
) -> None:
    base, head = planned(one, world), planned(other, world)

    change = compare(base, head)

    added = sum(each.after - each.before for each in change.actions if not each.withheld)
    assert added == len(head.actions) - len(base.actions)


@given(fleets(), fleets(), worlds())
def test_compared_plan_round_trips_through_json(one: Fleet, other: Fleet, world: World) -> None:
    head = planned(other, world)
    change = compare(planned(one, world), head)

    back = ComparedPlan.model_validate_json(plan_to_json(head, change))

    assert back == ComparedPlan(**dict(head), change=change)
