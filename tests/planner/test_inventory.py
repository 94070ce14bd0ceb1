"""What reconcile makes of witnesses that differ, are silent or are missing."""

import gc
import weakref

import pytest

from fleet.model.facts import Listing, Machine, QueueReading, Unknown, Worker, WorkerState, World
from fleet.model.plan import Create, Plan, Reason
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
from tests.builders.deciding import FIRST, SECOND, actions_of, fleet_with, reason_of
from tests.builders.sentences import tells


def desk_of(world: World) -> Listing:
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    return listing


def with_machines(world: World, *machines: Machine) -> Listing:
    listing = desk_of(world)
    return listing.altered(machines=(*listing.machines, *machines))


def test_unreadable_demand_deletes_nothing() -> None:
    reading = QueueReading(demand=Unknown(unknown="the server is down"), workers=None)
    world = a_sim_world(a_worker(since=ago(days=1)), queues={"debian": reading})

    plan = reconcile(a_sim_fleet(), world)

    assert plan.is_quiet
    assert tells(plan.unknown[0], "queue debian", "unknown")


def test_demand_older_than_demand_max_age_deletes_nothing() -> None:
    stale = a_reading(workers=None).altered(
        demand=a_reading().demand.altered(read_at=ago(hours=1))
    )
    world = a_sim_world(a_worker(since=ago(days=1)), queues={"debian": stale})

    plan = reconcile(a_sim_fleet(), world)

    assert plan.is_quiet
    assert "1h earlier" in plan.unknown[0]


def test_unreadable_provider_creates_and_deletes_nothing() -> None:
    world = a_sim_world(
        a_worker(since=ago(days=1)),
        requests=(a_request(),),
        providers={"desk": Unknown(unknown="no answer")},
    )

    plan = reconcile(a_sim_fleet(), world)

    assert plan.is_quiet
    (unknown,) = plan.unknown
    assert tells(unknown, "provider desk", "unknown", "no answer")


def test_missing_store_creates_and_deletes_nothing() -> None:
    world = a_sim_world(requests=(a_request(),), stacks=Unknown(unknown="there is no store"))

    plan = reconcile(a_sim_fleet(), world)

    assert plan.is_quiet


def test_machine_known_only_to_provider_is_kept_and_counts_to_max() -> None:
    world = a_sim_world(
        requests=(a_request(),), providers={"desk": a_listing(a_machine(), workers=())}
    )

    plan = reconcile(fleet_with(max=1), world)

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.NOT_KNOWN


def test_machine_known_only_to_stack_is_kept() -> None:
    stack = a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "sim-1"})

    plan = reconcile(a_sim_fleet(), a_sim_world(stacks={"builders": stack}))

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.NOT_KNOWN


def test_interrupted_creation_repeats_its_recorded_inputs() -> None:
    inputs = some_inputs(image="an-older-image")
    stack = a_stack(provider="desk", workers=(inputs,), ids={}, interrupted=True)

    plan = reconcile(a_sim_fleet(), a_sim_world(stacks={"builders": stack}))

    assert isinstance(plan.actions[0], Create)
    assert plan.actions[0].inputs == inputs
    assert plan.actions[0].reason is Reason.INTERRUPTED


def test_interrupted_deletion_is_repeated() -> None:
    stack = a_stack(provider="desk", workers=(), ids={FIRST: "sim-1"}, interrupted=True)

    plan = reconcile(a_sim_fleet(), a_sim_world(stacks={"builders": stack}))

    assert actions_of(plan) == [("delete", FIRST)]


def test_machine_without_registry_is_capacity_and_kept() -> None:
    stack = a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "hcloud-1"})
    world = a_sim_world(
        requests=(a_request(),),
        providers={"desk": a_listing(a_machine(created_at=ago(days=9)))},
        stacks={"builders": stack},
    )

    plan = reconcile(a_sim_fleet(), world)

    assert plan.is_quiet
    assert plan.signatures[0].by_worker == {"debian/101": FIRST}


def test_unregistered_machine_is_not_capacity() -> None:
    stack = a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "hcloud-1"})
    world = a_sim_world(
        requests=(a_request(),),
        providers={"desk": a_listing(a_machine(), workers=())},
        stacks={"builders": stack},
    )

    plan = reconcile(a_sim_fleet(), world)

    assert actions_of(plan) == [("create", SECOND), ("delete", FIRST)]
    assert reason_of(plan, FIRST) is Reason.BOOT_FAILED


def test_static_worker_is_capacity_and_never_changed() -> None:
    fleet = a_sim_fleet(pools={"legacy": {"static": ["old-box"]}})
    worker = a_worker(name="old-box", machine=None, pool=None, static=True)
    world = a_sim_world(queues={"debian": a_reading(a_request(), workers=(worker,))})

    plan = reconcile(fleet, world)

    assert plan.is_quiet
    assert not plan.unserved
    assert reason_of(plan, "old-box") is Reason.STATIC


def test_disconnected_worker_serves_no_request_and_is_kept() -> None:
    worker = a_worker(state=WorkerState.DISCONNECTED, last_seen=ago(hours=1))

    plan = reconcile(a_sim_fleet(), a_sim_world(worker, requests=(a_request(),)))

    assert actions_of(plan) == [("create", SECOND)]


def test_registration_without_machine_is_inactive() -> None:
    row = a_worker(name="debian-ci-builders-0007")
    world = a_sim_world(queues={"debian": a_reading(a_request(), workers=(row,))})

    plan = reconcile(fleet_with(max=1), world)

    assert actions_of(plan) == [("create", FIRST)]
    assert [v.worker for v in plan.workers if v.inactive] == ["debian-ci-builders-0007"]


def test_machine_of_older_config_is_outdated_but_kept() -> None:
    stack = a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "sim-1"})
    listing = a_listing(a_machine(digest="0" * 16), workers=(a_worker(),))

    plan = reconcile(
        a_sim_fleet(), a_sim_world(providers={"desk": listing}, stacks={"builders": stack})
    )

    assert plan.is_quiet
    assert [v.outdated for v in plan.workers] == [True]


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


def test_machines_known_to_one_source_cause_no_drain_above_max() -> None:
    extra = [a_machine(name=f"stray-{number}", id=f"x-{number}") for number in (1, 2)]
    world = a_sim_world(a_worker(since=ago(seconds=1)))
    world = world.altered(providers={"desk": with_machines(world, *extra)})

    plan = reconcile(fleet_with(max=1), world)

    assert plan.is_quiet


def test_missing_machines_do_not_count_to_min() -> None:
    missing = [f"debian-ci-builders-{number:04}" for number in (3, 4)]
    workers = (a_worker(name=FIRST, since=ago(days=1)), a_worker(name=SECOND, since=ago(days=1)))
    stack = a_stack(
        provider="desk",
        workers=tuple(some_inputs(name=name) for name in (FIRST, SECOND, *missing)),
        ids={name: f"sim-{name}" for name in (FIRST, SECOND, *missing)},
    )

    plan = reconcile(fleet_with(min=2, max=4), a_sim_world(*workers, stacks={"builders": stack}))

    assert plan.is_quiet


@pytest.mark.parametrize(
    "worker",
    [
        a_worker(state=WorkerState.DISABLED, running="90"),
        a_worker(state=WorkerState.IDLE, draining=True, running="90"),
    ],
    ids=["disabled", "draining"],
)
def test_worker_with_running_work_is_kept_in_any_state(worker: Worker) -> None:
    assert reconcile(a_sim_fleet(), a_sim_world(worker)).is_quiet


def test_interrupted_deletion_waits_while_the_worker_is_busy() -> None:
    stack = a_stack(provider="desk", ids={FIRST: f"sim-{FIRST}"}, interrupted=True)
    world = a_sim_world(a_worker(busy=True), stacks={"builders": stack})

    assert reconcile(a_sim_fleet(), world).is_quiet


def test_machine_listed_after_interrupted_deletion_is_deleted() -> None:
    stack = a_stack(provider="desk", ids={FIRST: f"sim-{FIRST}"}, interrupted=True)
    world = a_sim_world(a_worker(state=WorkerState.DISABLED), stacks={"builders": stack})

    assert actions_of(reconcile(a_sim_fleet(), world)) == [("delete", FIRST)]


def test_disconnected_drained_worker_is_deleted() -> None:
    gone = a_worker(state=WorkerState.DISCONNECTED, draining=True)

    assert actions_of(reconcile(a_sim_fleet(), a_sim_world(gone))) == [("delete", FIRST)]


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


def test_machine_counts_as_failed_only_after_its_deadline() -> None:
    def reason_at(**age: float) -> Reason:
        listing = a_listing(a_machine(created_at=ago(**age)), workers=())
        stack = a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "hcloud-1"})
        world = a_sim_world(providers={"desk": listing}, stacks={"builders": stack})
        return reason_of(reconcile(fleet_with(min=1), world), FIRST)

    assert reason_at(seconds=600) is Reason.STARTING
    assert reason_at(seconds=601) is Reason.BOOT_FAILED


def test_name_of_missing_machine_is_not_reused() -> None:
    stack = a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "sim-1"})
    world = a_sim_world(requests=(a_request(),), stacks={"builders": stack})

    assert actions_of(reconcile(a_sim_fleet(), world)) == [("create", SECOND)]


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
