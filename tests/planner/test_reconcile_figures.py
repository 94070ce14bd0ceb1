"""What the steps decide and say, to the last word: the borders and the sentences of each."""

from datetime import timedelta

import pytest

from fleet.model.facts import MachineState, WorkerState
from fleet.model.plan import Create, Delete, Reason
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet, StaticPool
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
from tests.builders.deciding import (
    FIRST,
    SECOND,
    actions_of,
    fleet_with,
    reason_of,
    sentence_of,
    with_machines,
)
from tests.builders.sentences import tells

THIRD = "debian-ci-builders-0003"


def test_deletion_of_killed_apply_is_finished() -> None:
    stack = a_stack(provider="desk", workers=(), ids={FIRST: "hcloud-1"}, interrupted=True)
    listing = a_listing(a_machine(), workers=())
    world = a_sim_world(providers={"desk": listing}, stacks={"builders": stack})

    (action,) = reconcile(fleet_with(), world).actions

    assert isinstance(action, Delete)
    assert (action.worker, action.reason) == (FIRST, Reason.INTERRUPTED)


def test_interrupted_creations_are_finished_up_to_max() -> None:
    names = (FIRST, SECOND, THIRD)
    workers = tuple(some_inputs(name=name) for name in names)
    stack = a_stack(provider="desk", workers=workers, ids={}, interrupted=True)

    plan = reconcile(fleet_with(max=2), a_sim_world(stacks={"builders": stack}))

    assert actions_of(plan) == [("create", FIRST), ("create", SECOND), ("delete", THIRD)]
    assert reason_of(plan, THIRD) is Reason.INTERRUPTED


def test_recorded_workers_after_unwanted_one_are_kept() -> None:
    workers = tuple(some_inputs(name=name) for name in (FIRST, SECOND))
    stack = a_stack(provider="desk", workers=workers, ids={}, interrupted=True)
    listing = a_listing(a_machine(name=SECOND, state=MachineState.STARTING), workers=())
    world = a_sim_world(providers={"desk": listing}, stacks={"builders": stack})

    plan = reconcile(fleet_with(max=1), world)

    assert actions_of(plan) == [("create", SECOND), ("delete", FIRST)]


def test_drained_machine_of_removed_pool_has_reason_pool_removed() -> None:
    world = a_sim_world(a_worker(draining=True))

    (action,) = reconcile(a_sim_fleet(pools={}), world).actions

    assert (action.action, action.reason) == ("delete", Reason.POOL_REMOVED)


def test_disabled_worker_is_deleted_with_its_machine() -> None:
    world = a_sim_world(a_worker(state=WorkerState.DISABLED), a_worker(name=SECOND))

    plan = reconcile(fleet_with(), world)

    assert actions_of(plan) == [("delete", FIRST)]
    assert reason_of(plan, FIRST) is Reason.DISABLED


@pytest.mark.parametrize(
    ("pools", "reason"),
    [
        ({"builders": a_pool(provider="desk", mode="drain")}, Reason.POOL_DRAINING),
        ({}, Reason.POOL_REMOVED),
    ],
)
def test_unwanted_pool_has_reason(pools: dict[str, object], reason: Reason) -> None:
    plan = reconcile(a_sim_fleet(pools=pools), a_sim_world(a_worker()))

    assert reason_of(plan, FIRST) is reason


def test_pool_at_max_drains_no_worker() -> None:
    world = a_sim_world(a_worker(), a_worker(name=SECOND), starting=(THIRD,))

    assert reconcile(fleet_with(max=3, min=3), world).actions == ()


def test_boots_are_deleted_only_above_max() -> None:
    world = a_sim_world(a_worker(busy=True), starting=(SECOND, THIRD))

    plan = reconcile(fleet_with(max=2, min=2), world)

    assert [(a.action, a.reason) for a in plan.actions] == [("delete", Reason.ABOVE_MAX)]


def test_boot_failure_names_deadline_of_pool() -> None:
    world = with_machines(a_sim_world(starting=(FIRST,)), FIRST, created_at=ago(minutes=4))

    plan = reconcile(fleet_with(boot={"deadline": "3m"}), world)

    assert "boot.deadline (3m)" in sentence_of(plan, FIRST)


def test_warm_machine_is_of_cheapest_type() -> None:
    fleet = fleet_with(min=1, machine={"type": ["ccx63", "ccx13"]})

    (action,) = reconcile(fleet, a_sim_world()).actions

    assert isinstance(action, Create)
    assert action.inputs.type == "ccx13"


def test_outdated_machine_type_names_current_types() -> None:
    fleet = fleet_with(machine={"type": ["ccx63", "ccx13"]}, replace={"at_a_time": "100%"})
    world = with_machines(
        a_sim_world(a_worker()), FIRST, digest="yesterday", image="trixie", type="ccx33"
    )

    said = sentence_of(reconcile(fleet, world), FIRST)

    assert tells(said, "ccx33", "ccx63", "ccx13")


def test_paid_machine_does_not_delay_other_deletions() -> None:
    billing = {"desk": {"kind": "sim", "billing": {"increment": "1h"}}}
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk")}, providers=billing, cadence="5m"
    )
    idle = [a_worker(name=name, since=ago(minutes=30)) for name in (FIRST, SECOND)]
    world = with_machines(a_sim_world(*idle), FIRST, created_at=ago(minutes=50))
    world = with_machines(world, SECOND, created_at=ago(minutes=31))

    plan = reconcile(fleet, world)

    assert actions_of(plan) == [("drain", FIRST)]


def test_replacements_of_one_run_all_count_as_starting() -> None:
    fleet = fleet_with(max=6, min=3, replace={"at_a_time": "100%"})
    world = with_machines(
        a_sim_world(*(a_worker(name=name) for name in (FIRST, SECOND, THIRD))), digest="yesterday"
    )

    plan = reconcile(fleet, world)

    assert [(a.action, a.reason) for a in plan.actions] == [("create", Reason.REPLACEMENT)] * 3


def test_machine_created_in_the_future_has_no_paid_time() -> None:
    billing = {"desk": {"kind": "sim", "billing": {"increment": "1h"}}}
    fleet = a_sim_fleet(pools={"builders": a_pool(provider="desk")}, providers=billing)
    world = with_machines(
        a_sim_world(a_worker(since=ago(hours=1))), FIRST, created_at=NOW + timedelta(minutes=5)
    )

    assert actions_of(reconcile(fleet, world)) == [("drain", FIRST)]


def test_booting_worker_with_request_is_not_surplus() -> None:
    world = a_sim_world(requests=(a_request(),), starting=(FIRST, SECOND))

    assert actions_of(reconcile(fleet_with(), world)) == [("delete", SECOND)]


# warm and surplus, to the last word


@pytest.mark.parametrize(
    ("starting", "lacking"),
    [(1, 2), (2, 1)],
)
def test_pool_names_limit_that_keeps_it_below_min(starting: int, lacking: int) -> None:
    plan = reconcile(fleet_with(max=4, min=3, max_starting=starting), a_sim_world())

    assert len(plan.actions) == starting
    because = plan.pools[0].because
    assert tells(because, "3", lacking, "builders", "workers.max_starting", starting)


def test_former_machines_of_static_pool_are_deleted() -> None:
    fleet = a_sim_fleet(pools={"builders": StaticPool(static=["old-1"])})

    plan = reconcile(fleet, a_sim_world(a_worker()))

    assert [(a.action, a.reason) for a in plan.actions] == [("drain", Reason.POOL_REMOVED)]


def an_hourly_fleet(**pool: object) -> Fleet:
    providers = {"desk": {"kind": "sim", "billing": {"increment": "1h"}}}
    pools = {"builders": a_pool(provider="desk", **pool)}
    return a_sim_fleet(pools=pools, providers=providers, cadence="10m")


def test_unneeded_boot_is_kept_until_last_run_of_paid_hour() -> None:
    fleet = an_hourly_fleet(boot={"deadline": "1h"})
    world = with_machines(a_sim_world(starting=(FIRST,)), FIRST, created_at=ago(minutes=45))

    assert reconcile(fleet, world).actions == ()


@pytest.mark.parametrize(("minutes", "first"), [(45, FIRST), (38, SECOND)])
def test_paid_time_shorter_than_a_run_does_not_count(minutes: int, first: str) -> None:
    workers = (a_worker(since=ago(hours=2)), a_worker(name=SECOND, since=ago(hours=1)))
    world = with_machines(a_sim_world(*workers), FIRST, created_at=ago(minutes=minutes, hours=2))
    world = with_machines(world, SECOND, created_at=ago(minutes=47, hours=1))

    (action,) = reconcile(an_hourly_fleet(min=1), world).actions

    assert action.worker == first


@pytest.mark.parametrize("youngest", [FIRST, SECOND])
def test_youngest_of_two_booting_machines_is_deleted(youngest: str) -> None:
    world = a_sim_world(starting=(FIRST, SECOND))
    world = with_machines(world, youngest, created_at=ago(seconds=5))

    assert actions_of(reconcile(fleet_with(spare=1), world)) == [("delete", youngest)]


def test_machine_booting_for_request_is_not_spare() -> None:
    world = a_sim_world(requests=(a_request(),), starting=(FIRST, SECOND))

    assert reconcile(fleet_with(spare=1), world).actions == ()


def test_no_spare_machine_is_created_while_requests_wait() -> None:
    world = a_sim_world(requests=(a_request(id="1"), a_request(id="2")))

    plan = reconcile(fleet_with(max=1, spare=1), world)

    assert tells(plan.pools[0].because, "1", "1", "workers.spare", "1")


def test_ready_spare_machines_are_not_explained_as_missing() -> None:
    giants = a_pool(provider="desk", provides=["giant"], spare=1)
    fleet = a_sim_fleet(pools={"giants": giants}, tags={"giant": {"limits": {"total": 1}}})
    names = ("debian-ci-giants-0001", "debian-ci-giants-0002")
    busy = a_worker(name=names[0], pool="giants", busy=True, work={"required": ("giant",)})
    idle = a_worker(name=names[1], pool="giants")

    plan = reconcile(fleet, a_sim_world(busy, idle, requests=(a_request(required=("giant",)),)))

    assert tells(plan.pools[0].because, "1", "workers.spare", "1")
