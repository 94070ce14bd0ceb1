"""Workers that need a token of their queue: deaf ones, ghosts, expired tokens, machines gone."""

from fleet.model.facts import WorkerState
from fleet.planner.units import UnitState
from tests.builders import (
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
    a_debusine_fleet,
    a_debusine_world,
    created,
    ours,
    planned,
)
from tests.builders.sentences import tells


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


def test_vanished_static_worker_is_neither_capacity_nor_released() -> None:
    vanished = a_worker(
        name="builder-01", machine=None, pool=None, static=True, state=WorkerState.DISCONNECTED
    )
    pools = {"builders": a_pool(provider="desk"), "legacy": {"static": ["builder-01"]}}
    fleet = a_sim_fleet(queues={"debian": QUEUE}, pools=pools)
    world = a_debusine_world(vanished.altered(running="90"), machines=(), requests=(a_request(),))

    plan = planned(fleet, world)

    assert (created(plan), plan.releases) == ([FIRST], ())


def test_machine_is_running_when_another_of_its_name_runs() -> None:
    away = ours(busy=True, away=True, last_seen=ago(hours=2))
    world, running = (a_debusine_world(away, off=off) for off in ((FIRST,), ()))
    listings = {**world.providers, "other": running.providers["desk"]}

    plan = planned(a_debusine_fleet(), world.altered(stacks={}, providers=listings))

    assert plan.releases == ()


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


def test_queue_that_creates_machines_itself_is_reported() -> None:
    world = a_debusine_world(machines=(), rivals=("own-amd64",))

    plan = planned(a_debusine_fleet(), world)

    (warning,) = (each for each in plan.warnings if each.rule == "own-provisioner")
    assert tells(warning.message, "own-amd64")
    assert "debusine-admin worker_pool disable" in warning.message
