"""Laws of reconcile and guard: they hold in every world that Hypothesis can think of."""

import json
from collections import Counter
from datetime import timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fleet.guard import guard
from fleet.guard.approvals import approval_digest
from fleet.model.facts import Demand, Listing, Unknown, WorkerState, World
from fleet.model.plan import Plan, Reason
from fleet.planner.units import RETURN_GRACE
from fleet.reconcile import reconcile
from fleet.schema.model import Approval, Fleet, Pool
from tests.builders import a_create, a_plan, a_pool_verdict, a_sim_fleet, rekeyed
from tests.builders.queue_worlds import planned
from tests.laws.strategies import POOLS, budgeted, fleets, shuffled, worlds


@given(fleets(), worlds())
def test_plan_is_independent_of_order_of_observation(fleet: Fleet, world: World) -> None:
    assert planned(fleet, world).model_dump_json() == (
        planned(fleet, shuffled(world)).model_dump_json()
    )


@given(st.one_of(st.tuples(fleets(), worlds()), budgeted()), st.randoms(use_true_random=False))
def test_plan_is_independent_of_order_of_keys_in_fleet_yaml(
    given: tuple[Fleet, World], dice: Random
) -> None:
    fleet, world = given
    written = json.dumps(rekeyed(fleet.as_written(), lambda keys: dice.sample(keys, len(keys))))

    other = planned(Fleet.model_validate_json(written), shuffled(world))

    assert planned(fleet, world) == other


@given(fleets(), worlds())
def test_plan_never_exceeds_max_of_a_pool(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)

    for verdict in plan.pools:
        pool = fleet.pools.get(verdict.pool)
        if isinstance(pool, Pool) and verdict.create:
            held = verdict.busy + verdict.idle + verdict.starting + verdict.other
            assert held + verdict.create <= pool.workers.max


@given(fleets(), worlds())
def test_busy_worker_is_never_deleted(fleet: Fleet, world: World) -> None:
    listing = world.providers["desk"]
    workers = listing.workers or () if isinstance(listing, Listing) else ()
    busy = {worker.name for worker in workers if worker.state is WorkerState.BUSY}

    plan = planned(fleet, world)

    assert not busy & {a.worker for a in plan.actions if a.action == "delete"}


@given(fleets(), worlds())
def test_connected_worker_is_deleted_only_after_observed_drain(fleet: Fleet, world: World) -> None:
    listing = world.providers["desk"]
    workers = listing.workers or () if isinstance(listing, Listing) else ()
    serving = {w.name for w in workers if w.state is WorkerState.IDLE and not w.draining}

    plan = planned(fleet, world)

    assert not serving & {a.worker for a in plan.actions if a.action == "delete"}


@given(fleets(), worlds(), st.integers(0, RETURN_GRACE))
def test_short_absence_creates_no_machines(fleet: Fleet, world: World, seconds: int) -> None:
    connected, away = planned(fleet, world), planned(fleet, _away(world, seconds))

    assert _creations(away) <= _creations(connected)


def _away(world: World, seconds: int) -> World:
    """Return the same world, with every idle worker not connected for so many seconds."""
    listing = world.providers["desk"]
    if isinstance(listing, Unknown) or listing.workers is None:
        return world
    heard = world.time - timedelta(seconds=seconds)
    lost = {"state": WorkerState.DISCONNECTED, "last_seen": heard, "connected_since": None}
    workers = tuple(
        worker.altered(**lost) if worker.state is WorkerState.IDLE else worker
        for worker in listing.workers
    )
    seen = {"desk": listing.altered(workers=workers)}
    return world.altered(providers=seen)


def _creations(plan: Plan) -> Counter[str]:
    return Counter(a.pool for a in (*plan.actions, *plan.withheld) if a.action == "create")


@given(fleets(), worlds())
def test_unreadable_source_causes_no_deletion(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)

    if not isinstance(world.queues["debian"].demand, Demand):
        serving = {name for name, pool in fleet.pools.items() if isinstance(pool, Pool)}
        assert not [a for a in plan.actions if a.action != "create" and a.pool in serving]
    if isinstance(world.providers["desk"], Unknown):
        assert plan.is_quiet
    if isinstance(world.stacks, dict) and isinstance(world.stacks.get("builders"), Unknown):
        assert not [a for a in plan.actions if a.pool == "builders"]


@given(fleets(), worlds())
def test_sampled_queue_causes_no_deletion_of_idle_machines(fleet: Fleet, world: World) -> None:
    listing = world.providers["desk"]
    workers = listing.workers or () if isinstance(listing, Listing) else ()
    drained = {worker.name for worker in workers if worker.draining}

    plan = planned(fleet, _sampled(world))

    gone = [a for a in plan.actions if a.action != "create" and a.worker not in drained]
    assert not {a.reason for a in gone} & {Reason.IDLE_TOO_LONG, Reason.NOT_WANTED}


def _sampled(world: World) -> World:
    queues = {
        name: reading.altered(demand=reading.demand.altered(estimate=True))
        for name, reading in world.queues.items()
        if isinstance(reading.demand, Demand)
    }
    return world.altered(queues={**world.queues, **queues})


@given(fleets(), worlds())
def test_every_worker_has_one_decision_and_every_action_one_reason(
    fleet: Fleet, world: World
) -> None:
    plan = planned(fleet, world)

    assert max(Counter(v.worker for v in plan.workers).values(), default=1) == 1
    reasons = {v.worker: (v.verdict, v.reason) for v in plan.workers}
    for action in (*plan.actions, *plan.withheld):
        assert reasons[action.worker] == (action.action, action.reason)


@given(fleets(), worlds())
def test_every_waiting_request_is_served_or_unserved_with_a_reason(
    fleet: Fleet, world: World
) -> None:
    plan = planned(fleet, world)

    for signature in plan.signatures:
        served = [*signature.by_worker, *signature.by_create]
        unserved = [r for u in plan.unserved if u.signature == signature.id for r in u.requests]
        assert sorted([*served, *unserved]) == sorted(signature.requests)
    assert all(unserved.because for unserved in plan.unserved)
    assert plan.cost_before == sum(pool.cost_before for pool in plan.pools)
    assert plan.cost_after == sum(pool.cost_after for pool in plan.pools)


@given(fleets(), worlds())
def test_plan_round_trips_through_json(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)

    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@given(worlds())
def test_world_round_trips_through_json(world: World) -> None:
    assert World.model_validate_json(world.model_dump_json()) == world


@given(fleets(), worlds())
def test_pool_without_shared_demand_is_unchanged(fleet: Fleet, world: World) -> None:
    without = {name: pool for name, pool in fleet.pools.items() if name != "arm"}
    nothing = Demand(read_at=world.time)
    quiet = world.queues["debian"].altered(demand=nothing)
    world = world.altered(queues={"debian": quiet})

    plan = reconcile(fleet, world)
    alone = reconcile(fleet.model_copy(update={"pools": without}), world)

    assert [a for a in plan.actions if a.pool != "arm"] == [
        a for a in alone.actions if a.pool != "arm"
    ]


# guards


@given(fleets(), worlds())
def test_guards_only_keep_or_withhold_actions(fleet: Fleet, world: World) -> None:
    before = reconcile(fleet, world)

    plan = guard(fleet, before)

    assert sorted(a.worker for a in (*plan.actions, *plan.withheld)) == sorted(
        action.worker for action in before.actions
    )


@given(fleets(), worlds())
def test_refusal_for_one_pool_withholds_only_that_pools_actions(
    fleet: Fleet, world: World
) -> None:
    before = reconcile(fleet, world)
    plan = guard(fleet, before)

    if all(result.pool for result in plan.guards):
        stopped = {result.pool for result in plan.guards if result.result != "passed"}
        assert {action.pool for action in plan.withheld} <= stopped


@given(fleets(), worlds(), st.integers(0, 5), st.integers(0, 5), st.sampled_from(POOLS))
def test_approval_permits_at_most_its_count(
    fleet: Fleet, world: World, count: int, used: int, pool: str
) -> None:
    approval = Approval(
        guard="delete", pool=pool, count=count, reason="move", expires=world.time.date()
    )
    approved = fleet.model_copy(update={"approvals": [approval]})
    world = world.altered(approved={approval_digest(approval): used})

    without, plan = planned(fleet, world), planned(approved, world)

    (verdict,) = plan.approvals
    assert len(verdict.passes) <= max(0, count - used)
    freed = {a.worker for a in plan.actions} - {a.worker for a in without.actions}
    assert {a.pool for a in plan.actions if a.worker in verdict.passes} <= {pool}
    # What it makes room for fleet-wide passes by the limit, not by the approval.
    assert freed >= set(verdict.passes) - {a.worker for a in without.actions}


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 100))
def test_repeated_throttled_runs_reach_desired_state(wanted: int, count: int, share: int) -> None:
    limit = {"create": {"count": count, "share": f"{share}%", "free_below": 3}}
    held, runs = 0, 0
    while held < wanted:
        made = tuple(a_create(worker=f"b-{n}", turn=n) for n in range(wanted - held))
        plan = a_plan(actions=made, pools=(a_pool_verdict(busy=held),))
        held += len(guard(a_sim_fleet(guards={"throttle": limit}), plan).actions)
        runs += 1
        assert runs <= wanted
