"""When machines expire, who extends that, and what a sweep deletes."""

from datetime import datetime, timedelta

import pytest

from fleet.cli.machine import sweep
from fleet.guard import guard
from fleet.model.facts import Listing, Machine, Unknown, Worker, World
from fleet.model.plan import Plan
from fleet.planner.inventory import expired_at, extended, find_due
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_pool,
    a_reading,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
)
from tests.builders.deciding import (
    FIRST,
    SECOND,
    actions_of,
    fleet_with,
    sentence_of,
    with_machines,
)
from tests.builders.sentences import tells

DAILY = a_sim_fleet(expire_after="1d")
PAST = ago(hours=2)
COMING = NOW + timedelta(days=2)
LOST = Unknown(unknown="there is no store")


def noted(world: World) -> World:
    """Return a world whose provider notes expiries."""
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    said = listing.altered(notes_expiry=True)
    return world.altered(providers={"desk": said})


def with_expiry(*workers: Worker, expires: datetime | None = PAST, **overrides: object) -> World:
    """Return a world whose machines all expire then."""
    world = a_sim_world(*workers).altered(**overrides)
    return noted(with_machines(world, expires=expires))


def due(fleet: Fleet, world: World) -> list[str]:
    return [machine.name for _, machines in find_due(fleet, world) for machine in machines]


# what a run extends


@pytest.mark.parametrize(
    ("expires", "is_due"),
    [(None, True), (PAST, True), (NOW + timedelta(hours=23), True), (COMING, False)],
)
def test_apply_extends_an_expiry_that_is_too_near(
    expires: datetime | None, *, is_due: bool
) -> None:
    assert due(DAILY, with_expiry(a_worker(), expires=expires)) == [FIRST] * is_due


def test_expiry_is_at_least_expire_after_from_end_of_run() -> None:
    until = extended(DAILY, NOW)

    assert until - NOW == timedelta(hours=30)
    assert due(DAILY, with_expiry(a_worker(), expires=until)) == []


def test_machine_without_a_stack_gets_no_new_expiry() -> None:
    world = with_expiry(a_worker(), stacks={"builders": a_stack(provider="desk")})

    assert due(DAILY, world) == []


@pytest.mark.parametrize("stacks", [LOST, {"builders": LOST}])
def test_expiry_is_extended_when_stack_is_unknown(stacks: object) -> None:
    assert due(DAILY, with_expiry(a_worker(), stacks=stacks)) == [FIRST]


def test_expiry_of_machine_to_record_is_extended() -> None:
    world = with_expiry(a_worker())
    assert not isinstance(world.stacks, Unknown)
    stack = world.stacks["builders"]
    assert not isinstance(stack, Unknown)
    unfinished = stack.altered(ids={})

    assert due(DAILY, world.altered(stacks={"builders": unfinished})) == [FIRST]


def test_no_expiry_is_extended_when_provider_stores_none() -> None:
    assert due(DAILY, a_sim_world(a_worker())) == []


# what has expired


def expired(world: World, machine: Machine) -> bool:
    return expired_at(DAILY, world, "desk", machine) is not None


@pytest.mark.parametrize(("expires", "over"), [(PAST, True), (COMING, False)])
def test_recorded_expiry_counts_when_journal_has_other_runs(
    expires: datetime, *, over: bool
) -> None:
    machine = a_machine(expires=expires)

    assert expired(a_sim_world(runs=(ago(minutes=1),)), machine) is over
    assert expired(a_sim_world(runs=(ago(days=9),)), machine) is over


@pytest.mark.parametrize(
    ("runs", "created", "over"),
    [
        ((ago(days=2),), ago(days=3), True),
        ((ago(days=2), ago(hours=3)), ago(days=3), False),
        ((ago(days=2),), ago(hours=3), False),
        ((), ago(days=2), True),
    ],
)
def test_expiry_is_from_last_run_and_creation_without_record(
    runs: tuple[datetime, ...], created: datetime, *, over: bool
) -> None:
    assert expired(a_sim_world(runs=runs), a_machine(created_at=created)) is over


def test_expiry_is_assumed_from_age_when_record_and_journal_are_lost() -> None:
    old, young = a_machine(created_at=ago(days=2)), a_machine(created_at=ago(hours=3))
    world = noted(a_sim_world(runs=LOST))

    assert [expired(world, old), expired(world, young)] == [True, False]


def test_no_machine_is_expired_without_any_record() -> None:
    assert not expired(a_sim_world(runs=LOST), a_machine(created_at=ago(days=99)))


# what a sweep does about it


def swept(world: World, fleet: Fleet = DAILY) -> Plan:
    return guard(fleet, sweep(fleet, world))


@pytest.mark.parametrize(
    ("worker", "action"),
    [
        (a_worker(), [("drain", FIRST)]),
        (a_worker(busy=True), [("drain", FIRST)]),
        (a_worker(draining=True), [("delete", FIRST)]),
        (a_worker(busy=True, draining=True), []),
        (a_worker(state="disabled"), [("delete", FIRST)]),
        (a_worker(state="disconnected"), [("drain", FIRST)]),
        (a_worker(state="disconnected", draining=True), [("delete", FIRST)]),
    ],
)
def test_sweep_drains_expired_machine_unless_idle(
    worker: Worker, action: list[tuple[str, str]]
) -> None:
    assert actions_of(swept(with_expiry(worker))) == action


def test_sweep_keeps_machine_when_expiry_is_ahead() -> None:
    world = with_expiry(a_worker(since=ago(days=3)), a_worker(name=SECOND), expires=COMING)

    assert actions_of(swept(world, a_sim_fleet(pools={}))) == []


def test_sweep_deletes_unregistered_machine_and_revokes_its_token() -> None:
    world = with_machines(a_sim_world(starting=(FIRST,)), created_at=ago(days=2), expires=PAST)

    plan = swept(noted(world))

    assert [(each.action, each.worker) for each in plan.actions] == [("delete", FIRST)]
    assert plan.actions[0].action == "delete"
    assert plan.actions[0].revokes


@pytest.mark.parametrize("stacks", [LOST, {"builders": LOST}])
def test_sweep_drains_expired_machine_of_lost_stack(stacks: object) -> None:
    plan = swept(with_expiry(a_worker(draining=True), stacks=stacks))

    assert actions_of(plan) == [("delete", FIRST)]
    assert any(tells(each, "there is no store", "provider") for each in plan.unknown)


def test_sweep_drains_expired_machine_without_stack() -> None:
    world = with_expiry(a_worker(draining=True), stacks={"builders": a_stack(provider="desk")})

    assert actions_of(swept(world)) == [("delete", FIRST)]


def without_registry(**overrides: object) -> World:
    """Return a world with an expired machine whose provider knows no workers."""
    listing = a_listing(a_machine(created_at=ago(days=3), expires=PAST), notes_expiry=True)
    return a_sim_world(a_worker()).altered(providers={"desk": listing}, **overrides)


@pytest.mark.parametrize("stacks", [LOST, {"builders": a_stack(provider="desk")}])
def test_sweep_keeps_machine_when_no_registry_reports_busy(
    stacks: object,
) -> None:
    world = without_registry(queues={"debian": a_reading(workers=None)}, stacks=stacks)

    plan = swept(world)

    assert actions_of(plan) == []
    assert tells(sentence_of(plan, FIRST), "kept", "busy")


def test_sweep_keeps_machine_when_registry_is_unreadable() -> None:
    world = without_registry(
        queues={"debian": a_reading(workers=Unknown(unknown="it is down"))}, stacks=LOST
    )

    plan = swept(world)

    assert actions_of(plan) == []
    assert "it is down" in sentence_of(plan, FIRST)


def test_sweep_keeps_expired_machines_of_paused_pool() -> None:
    plan = swept(with_expiry(a_worker()), fleet_with(mode="pause"))

    assert actions_of(plan) == []
    assert tells(sentence_of(plan, FIRST), "kept", "mode", "pause")


def test_sweep_drains_expired_machines_of_removed_pools() -> None:
    assert actions_of(swept(with_expiry(a_worker()), a_sim_fleet(pools={}))) == [("drain", FIRST)]


def test_sweep_respects_delete_throttle() -> None:
    workers = [a_worker(name=f"debian-ci-builders-{n:04}", draining=True) for n in range(30)]
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", max=30)},
        guards={"throttle": {"delete": {"count": 20}}},
    )

    plan = swept(with_expiry(*workers), fleet)

    assert len(plan.actions) == 20
    assert len(plan.withheld) == 10


def test_sweep_creates_no_machine() -> None:
    world = with_expiry(a_worker(draining=True), expires=COMING)

    assert swept(world, fleet_with(min=3)).actions == ()
