"""Laws of when a request starts: plan, forecast and explain tell one story."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.explain.forecast import forecast
from fleet.explain.reasons import Case
from fleet.explain.request import explain_request, headline
from fleet.facts import World
from fleet.guard import guard
from fleet.plan import Create, Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.schema.rules import TagRule
from tests.builders import a_sim_fleet
from tests.laws.strategies import worlds
from tests.laws.test_unblock_laws import EXAMPLES, asking_worlds, tight_fleets


@st.composite
def limited_fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet that throttles, whose tag has limits, whose requests need not wait for it."""
    fleet = draw(tight_fleets())
    limits = {"total": draw(st.none() | st.integers(0, 2))}
    otherwise = draw(st.sampled_from(["wait", {"after": "30m", "drop": True}]))
    rule = TagRule.model_validate(
        {"on_demand": True, "exclusive": True, "limits": limits, "otherwise": otherwise}
    )
    durations = a_sim_fleet(durations=draw(st.sampled_from([{}, {"any": "10m"}]))).durations
    return fleet.model_copy(update={"tags": {"powerful": rule}, "durations": durations})


def served_by(plan: Plan) -> dict[str, str]:
    """Return each request that the plan serves, and the worker that it counts for it."""
    return {k: w for s in plan.signatures for k, w in (*s.by_worker.items(), *s.by_create.items())}


@given(limited_fleets(), worlds() | asking_worlds())
def test_a_request_starts_on_its_own_worker_or_after_some_work_ends(
    fleet: Fleet, world: World
) -> None:
    plan = guard(fleet, reconcile(fleet, world))
    found, own = forecast(fleet, world, plan), served_by(plan)
    alive = {w.worker for w in plan.workers if w.verdict in ("keep", "create")}
    alive -= {a.worker for a in plan.withheld if isinstance(a, Create)}
    busy = any(w.state == "busy" for w in plan.workers)
    limits = {
        key
        for unserved in plan.unserved
        if unserved.blocked and all(b.path[:1] == ("tags",) for b in unserved.blocked)
        for key in unserved.requests
    }

    for key in found.starts:
        if key in own:
            assert own[key] in alive
        else:
            assert busy or own, "only a worker that works ends before"
            assert key not in limits
    assert found.starts.keys().isdisjoint(found.not_known)
    for signature in plan.signatures:
        for key in signature.requests:
            assert key in found.starts or key in found.not_known


@settings(max_examples=EXAMPLES)
@given(limited_fleets(), asking_worlds(), st.data())
def test_explain_says_that_a_request_waits_exactly_where_it_gets_no_machine_in_this_plan(
    fleet: Fleet, world: World, data: st.DataObject
) -> None:
    plan = guard(fleet, reconcile(fleet, world))
    keys = [key for signature in plan.signatures for key in signature.requests]
    if not keys:
        return
    key = data.draw(st.sampled_from(keys))
    case, own = Case(fleet, world, plan), served_by(plan)
    signature = next(s for s in plan.signatures if key in s.requests)

    told = headline(case, signature, key, never=False)
    explained = explain_request(fleet, world, plan, key)

    assert told.startswith(f"request {key} waits") == (key not in own)
    assert explained is not None
    if key in own:
        assert explained.expected == case.forecast.start_of(key)
        assert not explained.suggestions
