"""Workers that need a token of their queue: deaf ones, ghosts, expired tokens, machines gone."""

from datetime import timedelta

import pytest

from fleet.model.facts import Unknown, Worker, WorkerState
from fleet.model.plan import Delete, Drain, Reason
from fleet.planner.units import DEAF_GRACE, UnitState
from fleet.reconcile import reconcile
from tests.builders import (
    NOW,
    a_fleet,
    a_pool,
    a_reading,
    a_request,
    a_sim_fleet,
    a_worker,
    a_world,
    ago,
)
from tests.builders.deciding import state_of
from tests.builders.queue_worlds import (
    FIRST,
    QUEUE,
    SECOND,
    a_debusine_fleet,
    a_debusine_world,
    created,
    ours,
    planned,
)
from tests.builders.sentences import tells

LONG = DEAF_GRACE + 1


def test_new_worker_without_tags_is_starting() -> None:
    deaf = ours(state=WorkerState.DEAF, since=ago(seconds=DEAF_GRACE))
    world = a_debusine_world(deaf, requests=(a_request(),))

    assert state_of(a_debusine_fleet(), world) is UnitState.STARTING
    assert created(planned(a_debusine_fleet(), world)) == []


def test_deaf_worker_is_not_capacity() -> None:
    deaf = ours(state=WorkerState.DEAF, since=ago(seconds=LONG))
    world = a_debusine_world(deaf, requests=(a_request(),))

    assert created(planned(a_debusine_fleet(), world)) == [SECOND]


def test_persistently_deaf_worker_is_replaced() -> None:
    deaf = ours(state=WorkerState.DEAF, since=ago(seconds=LONG))

    plan = planned(a_debusine_fleet(), a_debusine_world(deaf))

    (action,) = plan.actions
    assert isinstance(action, Delete)
    assert (action.worker, action.reason, action.registry) == (FIRST, Reason.DEAF, "debian")
    assert not action.revokes


def test_draining_deaf_worker_is_deleted_as_drained() -> None:
    deaf = ours(state=WorkerState.DEAF, draining=True, since=ago(seconds=1))

    assert state_of(a_debusine_fleet(), a_debusine_world(deaf)) is UnitState.DRAINING


def test_deaf_worker_of_paused_pool_needs_attention() -> None:
    deaf = ours(state=WorkerState.DEAF, since=ago(seconds=LONG))

    plan = planned(a_debusine_fleet(mode="pause"), a_debusine_world(deaf))

    assert plan.actions == ()
    assert tells(plan.attention[0], FIRST, "tags")


def test_worker_without_valid_token_is_not_capacity() -> None:
    ghost = ours(state=WorkerState.DISABLED)
    world = a_debusine_world(ghost, requests=(a_request(),))

    plan = planned(a_debusine_fleet(), world)

    assert created(plan) == [SECOND]
    assert [a.worker for a in plan.actions if isinstance(a, Delete)] == [FIRST]


def test_enrolled_machine_is_starting_until_token_expires() -> None:
    awaited = ours(state=WorkerState.ENROLLED, token_expires=NOW + timedelta(seconds=1))
    world = a_debusine_world(awaited, age=60)

    assert state_of(a_debusine_fleet(), world) is UnitState.STARTING


def test_machine_with_expired_token_is_replaced() -> None:
    expired = ours(state=WorkerState.ENROLLED, token_expires=NOW)
    world = a_debusine_world(expired, age=60, requests=(a_request(),))

    plan = planned(a_debusine_fleet(), world)

    (gone,) = (action for action in plan.actions if isinstance(action, Delete))
    assert (gone.worker, gone.reason, gone.revokes) == (FIRST, Reason.BOOT_FAILED, True)
    assert tells(gone.because, "expired")
    assert created(plan) == [SECOND]


def test_unneeded_booting_machine_is_deleted_and_token_revoked() -> None:
    awaited = ours(state=WorkerState.ENROLLED, token_expires=NOW + timedelta(hours=1))

    (action,) = planned(a_debusine_fleet(), a_debusine_world(awaited, age=60)).actions

    assert isinstance(action, Delete)
    assert (action.reason, action.registry, action.revokes) == (
        Reason.NOT_WANTED,
        "debian",
        True,
    )


def test_token_of_deaf_connected_worker_is_kept() -> None:
    deaf = ours(state=WorkerState.DEAF, since=ago(seconds=1))

    assert planned(a_debusine_fleet(), a_debusine_world(deaf, age=60)).actions == ()


def test_machine_with_two_registrations_counts_once_as_busy() -> None:
    again = ours(name=f"{FIRST}-2", state=WorkerState.IDLE).altered(machine=FIRST)
    world = a_debusine_world(again, ours(busy=True))

    assert state_of(a_debusine_fleet(), world) is UnitState.BUSY


def test_foreign_second_registration_is_ignored() -> None:
    stranger = a_worker(
        name=f"{FIRST}-2", machine=None, pool=None, static=True, state=WorkerState.DISABLED
    )
    world = a_debusine_world(stranger, ours(busy=True))

    plan = planned(a_debusine_fleet(), world)

    assert (plan.actions, plan.releases) == ((), ())


@pytest.mark.parametrize("state", sorted(set(WorkerState) - {WorkerState.DISABLED}))
def test_worker_without_machine_is_released(state: WorkerState) -> None:
    world = a_debusine_world(ours(state=state), machines=())

    plan = reconcile(a_debusine_fleet(), world)

    assert [(each.worker, each.registry) for each in plan.releases] == [(FIRST, "debian")]
    assert not plan.is_quiet


def test_request_of_vanished_worker_returns_to_queue() -> None:
    vanished = ours(state=WorkerState.DISCONNECTED, running="90")

    (release,) = reconcile(a_debusine_fleet(), a_debusine_world(vanished, machines=())).releases

    assert tells(release.because, "gone", "request 90")


def test_disabled_worker_without_machine_is_ignored() -> None:
    over = ours(state=WorkerState.DISABLED)

    assert planned(a_debusine_fleet(), a_debusine_world(over, machines=())).is_quiet


def test_disabled_worker_with_request_is_released() -> None:
    given = ours(state=WorkerState.DISABLED, running="90")

    plan = planned(a_debusine_fleet(), a_debusine_world(given, machines=()))

    assert [each.worker for each in plan.releases] == [FIRST]


@pytest.mark.parametrize("source", ["providers", "stacks", "stack"])
def test_worker_is_not_released_while_its_machine_is_unseen(source: str) -> None:
    world = a_debusine_world(ours(busy=True), machines=())
    unseen: dict[str, dict[str, object]] = {
        "providers": {"providers": {"desk": Unknown(unknown="it does not answer")}},
        "stacks": {"stacks": Unknown(unknown="the store is missing")},
        "stack": {"stacks": {"builders": Unknown(unknown="it is locked")}},
    }

    plan = planned(a_debusine_fleet(), world.altered(**unseen[source]))

    assert plan.releases == ()


@pytest.mark.parametrize("mode", ["observe", "pause"])
def test_observed_pool_releases_no_worker(mode: str) -> None:
    world = a_debusine_world(ours(busy=True), machines=())

    assert planned(a_debusine_fleet(mode=mode), world).releases == ()


def test_no_worker_is_released_without_registry() -> None:
    world = a_debusine_world(ours(busy=True), machines=())

    assert planned(a_debusine_fleet(admin=False), world).releases == ()


def test_vanished_static_worker_is_neither_capacity_nor_released() -> None:
    vanished = a_worker(
        name="builder-01", machine=None, pool=None, static=True, state=WorkerState.DISCONNECTED
    )
    pools = {"builders": a_pool(provider="desk"), "legacy": {"static": ["builder-01"]}}
    fleet = a_sim_fleet(queues={"debian": QUEUE}, pools=pools)
    world = a_debusine_world(vanished.altered(running="90"), machines=(), requests=(a_request(),))

    plan = planned(fleet, world)

    assert (created(plan), plan.releases) == ([FIRST], ())


@pytest.mark.parametrize(
    "worker",
    [
        ours(state=WorkerState.ENROLLED),
        ours(state=WorkerState.DISABLED),
        ours(state=WorkerState.DISABLED, running="90"),
        ours(state=WorkerState.DISABLED).altered(machine=None),
    ],
    ids=["awaited", "over", "with a request", "not ours"],
)
def test_name_of_registered_worker_is_not_reused(worker: Worker) -> None:
    world = a_debusine_world(worker, machines=(), requests=(a_request(),))

    assert created(planned(a_debusine_fleet(), world)) == [SECOND]


def test_creation_is_refused_when_queue_cannot_enrol() -> None:
    world = a_debusine_world(machines=(), requests=(a_request(),))

    plan = planned(a_debusine_fleet(admin=False), world)

    (refused,) = plan.guards
    assert (refused.guard, refused.result) == ("unappliable", "refused")
    assert tells(refused.because, "debian", "admin", "1")
    assert "`admin: {dsn:" in refused.way_out
    assert plan.actions == ()


def test_creation_is_refused_in_cloud_without_enrolling_queue() -> None:
    recorded = {"kind": "world", "path": "world.json"}
    images = {"trixie": {"existing": {"hetzner": "114690387"}}}
    fleet = a_fleet(queues={"debian": recorded}, images=images)
    world = a_world(queues={"debian": a_reading(a_request())}, stacks={})

    plan = planned(fleet, world)

    (refused,) = plan.guards
    assert (refused.guard, refused.result) == ("unappliable", "refused")
    assert tells(refused.because, "1 creation")
    assert refused.path == ("pools", "builders", "provider")
    assert tells(refused.way_out, "let", "tickets", "`mode: observe`", "on it")
    assert plan.actions == ()


def test_drain_needs_no_token() -> None:
    idle = ours(state=WorkerState.IDLE, since=ago(hours=5))

    (action,) = planned(a_debusine_fleet(), a_debusine_world(idle, age=7 * 3600)).actions

    assert isinstance(action, Drain)


def test_queue_that_creates_machines_itself_is_reported() -> None:
    world = a_debusine_world(machines=(), rivals=("own-amd64",))

    plan = planned(a_debusine_fleet(), world)

    (warning,) = (each for each in plan.warnings if each.rule == "own-provisioner")
    assert tells(warning.message, "own-amd64")
    assert "debusine-admin worker_pool disable" in warning.message
