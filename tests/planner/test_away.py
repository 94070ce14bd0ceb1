"""Workers that are away: on a machine that is off, or on one that runs and is not heard."""

from datetime import timedelta

import pytest

from fleet.model.facts import Unknown, Worker, WorkerState
from fleet.model.plan import Delete, Drain, Plan, Reason
from fleet.planner.units import DISCONNECTED_GRACE, RETURN_GRACE, UnitState
from fleet.reconcile import reconcile
from fleet.schema.units import write_duration
from tests.builders import NOW, a_request, a_worker, ago
from tests.builders.deciding import state_of
from tests.builders.queue_worlds import (
    FIRST,
    SECOND,
    THIRD,
    a_debusine_fleet,
    a_debusine_world,
    created,
    ours,
    planned,
)
from tests.builders.sentences import tells

LONG = timedelta(seconds=DISCONNECTED_GRACE + 1)
AGO = write_duration(DISCONNECTED_GRACE + 1)
HEARD = {"connected_since": ago(minutes=11), "since": ago(minutes=11)}


def away(name: str = FIRST, **overrides: object) -> Worker:
    """Return an idle worker that lost its connection long ago."""
    since: dict[str, object] = {
        "state": WorkerState.DISCONNECTED,
        "since": NOW - LONG,
        "last_seen": NOW - LONG,
    }
    return a_worker(**({"name": name} | since | overrides))


def busy_and_away(**overrides: object) -> Worker:
    """Return a busy worker that lost its connection long ago."""
    seen: dict[str, object] = {"last_seen": NOW - LONG}
    return a_worker(busy=True, away=True, **(seen | overrides))


def deletions(plan: Plan) -> list[tuple[str, Reason]]:
    return [(each.worker, each.reason) for each in plan.actions if isinstance(each, Delete)]


# a machine that is off


@pytest.mark.parametrize("state", sorted(set(WorkerState) - {WorkerState.ENROLLED}))
def test_stopped_machine_is_deleted_in_any_worker_state(
    state: WorkerState,
) -> None:
    plan = planned(a_debusine_fleet(), a_debusine_world(ours(state=state), off=(FIRST,)))

    assert deletions(plan) == [(FIRST, Reason.STOPPED)]


def test_work_of_stopped_machine_is_returned_before_its_deletion() -> None:
    plan = planned(a_debusine_fleet(), a_debusine_world(busy_and_away(), off=(FIRST,)))

    (action,) = plan.actions
    assert isinstance(action, Delete)
    assert (action.registry, action.releases, action.revokes) == ("debian", True, False)
    assert tells(action.because, "request 90")
    assert plan.releases == ()


def test_idle_worker_of_stopped_machine_is_only_disabled() -> None:
    (action,) = planned(a_debusine_fleet(), a_debusine_world(away(), off=(FIRST,))).actions

    assert isinstance(action, Delete)
    assert not action.releases


def test_stopped_machine_is_not_capacity() -> None:
    world = a_debusine_world(ours(), off=(FIRST,), requests=(a_request(),))

    assert created(planned(a_debusine_fleet(min=1), world)) == [SECOND]


@pytest.mark.parametrize("worker", [(), (ours(state=WorkerState.ENROLLED),)])
def test_machine_stopped_before_registration_is_a_boot_failure(
    worker: tuple[Worker, ...],
) -> None:
    world = a_debusine_world(*worker, off=(FIRST,), age=1, requests=(a_request(),))

    plan = planned(a_debusine_fleet(), world)

    assert deletions(plan) == [(FIRST, Reason.BOOT_FAILED)]
    assert [each.revokes for each in plan.actions if isinstance(each, Delete)] == [True]
    assert created(plan) == [SECOND]


def test_stopped_machine_is_kept_with_notice_without_registry() -> None:
    plan = planned(a_debusine_fleet(), a_debusine_world(off=(FIRST,), workers=None))

    assert plan.is_quiet
    assert tells(plan.attention[0], FIRST, "billed", "stopped")


def test_kept_stopped_machine_does_not_block_other_deletions() -> None:
    world = a_debusine_world(
        ours(SECOND, state=WorkerState.DISABLED), machines=(FIRST, SECOND), off=(FIRST, SECOND)
    )

    assert deletions(planned(a_debusine_fleet(admin=False), world)) == [(SECOND, Reason.STOPPED)]


def test_paused_pool_keeps_stopped_machine() -> None:
    assert planned(
        a_debusine_fleet(mode="pause"), a_debusine_world(busy_and_away(), off=(FIRST,))
    ).is_quiet


def test_worker_of_stopped_orphan_machine_is_released() -> None:
    world = a_debusine_world(busy_and_away(), off=(FIRST,))
    stray = world.altered(stacks={})

    (release,) = planned(a_debusine_fleet(), stray).releases

    assert tells(release.because, "stopped", "request 90")
    assert not release.may_work


def test_machine_is_running_when_another_of_its_name_runs() -> None:
    world = a_debusine_world(busy_and_away(), off=(FIRST,))
    running = a_debusine_world(busy_and_away()).providers["desk"]
    twice = world.altered(stacks={}, providers={**world.providers, "other": running})

    assert planned(a_debusine_fleet(), twice).releases == ()


# it has no valid token, and it was given something all the same


def test_work_of_worker_without_token_is_returned() -> None:
    stranded = ours(state=WorkerState.DISABLED, running="90", stranded=True)

    plan = planned(a_debusine_fleet(), a_debusine_world(stranded))

    assert deletions(plan) == [(FIRST, Reason.DISABLED)]
    assert [each.releases for each in plan.actions if isinstance(each, Delete)] == [True]


def test_stranded_request_is_released_while_deletions_pause() -> None:
    stranded = ours(state=WorkerState.DISABLED, running="90", stranded=True)
    world = a_debusine_world(stranded, demand=Unknown(unknown="it does not answer"))

    plan = planned(a_debusine_fleet(), world)

    assert plan.actions == ()
    (release,) = plan.releases
    assert tells(release.because, "token", "request 90")


# a machine that runs, and is not heard


def test_idle_worker_is_replaced_when_absent_for_long() -> None:
    world = a_debusine_world(away(), ours(SECOND, **HEARD), machines=(FIRST, SECOND))

    assert deletions(planned(a_debusine_fleet(), world)) == [(FIRST, Reason.DISCONNECTED)]


def test_absent_worker_is_kept_within_grace_period() -> None:
    since = NOW - timedelta(seconds=DISCONNECTED_GRACE)
    young = away(last_seen=since, since=since)
    world = a_debusine_world(young, ours(SECOND, **HEARD), machines=(FIRST, SECOND))

    assert planned(a_debusine_fleet(), world).is_quiet


def lately(name: str = FIRST, *, seconds: int = RETURN_GRACE, **overrides: object) -> Worker:
    """Return an idle worker that was heard so many seconds ago and is not connected."""
    heard = ago(seconds=seconds)
    return away(name, **({"machine": name, "last_seen": heard, "since": heard} | overrides))


def test_briefly_absent_worker_serves_waiting_request() -> None:
    plan = planned(a_debusine_fleet(), a_debusine_world(lately(), requests=(a_request(),)))

    assert plan.is_quiet
    assert [each.reason for each in plan.workers] == [Reason.SERVES_WAITING]


@pytest.mark.parametrize("pool", [{"min": 1}, {"spare": 1}])
def test_briefly_absent_worker_counts_to_min_and_spare(pool: dict[str, int]) -> None:
    assert planned(a_debusine_fleet(**pool), a_debusine_world(lately())).is_quiet


@pytest.mark.parametrize("gone", [lately(seconds=RETURN_GRACE + 1), lately(draining=True)])
def test_long_absent_or_drained_worker_is_not_capacity(gone: Worker) -> None:
    world = a_debusine_world(gone, requests=(a_request(),))

    assert created(planned(a_debusine_fleet(), world)) == [SECOND]


@pytest.mark.parametrize(("age", "made"), [(60, []), (86400, [SECOND])])
def test_registered_worker_counts_until_its_boot_deadline(age: int, made: list[str]) -> None:
    first = lately(last_seen=None, since=ago(seconds=age))
    world = a_debusine_world(first, age=age, requests=(a_request(),))

    assert created(planned(a_debusine_fleet(), world)) == made


def test_briefly_absent_worker_is_shown_as_not_connected() -> None:
    world = a_debusine_world(lately())

    plan = planned(a_debusine_fleet(), world)

    assert state_of(a_debusine_fleet(), world) is UnitState.DISCONNECTED
    assert [each.reason for each in plan.workers] == [Reason.DISCONNECTED]


@pytest.mark.parametrize("others", [(), (ours(SECOND, connected_since=ago(minutes=9)),)])
def test_machine_is_kept_with_notice_when_queue_hears_no_worker(
    others: tuple[Worker, ...],
) -> None:
    names = (FIRST, *(worker.name for worker in others))

    plan = planned(a_debusine_fleet(), a_debusine_world(away(), *others, machines=names))

    assert plan.is_quiet
    (said,) = plan.attention
    assert FIRST in said
    assert f"{AGO} ago" in said


def test_absent_busy_worker_is_kept_with_notice() -> None:
    world = a_debusine_world(busy_and_away(), ours(SECOND, **HEARD), machines=(FIRST, SECOND))

    plan = planned(a_debusine_fleet(), world)

    assert plan.is_quiet
    (said,) = plan.attention
    for words in (FIRST, "request 90", f"{AGO} ago", f"debusine-admin worker disable {FIRST}"):
        assert words in said


def test_recently_heard_busy_worker_causes_no_notice() -> None:
    plan = planned(a_debusine_fleet(), a_debusine_world(busy_and_away(last_seen=ago(hours=1))))

    assert plan.attention == ()
    assert tells(plan.workers[0].because, "request 90", "not connected")


def test_absent_drained_worker_is_deleted() -> None:
    drained = away(draining=True, last_seen=ago(minutes=1), since=ago(minutes=1))

    assert deletions(planned(a_debusine_fleet(), a_debusine_world(drained))) == [
        (FIRST, Reason.IDLE_TOO_LONG)
    ]


def test_unwanted_pool_drains_absent_worker() -> None:
    lately = away(last_seen=ago(minutes=1), since=ago(minutes=1))

    (action,) = reconcile(a_debusine_fleet(mode="drain"), a_debusine_world(lately)).actions

    assert isinstance(action, Drain)


def test_absent_worker_is_drained_first_above_max() -> None:
    lately = away(THIRD, last_seen=ago(minutes=1), since=ago(minutes=1))
    names = (FIRST, SECOND, THIRD)
    world = a_debusine_world(ours(FIRST), ours(SECOND), lately, machines=names)

    (action,) = reconcile(a_debusine_fleet(max=2), world).actions

    assert (action.action, action.worker) == ("drain", THIRD)
