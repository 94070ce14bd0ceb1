"""Laws of time and money: a build has one cost at a place, whatever shows it."""

from hypothesis import given

from fleet.explain.builds import find_reach
from fleet.explain.case import Case
from fleet.explain.costs import (
    BuildCosts,
    OptionFinder,
    compare_builds,
    rule_for,
    way_to,
    ways_of_requests,
)
from fleet.explain.edits import FleetEdits
from fleet.explain.request import explain_every, waits_of
from fleet.model.facts import World, market_of
from fleet.model.plan import Create
from fleet.schema.model import Fleet, Pool, PowerfulRule
from fleet.tagrules.names import names_of
from tests.builders.queue_worlds import planned
from tests.laws.strategies import worlds
from tests.laws.test_forecast_laws import limited_fleets
from tests.laws.test_unblock_laws import asking_worlds


@given(limited_fleets(), worlds() | asking_worlds())
def test_machine_of_one_build_costs_the_explained_option(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)
    every = explain_every(Case(fleet, world, plan), most=0)
    answers = {each.name: each for each in every.requests}

    for action in plan.actions:
        if not isinstance(action, Create) or not action.serves:
            continue
        way = action.pool, action.inputs.type, market_of(action.inputs)
        for key in action.serves:
            (chosen,) = [each for each in answers[key].places if each.is_chosen]
            assert (chosen.pool, chosen.type, chosen.market) == way
            if len(action.serves) == 1 and not action.assumed:
                assert chosen.cost == action.until_idle


@given(limited_fleets(), worlds() | asking_worlds())
def test_fitting_options_are_in_pools_of_the_plan(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)
    case = Case(fleet, world, plan)

    for signature in plan.signatures:
        dynamic = {name for name in signature.pools if isinstance(fleet.pools[name], Pool)}
        for key in signature.requests:
            found = case.find(key)
            assert found is not None
            options = case.options.options_for(signature.queue, found[0])
            assert {each.pool for each in options if not each.asks} == dynamic
            assert not dynamic & {each.pool for each in options if each.asks}


@given(limited_fleets(), worlds() | asking_worlds())
def test_pages_and_explain_show_same_options_of_a_request(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)
    every = explain_every(Case(fleet, world, plan), most=0)
    answers = {each.name: each for each in every.requests}

    for key, answer in waits_of(Case(fleet, world, plan)).explained.items():
        assert answer.places == answers[key].places


@given(limited_fleets(), asking_worlds())
def test_rule_opens_options_that_explain_names_at_their_cost(fleet: Fleet, world: World) -> None:
    finder = OptionFinder(fleet, world)
    for queue, demand in world.demands():
        for request in demand.requests:
            for place in finder.options_for(queue, request):
                if not place.asks or place.acts_later:
                    continue
                rules = [*fleet.powerful, rule_for(request, place.asks)]
                allowed = OptionFinder(fleet.model_copy(update={"powerful": rules}), world)
                fits = place.altered(asks=(), rule="")
                assert fits in allowed.options_for(queue, request)


@given(limited_fleets(), asking_worlds())
def test_merge_request_shows_costs_of_plan_and_explain(fleet: Fleet, world: World) -> None:
    rules = [PowerfulRule(match="debian/.*", ask=["powerful"])]
    head = fleet.model_copy(update={"powerful": rules})
    base = fleet.model_copy(update={"powerful": []})
    both = [(each, world, planned(each, world)) for each in (base, head)]
    costs = [BuildCosts(*each) for each in both]
    moved, stopped, builds = compare_builds(world, costs[0], costs[1], [("powerful", 0)], ())
    rules_reach = find_reach(FleetEdits(base, head), [world], *costs)

    explained = [
        {e.name: e.places for e in explain_every(Case(*each), most=0).requests} for each in both
    ]
    for build in builds:
        alike = [
            f"{build.queue}/{each.id}"
            for queue, demand in world.demands()
            for each in demand.requests
            if each.count == 1 and (build.name in names_of(each) or build.name == each.id)
        ]
        for found, answers in zip((build.before, build.after), explained, strict=True):
            told = {(*way_to(each), each.cost, each.asks) for each in found}
            shown = [{(*way_to(p), p.cost, p.asks) for p in answers[key]} for key in alike]
            assert not alike or told in shown
    created = [ways_of_requests(plan) for _, _, plan in both]
    assert moved.count >= sum(
        each.count
        for queue, demand in world.demands()
        for each in demand.requests
        if each.count == 1
        and f"{queue}/{each.id}" in created[0].keys() & created[1].keys()
        and created[0][f"{queue}/{each.id}"] != created[1][f"{queue}/{each.id}"]
    )
    waiting = sum(each.count for each in both[1][2].unserved)
    assert sum(each.count for each in stopped) <= waiting
    for reach in rules_reach:
        named = [
            (queue, each)
            for queue, demand in world.demands()
            for each in demand.requests
            if names_of(each)
        ]
        placed = [costs[1].placement_of(*each, also=("powerful",)) for each in named]
        assert reach.builds == sum(each.count for _, each in named)
        if reach.cost is not None:
            assert reach.cost == sum(each.cost or 0 for each in placed)
