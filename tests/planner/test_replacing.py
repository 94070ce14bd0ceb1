"""How what is outdated is replaced, one sentence per test."""

import pytest

from fleet.model.facts import Unknown, WorkerState
from fleet.model.plan import Cause, Create, Plan, Reason
from fleet.reconcile import reconcile
from tests.builders import (
    a_listing,
    a_machine,
    a_pool,
    a_reading,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
    some_inputs,
)
from tests.builders.deciding import (
    AT_NIGHT,
    FIRST,
    MON_TO_FRI,
    SECOND,
    THIRD,
    actions_of,
    drained,
    fleet_with,
    idle,
    outdated,
    reason_of,
    sentence_of,
    with_machines,
)
from tests.builders.sentences import tells


def of_three(**pool: object) -> Plan:
    """Return the plan for three idle outdated workers."""
    world = outdated(a_sim_world(*idle(FIRST, SECOND, THIRD)))
    return reconcile(fleet_with(**pool), world)


# what is outdated


def test_idle_outdated_worker_is_drained_when_unneeded() -> None:
    plan = reconcile(fleet_with(), outdated(a_sim_world(*idle(FIRST))))

    assert actions_of(plan) == [("drain", FIRST)]
    assert reason_of(plan, FIRST) is Reason.OUTDATED
    assert tells(sentence_of(plan, FIRST), "image trixie-0", "trixie")


def test_replacement_is_caused_by_config() -> None:
    plan = reconcile(fleet_with(min=1), outdated(a_sim_world(*idle(FIRST))))

    assert [(a.reason, a.cause) for a in plan.actions] == [(Reason.REPLACEMENT, Cause.CONFIG)]


def test_machine_is_outdated_by_another_machine_type() -> None:
    world = with_machines(a_sim_world(*idle(FIRST)), digest="yesterday", image="trixie")

    plan = reconcile(fleet_with(machine="ccx13"), world)

    assert tells(sentence_of(plan, FIRST), "ccx33", "ccx13")


@pytest.mark.parametrize("tags", [{"provides": ["big"]}, {"requires": ["task:big"]}])
def test_machine_is_outdated_by_other_tags(tags: dict[str, object]) -> None:
    made = reconcile(fleet_with(), a_sim_world(requests=(a_request(),))).actions[0]
    assert isinstance(made, Create)
    world = with_machines(
        a_sim_world(*idle(FIRST)), digest=made.inputs.labels["digest"], image="trixie"
    )

    plan = reconcile(fleet_with(**tags), world)

    assert reason_of(plan, FIRST) is Reason.OUTDATED
    assert tells(sentence_of(plan, FIRST), "configuration")


def test_machine_without_a_digest_is_not_outdated() -> None:
    assert reconcile(fleet_with(), a_sim_world(*idle(FIRST))).is_quiet


def test_machine_is_not_outdated_without_published_image() -> None:
    fleet = a_sim_fleet(
        images={"trixie": {"existing": {"elsewhere": "i-1"}}},
    )

    assert reconcile(fleet, outdated(a_sim_world(*idle(FIRST)))).is_quiet


@pytest.mark.parametrize(
    "steering",
    [
        {"max": 9, "min": 1, "spare": 1, "max_starting": 2},
        {"budget": {"per_hour": "1 EUR"}},
        {"boot": {"expected": "30s", "deadline": "15m"}},
        {"retire": {"idle_after": "1m", "max_age": "99d", "max_uses": 7}},
        {"replace": {"at_a_time": "50%", "windows": [MON_TO_FRI]}},
        {"target_wait": "15m"},
        {"mode": "observe"},
        {"serves": ["debian"]},
    ],
)
def test_edit_of_pool_behaviour_outdates_no_machine(steering: dict[str, object]) -> None:
    made = reconcile(fleet_with(), a_sim_world(requests=(a_request(),))).actions[0]
    assert isinstance(made, Create)
    world = with_machines(a_sim_world(*idle(FIRST)), digest=made.inputs.labels["digest"])

    plan = reconcile(fleet_with(**steering), world)

    assert not next(verdict for verdict in plan.workers if verdict.worker == FIRST).outdated


def test_edit_of_guards_or_cadence_outdates_no_machine() -> None:
    made = reconcile(a_sim_fleet(), a_sim_world(requests=(a_request(),))).actions[0]
    assert isinstance(made, Create)
    world = with_machines(a_sim_world(*idle(FIRST)), digest=made.inputs.labels["digest"])

    plan = reconcile(a_sim_fleet(cadence="1m", guards={"demand_max_age": "9m"}), world)

    assert plan.is_quiet


# a share at a time


@pytest.mark.parametrize(
    ("share", "at_once"), [(1, 1), (10, 1), (33, 1), (40, 2), (67, 3), (100, 3), (0, 0)]
)
def test_replacement_share_is_rounded_up_to_whole_workers(share: int, at_once: int) -> None:
    assert len(drained(of_three(replace={"at_a_time": f"{share}%"}))) == at_once


def test_default_replacement_share_is_a_tenth_rounded_up() -> None:
    names = [f"debian-ci-builders-{number:04}" for number in range(1, 12)]

    plan = reconcile(fleet_with(max=20), outdated(a_sim_world(*idle(*names))))

    assert len(drained(plan)) == 2


def test_outdated_workers_beyond_share_wait_for_their_turn() -> None:
    plan = of_three()

    assert drained(plan) == [FIRST]
    assert reason_of(plan, SECOND) is Reason.WAITS_FOR_WINDOW
    assert tells(sentence_of(plan, SECOND), "trixie-0", "trixie", "replace.at_a_time", "10%")


def test_oldest_outdated_machine_is_replaced_first() -> None:
    world = outdated(a_sim_world(*idle(FIRST, SECOND)))
    world = with_machines(world, SECOND, created_at=ago(days=3))

    assert drained(reconcile(fleet_with(), world)) == [SECOND]


def test_draining_worker_counts_to_replacement_share() -> None:
    workers = (a_worker(busy=True, draining=True), *idle(SECOND, THIRD))

    plan = reconcile(fleet_with(), outdated(a_sim_world(*workers)))

    assert plan.is_quiet


# in windows


def test_outdated_worker_is_drained_within_window() -> None:
    plan = of_three(replace={"windows": ["sat 09:00-10:00 Europe/Berlin"]})

    assert drained(plan) == [FIRST]


def test_no_worker_is_replaced_outside_windows() -> None:
    plan = of_three(replace={"windows": [MON_TO_FRI, AT_NIGHT]})

    assert plan.is_quiet
    assert tells(
        sentence_of(plan, FIRST), "trixie-0", "trixie", "replace.windows", "2026-11-21 22:00 UTC"
    )


def test_window_without_zone_is_in_zone_of_fleet() -> None:
    fleet = a_sim_fleet(
        money={"time_zone": "Asia/Tokyo"},
        pools={"builders": a_pool(provider="desk", replace={"windows": ["sat 17:00-18:00"]})},
    )

    assert drained(reconcile(fleet, outdated(a_sim_world(*idle(FIRST))))) == [FIRST]


# the replacement first


def test_worker_needed_for_min_is_drained_after_replacement() -> None:
    plan = reconcile(fleet_with(min=1), outdated(a_sim_world(*idle(FIRST))))

    assert actions_of(plan) == [("create", SECOND)]
    assert reason_of(plan, SECOND) is Reason.REPLACEMENT
    assert reason_of(plan, FIRST) is Reason.WAITS_FOR_WINDOW


def test_outdated_worker_is_kept_while_replacement_boots() -> None:
    world = outdated(a_sim_world(*idle(FIRST, since=ago(hours=9)), starting=(SECOND,)), FIRST)

    plan = reconcile(fleet_with(min=1), world)

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.WAITS_FOR_WINDOW
    assert tells(sentence_of(plan, FIRST), "replacement")


def test_outdated_worker_is_drained_after_replacement_registered() -> None:
    world = outdated(a_sim_world(*idle(FIRST, SECOND)), FIRST)

    assert actions_of(reconcile(fleet_with(min=1), world)) == [("drain", FIRST)]


def test_spare_worker_is_drained_after_replacement() -> None:
    plan = reconcile(fleet_with(spare=1), outdated(a_sim_world(*idle(FIRST))))

    assert actions_of(plan) == [("create", SECOND)]


def test_outdated_worker_is_drained_first_when_pool_is_at_max() -> None:
    plan = reconcile(fleet_with(min=2, max=2), outdated(a_sim_world(*idle(FIRST, SECOND))))

    assert actions_of(plan) == [("drain", FIRST)]
    assert tells(sentence_of(plan, FIRST), "workers.max")


def test_outdated_workers_wait_when_a_deletion_frees_capacity() -> None:
    plan = of_three(min=2, max=3, replace={"at_a_time": "100%"})

    assert actions_of(plan) == [("drain", FIRST)]
    assert {reason_of(plan, each) for each in (SECOND, THIRD)} == {Reason.WAITS_FOR_WINDOW}
    assert tells(sentence_of(plan, SECOND), "room")


def test_outdated_workers_are_kept_until_replacement_is_ready() -> None:
    plan = of_three(min=3, max=4, replace={"at_a_time": "100%"})

    assert [action.action for action in plan.actions] == ["create"]


def test_no_worker_is_drained_at_max_while_a_machine_boots() -> None:
    world = outdated(a_sim_world(*idle(FIRST), starting=(SECOND,)), FIRST)

    assert reconcile(fleet_with(min=2, max=2), world).is_quiet


def test_max_starting_delays_replacement_and_drain() -> None:
    pool = {"min": 1, "max": 9, "max_starting": 0}

    plan = reconcile(fleet_with(**pool), outdated(a_sim_world(*idle(FIRST))))

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.WAITS_FOR_WINDOW
    assert tells(sentence_of(plan, FIRST), "room")


def test_share_of_several_workers_creates_several_replacements() -> None:
    plan = of_three(min=3, max=9, replace={"at_a_time": "40%"})

    assert [action.action for action in plan.actions] == ["create", "create"]


def test_requests_get_capacity_before_replacements() -> None:
    world = outdated(a_sim_world(a_worker(busy=True), requests=(a_request(),)))

    plan = reconcile(fleet_with(min=1, max=2), world)

    assert [a.reason for a in plan.actions] == [Reason.REQUESTS_WAIT]


# what works is let finish


def test_busy_outdated_worker_is_drained_and_finishes_its_work() -> None:
    plan = reconcile(fleet_with(), outdated(a_sim_world(a_worker(busy=True))))

    assert actions_of(plan) == [("drain", FIRST)]


def test_busy_draining_worker_finishes_its_work() -> None:
    world = outdated(a_sim_world(a_worker(busy=True, draining=True)))

    plan = reconcile(fleet_with(), world)

    assert plan.is_quiet
    assert tells(sentence_of(plan, FIRST), "request 90")


def test_outdated_worker_is_kept_for_waiting_work() -> None:
    world = outdated(a_sim_world(*idle(FIRST), requests=(a_request(),)))

    plan = reconcile(fleet_with(), world)

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.SERVES_WAITING


def test_idle_worker_is_replaced_before_a_busy_one() -> None:
    world = outdated(a_sim_world(a_worker(busy=True), *idle(SECOND)))

    assert drained(reconcile(fleet_with(), world)) == [SECOND]


def test_drained_outdated_worker_is_deleted_outside_window() -> None:
    world = outdated(a_sim_world(a_worker(draining=True)))

    plan = reconcile(fleet_with(replace={"windows": [MON_TO_FRI]}), world)

    assert [(a.action, a.reason) for a in plan.actions] == [("delete", Reason.OUTDATED)]


# unknown is not zero


def test_no_worker_is_replaced_without_registry() -> None:
    machine = a_machine(id="sim-1", digest="yesterday")
    world = a_sim_world(
        queues={"debian": a_reading(workers=None)},
        providers={"desk": a_listing(machine)},
        stacks={
            "builders": a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "sim-1"})
        },
    )

    assert reconcile(fleet_with(min=1), world).is_quiet


def test_absent_outdated_worker_is_not_replaced() -> None:
    away = a_worker(name=FIRST, state=WorkerState.DISCONNECTED)

    assert reconcile(fleet_with(), outdated(a_sim_world(away, *idle(SECOND)), FIRST)).is_quiet


def test_no_worker_is_replaced_when_demand_is_unknown() -> None:
    dark = {"debian": a_reading(demand=Unknown(unknown="no answer"), workers=None)}
    world = outdated(a_sim_world(*idle(FIRST), queues=dark))

    assert reconcile(fleet_with(min=1), world).is_quiet


def test_paused_pool_replaces_no_worker() -> None:
    world = outdated(a_sim_world(*idle(FIRST)))

    assert reconcile(fleet_with(min=1, mode="pause"), world).is_quiet
