"""What reconcile does, one sentence per test."""

import pytest

from fleet.model.facts import MachineState
from fleet.model.plan import Create, Plan, Reason
from fleet.reconcile import reconcile
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_pool,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
    some_inputs,
)
from tests.builders.deciding import FIRST, SECOND, actions_of, fleet_with, reason_of
from tests.builders.sentences import tells


def test_plan_is_empty_without_requests_and_machines() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world())

    assert plan.is_quiet


def test_waiting_request_gets_a_machine() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world(requests=(a_request(),)))

    assert actions_of(plan) == [("create", FIRST)]


def test_idle_worker_serves_request_before_new_machine() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world(a_worker(), requests=(a_request(),)))

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.SERVES_WAITING


def test_starting_machine_is_counted_once() -> None:
    world = a_sim_world(starting=(FIRST,), requests=(a_request(id="1"), a_request(id="2")))

    plan = reconcile(a_sim_fleet(), world)

    assert actions_of(plan) == [("create", SECOND)]


def test_busy_worker_serves_no_waiting_request() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world(a_worker(busy=True), requests=(a_request(),)))

    assert actions_of(plan) == [("create", SECOND)]


def test_creations_respect_max() -> None:
    requests = tuple(a_request(id=str(number)) for number in range(5))

    plan = reconcile(fleet_with(max=2), a_sim_world(requests=requests))

    assert len(plan.actions) == 2
    (unserved,) = plan.unserved
    assert (unserved.count, unserved.path) == (3, ("pools", "builders", "workers", "max"))
    assert tells(unserved.because, "builders", "workers.max", "2")


def test_creations_respect_max_starting() -> None:
    requests = tuple(a_request(id=str(number)) for number in range(5))
    world = a_sim_world(starting=(FIRST,), requests=requests)

    plan = reconcile(fleet_with(max=9, max_starting=2), world)

    assert actions_of(plan) == [("create", SECOND)]
    assert plan.unserved[0].path == ("pools", "builders", "workers", "max_starting")


@pytest.mark.parametrize(
    ("state", "made"), [(MachineState.STARTING, []), (MachineState.RUNNING, [("create", SECOND)])]
)
def test_only_booting_machines_count_to_max_starting_without_registry(
    state: MachineState, made: list[tuple[str, str]]
) -> None:
    machine = a_machine(state=state, id="sim-1")
    world = a_sim_world(
        requests=(a_request(id="1"), a_request(id="2")),
        providers={"desk": a_listing(machine)},
        stacks={
            "builders": a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "sim-1"})
        },
    )

    assert actions_of(reconcile(fleet_with(max_starting=1), world)) == made


def test_cheapest_fitting_pool_is_used() -> None:
    fleet = a_sim_fleet(
        pools={
            "dear": a_pool(provider="desk", machine="ccx63"),
            "cheap": a_pool(provider="desk", machine="ccx13"),
        }
    )

    plan = reconcile(fleet, a_sim_world(requests=(a_request(),)))

    assert [action.pool for action in plan.actions] == ["cheap"]


def test_next_cheapest_pool_is_used_when_one_is_full() -> None:
    fleet = a_sim_fleet(
        pools={
            "dear": a_pool(provider="desk", machine="ccx63"),
            "cheap": a_pool(provider="desk", machine="ccx13", max=1),
        }
    )
    requests = (a_request(id="1"), a_request(id="2"))

    plan = reconcile(fleet, a_sim_world(requests=requests))

    assert [action.pool for action in plan.actions] == ["cheap", "dear"]


def test_higher_priority_is_served_before_age() -> None:
    old = a_request(id="1", pending_since=ago(days=1))
    urgent = a_request(id="2", priority=10)

    plan = reconcile(fleet_with(max=1), a_sim_world(requests=(old, urgent)))

    assert isinstance(plan.actions[0], Create)
    assert plan.actions[0].serves == ("debian/2",)


def test_unserved_request_names_missing_tag() -> None:
    request = a_request(required=("worker:build-arch:riscv64",))

    plan = reconcile(a_sim_fleet(), a_sim_world(requests=(request,)))

    assert plan.is_quiet
    assert tells(plan.unserved[0].because, "builders", "worker:build-arch:riscv64")


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ("gpu", "provides"),
        ("worker:build-arch:riscv64", "image"),
        ("memory_gib>=4096", "machine"),
    ],
)
def test_unserved_request_names_key_that_decides(asked: str, key: str) -> None:
    fleet = a_sim_fleet(tags={"memory_gib": {"kind": "number"}})

    plan = reconcile(fleet, a_sim_world(requests=(a_request(required=(asked,)),)))

    assert plan.unserved[0].path == ("pools", "builders", key)


@pytest.mark.parametrize("provides", [[], ["big"]])
def test_unserved_request_names_requires_of_pool(
    provides: list[str],
) -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", requires=["trusted"], provides=provides)},
        tags={"big": {"exclusive": True}},
    )

    plan = reconcile(fleet, a_sim_world(requests=(a_request(),)))

    assert plan.unserved[0].path == ("pools", "builders", "requires")


@pytest.mark.parametrize("name", ["builders", "image", "machine"])
def test_unserved_request_names_provides_of_on_demand_pool(name: str) -> None:
    fleet = a_sim_fleet(
        pools={name: a_pool(provider="desk", provides=["big"])}, tags={"big": {"on_demand": True}}
    )

    plan = reconcile(fleet, a_sim_world(requests=(a_request(required=("gpu",)),)))

    assert plan.unserved[0].path == ("pools", name, "provides")


def test_unserved_request_names_provides_of_static_pool() -> None:
    fleet = a_sim_fleet(pools={"legacy": {"static": ["old-1"]}})
    request = a_request(required=("worker:build-arch:riscv64",))

    plan = reconcile(fleet, a_sim_world(requests=(request,)))

    assert plan.unserved[0].path == ("pools", "legacy", "provides")


def test_new_pool_provides_tags_of_image_catalogue_and_config() -> None:
    fleet = a_sim_fleet(
        images={"trixie": {"suite": "trixie", "architecture": "amd64", "provides": ["of-image"]}},
        pools={"builders": a_pool(provider="desk", provides=["of-pool"])},
    )
    request = a_request(required=("of-image", "of-pool", "worker:build-arch:amd64"))

    plan = reconcile(fleet, a_sim_world(requests=(request,)))

    assert actions_of(plan) == [("create", FIRST)]


def test_pool_with_requires_serves_only_requests_with_that_tag() -> None:
    fleet = fleet_with(requires=["task:scope:debian"])
    with_tag = a_request(id="1", provided=("task:scope:debian",))
    without = a_request(id="2")

    plan = reconcile(fleet, a_sim_world(requests=(with_tag, without)))

    assert isinstance(plan.actions[0], Create)
    assert plan.actions[0].serves == ("debian/1",)
    assert plan.unserved[0].requests == ("debian/2",)


def test_pool_with_exclusive_tag_serves_no_other_requests() -> None:
    fleet = a_sim_fleet(
        tags={"powerful": {"exclusive": True}},
        pools={"builders": a_pool(provider="desk", provides=["powerful"])},
    )

    plan = reconcile(fleet, a_sim_world(requests=(a_request(),)))

    assert plan.is_quiet
    assert tells(plan.unserved[0].because, "exclusive", "powerful")


def test_on_demand_pool_keeps_no_machine_without_requests() -> None:
    fleet = a_sim_fleet(
        tags={"powerful": {"on_demand": True}},
        pools={"builders": a_pool(provider="desk", provides=["powerful"])},
    )

    plan = reconcile(fleet, a_sim_world(requests=(a_request(),)))

    assert plan.is_quiet


def test_on_demand_pool_creates_machine_per_request_with_tag() -> None:
    fleet = a_sim_fleet(
        tags={"powerful": {"on_demand": True}},
        pools={"builders": a_pool(provider="desk", provides=["powerful"])},
    )
    requests = (a_request(id="1", required=("powerful",)), a_request(id="2"))

    plan = reconcile(fleet, a_sim_world(requests=requests))

    assert actions_of(plan) == [("create", FIRST)]


def test_idle_on_demand_worker_is_drained_immediately() -> None:
    fleet = a_sim_fleet(
        tags={"powerful": {"on_demand": True}},
        pools={"builders": a_pool(provider="desk", provides=["powerful"])},
    )

    plan = reconcile(fleet, a_sim_world(a_worker(since=ago(seconds=1))))

    assert actions_of(plan) == [("drain", FIRST)]


def test_spare_workers_are_created_beyond_waiting_requests() -> None:
    plan = reconcile(fleet_with(spare=1), a_sim_world(requests=(a_request(),)))

    assert [action.reason for action in plan.actions] == [
        Reason.REQUESTS_WAIT,
        Reason.BELOW_SPARE,
    ]


def test_min_workers_are_kept_without_requests() -> None:
    plan = reconcile(fleet_with(min=2), a_sim_world())

    assert [action.reason for action in plan.actions] == [Reason.BELOW_MIN, Reason.BELOW_MIN]


def test_worker_idle_for_too_long_is_drained_first() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world(a_worker(since=ago(hours=1))))

    assert actions_of(plan) == [("drain", FIRST)]


def test_briefly_idle_worker_is_kept() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world(a_worker(since=ago(minutes=1))))

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.IDLE_RECENTLY


def test_worker_is_drained_when_idle_for_exactly_idle_after() -> None:
    def plan_after(seconds: int) -> Plan:
        return reconcile(a_sim_fleet(), a_sim_world(a_worker(since=ago(seconds=seconds))))

    assert plan_after(899).is_quiet
    assert actions_of(plan_after(900)) == [("drain", FIRST)]


def test_longest_idle_worker_is_drained_first() -> None:
    workers = (
        a_worker(name=FIRST, since=ago(minutes=20)),
        a_worker(name=SECOND, since=ago(hours=2)),
    )

    plan = reconcile(fleet_with(spare=1), a_sim_world(*workers))

    assert actions_of(plan) == [("drain", SECOND)]


def test_worker_observed_drained_and_idle_is_deleted() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world(a_worker(draining=True)))

    assert actions_of(plan) == [("delete", FIRST)]


def test_busy_worker_is_never_deleted_even_when_draining() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world(a_worker(busy=True, draining=True)))

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.BUSY


def test_lowered_max_drains_idle_workers_and_keeps_busy_ones() -> None:
    workers = (a_worker(name=FIRST, busy=True), a_worker(name=SECOND))

    plan = reconcile(fleet_with(max=1), a_sim_world(*workers))

    assert actions_of(plan) == [("drain", SECOND)]
    assert reason_of(plan, SECOND) is Reason.ABOVE_MAX


def test_pool_removed_from_fleet_yaml_drains() -> None:
    worker = a_worker(name="debian-ci-old-0001", pool="old")

    plan = reconcile(a_sim_fleet(), a_sim_world(worker))

    assert actions_of(plan) == [("drain", "debian-ci-old-0001")]
    assert reason_of(plan, "debian-ci-old-0001") is Reason.POOL_REMOVED


def test_pool_in_mode_drain_creates_no_machine() -> None:
    world = a_sim_world(a_worker(), requests=(a_request(id="1"), a_request(id="2")))

    plan = reconcile(fleet_with(mode="drain"), world)

    assert actions_of(plan) == [("drain", FIRST)]


def test_paused_pool_is_unchanged() -> None:
    world = a_sim_world(a_worker(since=ago(days=1)), requests=())

    plan = reconcile(fleet_with(mode="pause", spare=3), world)

    assert plan.is_quiet


def test_new_worker_gets_smallest_free_name() -> None:
    workers = (
        a_worker(name=FIRST, busy=True),
        a_worker(name="debian-ci-builders-0003", busy=True),
    )

    plan = reconcile(a_sim_fleet(), a_sim_world(*workers, requests=(a_request(),)))

    assert actions_of(plan) == [("create", SECOND)]


def test_plan_cost_counts_existing_and_new_machines() -> None:
    world = a_sim_world(a_worker(busy=True), requests=(a_request(),))

    plan = reconcile(a_sim_fleet(), world)

    assert (str(plan.cost_before), str(plan.cost_after)) == ("0.0777", "0.1554")


def test_grouped_requests_count_each() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world(requests=(a_request(count=2),)))

    assert len(plan.actions) == 2


def test_requests_of_unserved_queue_get_no_machine() -> None:
    fleet = fleet_with(serves=["other"])

    plan = reconcile(fleet, a_sim_world(requests=(a_request(),)))

    assert tells(plan.unserved[0].because, "no pool", "queue debian")


def test_plan_has_time_of_world() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world())

    assert plan.time == NOW
