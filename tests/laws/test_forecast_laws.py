"""Laws of when a request starts: plan, forecast and explain tell one story."""

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.explain.asked import Asked
from fleet.explain.case import Case
from fleet.explain.request import headline
from fleet.guard import guard
from fleet.model.facts import World
from fleet.model.plan import Create, Plan
from fleet.planner.forecast import (
    Forecast,
    forecast,
    list_postponed,
    next_pause,
    pauses_until_created,
)
from fleet.planner.step import step
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet, Limits
from fleet.schema.rules import TagRule
from fleet.tagrules.offers import ask_of_tags, satisfies
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world
from tests.builders.explaining import explain_request
from tests.laws.strategies import worlds
from tests.laws.test_unblock_laws import EXAMPLES, asking_worlds, tight_fleets, working_worlds


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


def _is_first(found: Forecast, one: str, other: str) -> bool:
    """Say whether, of two that start together, one takes no time and so was first."""
    return found.starts[one] == found.starts[other] and found.ends.get(one) == found.starts[one]


def served_by(plan: Plan) -> dict[str, str]:
    """Return each request that the plan serves, and the worker that it counts for it."""
    return {k: w for s in plan.signatures for k, w in (*s.by_worker.items(), *s.by_create.items())}


@given(limited_fleets(), worlds() | asking_worlds() | working_worlds())
def test_request_starts_on_its_own_or_a_fitting_free_worker(fleet: Fleet, world: World) -> None:
    plan = guard(fleet, reconcile(fleet, world))
    case, own = Case(fleet, world, plan), served_by(plan)
    found, standing = case.forecast, {each.name: each for each in case.forecast.standing.values()}
    alive = {w.worker for w in plan.workers if w.verdict in ("keep", "create")}
    alive -= {a.worker for a in plan.withheld if isinstance(a, Create)}
    # A worker whose drain a guard withholds goes on taking work.
    alive |= {a.worker for a in plan.withheld if not isinstance(a, Create)}
    postponed = {each.worker for each in list_postponed(plan)}
    alive |= postponed
    busy = {w.worker for w in plan.workers if w.state == "busy"}
    signature_of = {key: s for s in plan.signatures for key in s.requests}
    limits = {
        key
        for unserved in plan.unserved
        if unserved.blocked and all(b.path[:1] == ("tags",) for b in unserved.blocked)
        for key in unserved.requests
    }

    for key, start in found.starts.items():
        name = found.workers[key]
        assert name in alive
        assert (standing[name].free_in or 0) <= start, "the work that it has ends before"
        others = [k for k, at in found.workers.items() if at == name and k != key]
        before = [k for k in others if found.starts[k] < start or _is_first(found, k, key)]
        assert all(found.ends[k] <= start for k in before), "one after the other"
        if key in own:
            assert name == own[key]
            continue
        signature = signature_of[key]
        queues, offer, _ = standing[name].alike
        kept = [tag for tag in signature.required if tag not in signature.dropped]
        asks = [ask_of_tags(fleet, x, signature.provided) for x in (signature.required, kept)]
        assert signature.queue in queues
        assert any(satisfies(ask, offer) for ask in asks)
        assert before or name in busy | postponed, "a free worker would serve it in the plan"
        assert key not in limits
    assert found.starts.keys() == found.workers.keys()
    assert found.starts.keys().isdisjoint(found.not_known)
    for signature in plan.signatures:
        for key in signature.requests:
            assert key in found.starts or key in found.not_known


@settings(max_examples=EXAMPLES)
@given(limited_fleets(), asking_worlds() | working_worlds(), st.data())
def test_explain_shows_wait_only_without_planned_machine(
    fleet: Fleet, world: World, data: st.DataObject
) -> None:
    plan = guard(fleet, reconcile(fleet, world))
    keys = [key for signature in plan.signatures for key in signature.requests]
    if not keys:
        return
    key = data.draw(st.sampled_from(keys))
    case, own = Case(fleet, world, plan), served_by(plan)

    told = headline(Asked(case, key))
    explained = explain_request(fleet, world, plan, key)

    assert told.startswith(f"request {key} waits") == (key not in own)
    assert explained is not None
    if key in own:
        assert explained.expected == case.forecast.start_of(key)
        assert not explained.suggestions


@settings(max_examples=EXAMPLES)
@given(limited_fleets(), asking_worlds() | working_worlds(), st.data())
def test_wait_and_expected_start_agree(fleet: Fleet, world: World, data: st.DataObject) -> None:
    plan = guard(fleet, reconcile(fleet, world))
    waiting = [key for unserved in plan.unserved for key in unserved.requests]
    assume(waiting)
    key = data.draw(st.sampled_from(waiting))
    explained, case = explain_request(fleet, world, plan, key), Case(fleet, world, plan)
    assert explained is not None

    every = [each.wait for each in explained.suggestions if not each.changes and not each.asks]
    waits = [wait for wait in every if wait is not None]

    starts = [wait.start if wait.runs or wait.start else wait.until for wait in waits]
    known = [start for start in (*starts, case.forecast.start_of(key)) if start is not None]
    assert explained.expected == min(known, default=None)
    for wait in waits:
        if wait.workers and wait.until:
            assert wait.until == case.forecast.start_of(key) or key in case.forecast.not_known
        if wait.workers and wait.assumed and explained.expected is None:
            assert explained.assumed in (None, wait.assumed)


def _grouped(fleet: Fleet, world: World) -> set[frozenset[str]]:
    """Return the signatures of the requests that do not ask for the limited tag."""
    plan = guard(fleet, reconcile(fleet, world))
    asking = (each for each in plan.signatures if "powerful" not in each.required)
    return {frozenset(each.requests) for each in asking}


@given(limited_fleets(), asking_worlds(), st.sampled_from(["submitter", "owner", "team"]))
def test_limit_of_tag_splits_only_groups_that_require_it(
    fleet: Fleet, world: World, who: str
) -> None:
    rule = fleet.tags["powerful"]
    per = Limits.model_validate({"per": {who: 1}})
    limited = fleet.model_copy(
        update={"tags": {"powerful": rule.model_copy(update={"limits": per})}}
    )
    unlimited = fleet.model_copy(
        update={"tags": {"powerful": rule.model_copy(update={"limits": Limits()})}}
    )

    assert _grouped(limited, world) == _grouped(unlimited, world)


def _limit(fleet: Fleet, held: int) -> int:
    """Return the number of machines that a pool or fleet with `held` machines may create."""
    create = fleet.guards.throttle.create
    share = max(held, create.free_below, 1) * create.share // 100
    return min(create.count, max(share, min(create.share, 1)))


@st.composite
def crowded_plans(draw: st.DrawFn) -> tuple[Fleet, World, Plan]:
    """Return a fleet that throttles, a world whose requests need several machines, and a plan."""
    share = draw(st.sampled_from(["0%", "10%", "50%", "100%", "200%"]))
    few = st.integers(0, 6)
    create = {"count": draw(few), "free_below": draw(few), "share": share}
    sizes = draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 8), min_size=1))
    pools = {
        name: a_pool(provider="desk", provides=[name], max=most, min=draw(st.integers(0, 1)))
        for name, most in sizes.items()
    }
    tags = draw(st.lists(st.sampled_from([*sizes]), min_size=4, max_size=16))
    requests = [a_request(id=str(n), required=(tag,)) for n, tag in enumerate(tags)]
    throttle = {"throttle": {"create": create}}
    fleet = a_sim_fleet(pools=pools, guards=throttle, durations={"any": "12h"})
    world = a_sim_world(requests=tuple(requests))
    return fleet, world, guard(fleet, reconcile(fleet, world))


@given(crowded_plans())
def test_later_run_of_forecast_creates_at_most_the_throttled_number(
    case: tuple[Fleet, World, Plan],
) -> None:
    fleet, _, plan = case
    pauses = pauses_until_created(fleet, plan)
    pools = {each.worker: each.pool for each in list_postponed(plan)}
    held = Counter({p.pool: p.machines + p.create - p.delete for p in plan.pools})
    static = {each.pool for each in plan.pools if each.mode == "static"}

    for number in range(1, max(pauses.values(), default=0) + 1):
        made = Counter(pools[name] for name, run in pauses.items() if run == number)
        total = sum(count for name, count in held.items() if name not in static)
        assert 0 < made.total() <= _limit(fleet, total)
        assert all(count <= _limit(fleet, held[pool]) for pool, count in made.items())
        held += made


@settings(max_examples=EXAMPLES)
@given(crowded_plans())
def test_forecast_and_later_plans_create_the_same_machines(
    case: tuple[Fleet, World, Plan],
) -> None:
    fleet, world, plan = case
    pauses = pauses_until_created(fleet, plan)
    pools = {each.worker: each.pool for each in list_postponed(plan)}

    for number in range(1, max(pauses.values(), default=0) + 1):
        after = step(
            fleet, world, plan, world.time + next_pause(fleet), forecast(fleet, world, plan)
        )
        world, plan = after, guard(fleet, reconcile(fleet, after))
        made = Counter(pools[name] for name, run in pauses.items() if run == number)
        assert made == Counter(each.pool for each in plan.actions if each.action == "create")
