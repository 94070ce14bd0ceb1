"""Laws of reconcile and guard: they hold in every world that Hypothesis can think of."""

from collections import Counter

from hypothesis import given

from fleet.facts import Demand, Listing, Unknown, WorkerState, World
from fleet.guard import guard
from fleet.plan import Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet, Pool
from tests.laws.strategies import fleets, shuffled, worlds


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


@given(fleets(), worlds())
def test_the_order_of_observation_never_matters(fleet: Fleet, world: World) -> None:
    assert planned(fleet, world).model_dump_json() == (
        planned(fleet, shuffled(world)).model_dump_json()
    )


@given(fleets(), worlds())
def test_the_order_of_pools_in_fleet_yaml_never_matters(fleet: Fleet, world: World) -> None:
    backwards = fleet.model_copy(update={"pools": dict(reversed(list(fleet.pools.items())))})

    assert planned(fleet, world) == planned(backwards, world)


@given(fleets(), worlds())
def test_no_pool_is_ever_taken_past_its_max(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)

    for verdict in plan.pools:
        pool = fleet.pools.get(verdict.pool)
        if isinstance(pool, Pool) and verdict.create:
            held = verdict.busy + verdict.idle + verdict.starting + verdict.other
            assert held + verdict.create <= pool.workers.max


@given(fleets(), worlds())
def test_a_busy_worker_is_never_deleted(fleet: Fleet, world: World) -> None:
    listing = world.providers["desk"]
    workers = listing.workers or () if isinstance(listing, Listing) else ()
    busy = {worker.name for worker in workers if worker.state is WorkerState.BUSY}

    plan = planned(fleet, world)

    assert not busy & {a.worker for a in plan.actions if a.action == "delete"}


@given(fleets(), worlds())
def test_a_connected_worker_is_deleted_only_when_it_was_seen_draining(
    fleet: Fleet, world: World
) -> None:
    listing = world.providers["desk"]
    workers = listing.workers or () if isinstance(listing, Listing) else ()
    serving = {w.name for w in workers if w.state is WorkerState.IDLE and not w.draining}

    plan = planned(fleet, world)

    assert not serving & {a.worker for a in plan.actions if a.action == "delete"}


@given(fleets(), worlds())
def test_an_unreadable_source_deletes_nothing(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)

    if not isinstance(world.queues["debian"].demand, Demand):
        serving = {name for name, pool in fleet.pools.items() if isinstance(pool, Pool)}
        assert not [a for a in plan.actions if a.action != "create" and a.pool in serving]
    if isinstance(world.providers["desk"], Unknown):
        assert plan.is_quiet
    if isinstance(world.stacks, dict) and isinstance(world.stacks.get("builders"), Unknown):
        assert not [a for a in plan.actions if a.pool == "builders"]


@given(fleets(), worlds())
def test_every_worker_has_one_verdict_and_every_action_one_reason(
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


@given(fleets(), worlds())
def test_plan_to_json_to_plan_is_identity(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)

    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@given(worlds())
def test_world_to_json_to_world_is_identity(world: World) -> None:
    assert World.model_validate_json(world.model_dump_json()) == world


@given(fleets(), worlds())
def test_a_pool_that_shares_no_demand_is_left_alone(fleet: Fleet, world: World) -> None:
    without = {name: pool for name, pool in fleet.pools.items() if name != "arm"}
    nothing = Demand(read_at=world.time)
    quiet = world.queues["debian"].model_copy(update={"demand": nothing})
    world = world.model_copy(update={"queues": {"debian": quiet}})

    plan = reconcile(fleet, world)
    alone = reconcile(fleet.model_copy(update={"pools": without}), world)

    assert [a for a in plan.actions if a.pool != "arm"] == [
        a for a in alone.actions if a.pool != "arm"
    ]
