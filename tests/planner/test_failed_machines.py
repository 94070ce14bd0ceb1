"""What becomes of a machine that its provider found not to work, one sentence per test."""

import pytest

from fleet.guard import guard
from fleet.model.facts import MachineState, WorkerState, World
from fleet.model.plan import Cause, Delete, Plan, Reason
from fleet.planner.inventory import take_inventory
from fleet.planner.units import UnitState
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_request, a_sim_world, a_worker, ago
from tests.builders.deciding import (
    FIRST,
    SECOND,
    THIRD,
    actions_of,
    fleet_with,
    idle,
    outdated,
    reason_of,
    sentence_of,
    with_machines,
)
from tests.builders.sentences import tells

FOURTH = "debian-ci-builders-0004"


def failing(world: World, *names: str) -> World:
    return with_machines(world, *names, state=MachineState.FAILED)


def without_registry(world: World) -> World:
    listing = world.providers["desk"].altered(workers=None)
    return world.altered(providers={"desk": listing})


def planned(world: World, fleet: Fleet | None = None) -> Plan:
    fleet = fleet or fleet_with()
    return guard(fleet, reconcile(fleet, world))


def test_idle_failed_machine_is_drained() -> None:
    plan = planned(failing(a_sim_world(*idle(FIRST, SECOND)), FIRST))

    assert actions_of(plan) == [("drain", FIRST)]
    assert reason_of(plan, FIRST) is Reason.LIVECHECK_FAILED
    assert [action.cause for action in plan.actions] == [Cause.KNOWLEDGE]


def test_working_failed_machine_does_not_delay_other_drains() -> None:
    plan = planned(failing(a_sim_world(*idle(FIRST, SECOND)), SECOND))

    assert actions_of(plan) == [("drain", SECOND)]


def test_busy_failed_machine_is_drained() -> None:
    plan = planned(failing(a_sim_world(a_worker(name=FIRST, busy=True)), FIRST))

    assert actions_of(plan) == [("drain", FIRST)]


def test_drained_busy_failed_machine_is_kept() -> None:
    plan = planned(failing(a_sim_world(a_worker(name=FIRST, busy=True, draining=True)), FIRST))

    assert plan.actions == ()
    assert reason_of(plan, FIRST) is Reason.BUSY


def test_drained_failed_machine_is_deleted_as_failed() -> None:
    plan = planned(failing(a_sim_world(a_worker(name=FIRST, draining=True)), FIRST))

    assert actions_of(plan) == [("delete", FIRST)]
    assert reason_of(plan, FIRST) is Reason.LIVECHECK_FAILED


def test_failed_machine_of_disconnected_worker_is_deleted() -> None:
    lost = a_worker(name=FIRST, state=WorkerState.DISCONNECTED)

    (action,) = planned(failing(a_sim_world(lost), FIRST)).actions

    assert isinstance(action, Delete)
    assert (action.registry, action.reason) == ("desk", Reason.LIVECHECK_FAILED)


def test_booting_machine_fails_only_by_its_deadline() -> None:
    world = failing(a_sim_world(starting=(FIRST,), requests=(a_request(),)), FIRST)

    assert planned(world).actions == ()


def test_request_gets_another_machine_when_one_failed() -> None:
    world = failing(a_sim_world(*idle(FIRST), requests=(a_request(),)), FIRST)

    assert actions_of(planned(world)) == [("create", SECOND), ("drain", FIRST)]


def test_failed_machine_is_kept_with_notice_without_registry() -> None:
    world = without_registry(failing(a_sim_world(*idle(FIRST), requests=(a_request(),)), FIRST))

    plan = planned(world)

    assert take_inventory(fleet_with(), world)["builders"].units[0].state is UnitState.FAILED
    assert FIRST not in plan.signatures[0].by_worker.values()
    assert actions_of(plan) == []
    assert reason_of(plan, FIRST) is Reason.LIVECHECK_FAILED
    assert tells(sentence_of(plan, FIRST), "no queue", "busy")
    assert tells(plan.attention[0], FIRST, "failed")


def test_paused_pool_keeps_failed_machine() -> None:
    plan = planned(failing(a_sim_world(*idle(FIRST)), FIRST), fleet_with(mode="pause"))

    assert plan.actions == ()


def test_outdated_failed_machine_is_replaced_immediately() -> None:
    world = failing(outdated(a_sim_world(*idle(FIRST))), FIRST)

    plan = planned(world, fleet_with(replace={"at_a_time": "0%"}))

    assert reason_of(plan, FIRST) is Reason.LIVECHECK_FAILED


@pytest.mark.parametrize(("names", "refused"), [((FIRST,), False), ((FIRST, SECOND, THIRD), True)])
def test_guard_refuses_when_many_machines_fail_together(
    names: tuple[str, ...], *, refused: bool
) -> None:
    world = failing(a_sim_world(*idle(FIRST, SECOND, THIRD, FOURTH)), *names)

    plan = planned(world, fleet_with(max=4))

    assert plan.is_refused is refused


def test_long_idle_failed_worker_has_reason_failed() -> None:
    world = failing(a_sim_world(a_worker(name=FIRST, since=ago(days=1))), FIRST)

    assert reason_of(planned(world), FIRST) is Reason.LIVECHECK_FAILED
