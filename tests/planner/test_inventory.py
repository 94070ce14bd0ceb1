"""What reconcile makes of witnesses that differ, are silent or are missing."""

import gc
import weakref

import pytest

from fleet.guard import guard
from fleet.model.facts import Listing, MachineState, WorkerState, World
from fleet.model.plan import Plan, Reason
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    a_listing,
    a_machine,
    a_reading,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
    some_inputs,
)
from tests.builders.budgeting import a_budgeted_fleet, a_spent_world
from tests.builders.deciding import (
    FIRST,
    SECOND,
    actions_of,
    fleet_with,
    idle,
    reason_of,
    with_machines,
)
from tests.builders.queue_worlds import THIRD
from tests.builders.sentences import tells


def desk_of(world: World) -> Listing:
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    return listing


def test_machines_known_to_one_source_cause_no_drain_above_max() -> None:
    world = a_sim_world(a_worker(since=ago(seconds=1)))
    listing = desk_of(world)
    extra = (a_machine(name=f"stray-{number}", id=f"x-{number}") for number in (1, 2))
    world = world.altered(
        providers={"desk": listing.altered(machines=(*listing.machines, *extra))}
    )

    assert reconcile(fleet_with(max=1), world).is_quiet


def test_demand_older_than_demand_max_age_deletes_nothing() -> None:
    stale = a_reading(workers=None).altered(
        demand=a_reading().demand.altered(read_at=ago(hours=1))
    )
    world = a_sim_world(a_worker(since=ago(days=1)), queues={"debian": stale})

    plan = reconcile(a_sim_fleet(), world)

    assert plan.is_quiet
    assert "1h earlier" in plan.unknown[0]


def test_static_worker_is_capacity_and_never_changed() -> None:
    fleet = a_sim_fleet(pools={"legacy": {"static": ["old-box"]}})
    worker = a_worker(name="old-box", machine=None, pool=None, static=True)
    world = a_sim_world(queues={"debian": a_reading(a_request(), workers=(worker,))})

    plan = reconcile(fleet, world)

    assert plan.is_quiet
    assert not plan.unserved
    assert reason_of(plan, "old-box") is Reason.STATIC


def test_registration_without_machine_is_inactive() -> None:
    row = a_worker(name="debian-ci-builders-0007")
    world = a_sim_world(queues={"debian": a_reading(a_request(), workers=(row,))})

    plan = reconcile(fleet_with(max=1), world)

    assert actions_of(plan) == [("create", FIRST)]
    assert [v.worker for v in plan.workers if v.inactive] == ["debian-ci-builders-0007"]


def test_other_machine_of_recorded_name_is_not_of_the_stack() -> None:
    idle = a_worker(since=ago(days=1), draining=True)
    stack = a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "sim-7"})

    plan = reconcile(a_sim_fleet(), a_sim_world(idle, stacks={"builders": stack}))

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.NOT_KNOWN


def test_pool_listed_by_another_provider_is_unchanged() -> None:
    fleet = a_sim_fleet(providers={"desk": {"kind": "sim"}, "attic": {"kind": "sim"}})
    listings = {"desk": a_listing(workers=()), "attic": a_listing(a_machine(), workers=())}
    world = a_sim_world(requests=(a_request(),), providers=listings, stacks={})

    plan = reconcile(fleet, world)

    assert plan.is_quiet
    assert tells(plan.unknown[0], "provider attic", "pool builders")


def test_two_providers_of_one_account_may_list_the_same_machines() -> None:
    fleet = a_sim_fleet(providers={"desk": {"kind": "sim"}, "attic": {"kind": "sim"}})
    world = a_sim_world(a_worker(busy=True), requests=(a_request(),))
    world = world.altered(providers=dict.fromkeys(["attic", "desk"], desk_of(world)))

    plan = reconcile(fleet, world)

    assert actions_of(plan) == [("create", SECOND)]


@pytest.mark.parametrize(("ahead", "is_trusted"), [(59, True), (60, True), (61, False)])
def test_demand_from_the_future_is_not_fresh(ahead: int, *, is_trusted: bool) -> None:
    early = a_reading(workers=None).altered(
        demand=a_reading().demand.altered(read_at=ago(seconds=-ahead))
    )

    plan = reconcile(a_sim_fleet(), a_sim_world(a_worker(), queues={"debian": early}))

    assert (plan.unread == ()) is is_trusted


def test_demand_is_old_only_after_demand_max_age() -> None:
    def plan_at(**age: float) -> Plan:
        read = a_reading(a_request(), workers=None)
        demand = read.demand.altered(read_at=ago(**age))
        aged = read.altered(demand=demand)
        return reconcile(a_sim_fleet(), a_sim_world(queues={"debian": aged}))

    assert actions_of(plan_at(seconds=300)) == [("create", FIRST)]
    assert plan_at(seconds=301).is_quiet


def test_name_of_foreign_registration_is_not_reused() -> None:
    theirs = a_worker(state=WorkerState.DISABLED, machine=None)
    queues = {"debian": a_reading(a_request(), workers=(theirs,))}

    plan = reconcile(a_sim_fleet(), a_sim_world(queues=queues))

    assert actions_of(plan) == [("create", SECOND)]


@pytest.mark.parametrize(
    ("fleet", "world"),
    [
        (a_sim_fleet(), a_sim_world(a_worker(), requests=(a_request(),))),
        (a_budgeted_fleet({"per_day": "10 EUR"}), a_spent_world(a_worker())),
    ],
    ids=["inventory", "budgets"],
)
def test_plan_releases_its_world_without_a_garbage_collection(fleet: Fleet, world: World) -> None:
    # Commands collect garbage rarely, and `fleet simulate` makes thousands of plans.
    reconcile(fleet, world)
    world = world.altered(time=ago(hours=-1))
    forgotten = weakref.ref(world)
    gc.collect()
    gc.disable()
    try:
        reconcile(fleet, world)
        del world
        assert forgotten() is None
    finally:
        gc.enable()


def with_failed(*names: str) -> World:
    """Return a world with four idle workers, whose provider found these machines not to work."""
    workers = idle(FIRST, SECOND, THIRD, "debian-ci-builders-0004")
    world = a_sim_world(*workers, requests=(a_request(),))
    return with_machines(world, *names, state=MachineState.FAILED)


@pytest.mark.parametrize(("names", "refused"), [((FIRST,), False), ((FIRST, SECOND, THIRD), True)])
def test_guard_refuses_when_many_machines_fail_together(
    names: tuple[str, ...], *, refused: bool
) -> None:
    fleet = fleet_with(max=4)

    assert guard(fleet, reconcile(fleet, with_failed(*names))).is_refused is refused
