"""Laws of the steps of a world: later plans and worlds agree with the forecast of a plan."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.explain.case import Case
from fleet.explain.search import Replans, find_remedies
from fleet.model.facts import World
from fleet.model.plan import Create
from fleet.planner.step import step
from fleet.schema.model import Fleet
from tests.builders.explaining import is_served
from tests.builders.queue_worlds import QUEUE, planned
from tests.laws.test_forecast_laws import limited_fleets
from tests.laws.test_unblock_laws import (
    EXAMPLES,
    tight_fleets,
    working_worlds,
    works,
)


@st.composite
def applied_fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet with a queue that gives tokens, and without a pool that drains."""
    fleet = draw(limited_fleets())
    queue = Fleet.model_validate({"fleet": "f", "queues": {"debian": QUEUE}}).queues["debian"]
    assume(all(getattr(pool, "mode", "") != "drain" for pool in fleet.pools.values()))
    return fleet.model_copy(update={"queues": {"debian": queue}})


@settings(max_examples=EXAMPLES)
@given(applied_fleets(), working_worlds())
def test_request_gets_worker_in_plan_of_its_expected_start(fleet: Fleet, world: World) -> None:
    run = Case(fleet, world, planned(fleet, world))
    # A guard keeps them for now: a queue still gives them work, a plan does not.
    leaving = {each.worker for each in run.plan.withheld if each.action == "drain"}

    for key in run.unserved:
        start = run.forecast.start_of(key)
        if start is not None and run.forecast.workers[key] not in leaving:
            after = step(fleet, world, run.plan, start, run.forecast)
            then = planned(fleet, after)
            shown = [each for each in then.withheld if isinstance(each, Create)]
            is_planned = is_served(then, key) or any(key in each.serves for each in shown)
            assert is_planned, (key, start)


@settings(max_examples=EXAMPLES)
@given(tight_fleets(), working_worlds(), st.data())
def test_suggestion_serves_its_request_in_the_named_run(
    fleet: Fleet, world: World, data: st.DataObject
) -> None:
    run = Case(fleet, world, planned(fleet, world))
    assume(run.unserved)
    key = data.draw(st.sampled_from([*run.unserved]))

    for remedy in find_remedies(run, key, Replans()):
        assert works(fleet, world, key, remedy), remedy.suggestion.sentence
