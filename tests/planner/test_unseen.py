"""Machines that are merely unseen may be about to serve what waits: it is not bought again."""

from fleet.guard import guard
from fleet.model.facts import Unknown, Worker, World
from fleet.model.plan import Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    a_listing,
    a_pool,
    a_reading,
    a_request,
    a_sim_fleet,
    a_stack,
    a_world,
    some_inputs,
)

FIRST, SECOND = "debian-ci-builders-0001", "debian-ci-builders-0002"
DARK = Unknown(unknown="no answer")


def a_fleet_of_two(**overrides: object) -> Fleet:
    """Return a fleet whose pools `builders` and `far`, of two providers, fit the same requests."""
    pools = {"builders": a_pool(provider="desk", max=4), "far": a_pool(provider="shed", max=4)}
    providers = {"desk": {"kind": "sim"}, "shed": {"kind": "sim"}}
    return a_sim_fleet(**({"pools": pools, "providers": providers} | overrides))


def a_dark_world(waiting: int, *, workers: tuple[Worker, ...] | None = None) -> World:
    """Return a world in which the provider of `builders`, which holds two machines, is silent."""
    stack = a_stack(
        provider="desk",
        workers=tuple(some_inputs(name=name) for name in (FIRST, SECOND)),
        ids={FIRST: "sim-1", SECOND: "sim-2"},
    )
    requests = [a_request(id=str(number)) for number in range(waiting)]
    return a_world(
        queues={"debian": a_reading(*requests, workers=workers)},
        providers={"desk": DARK, "shed": a_listing(workers=())},
        stacks={"builders": stack},
    )


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


def test_pool_unknown_to_all_sources_counts_as_its_max() -> None:
    world = a_dark_world(waiting=5)

    plan = planned(a_fleet_of_two(), world.altered(stacks={"builders": DARK}))

    assert [action.pool for action in plan.actions] == ["far"]


def test_pool_without_stack_has_no_unseen_machines() -> None:
    world = a_dark_world(waiting=2)

    plan = planned(a_fleet_of_two(), world.altered(stacks={}))

    assert [action.pool for action in plan.actions] == ["far", "far"]


def test_unseen_machines_count_to_limits_of_their_tags() -> None:
    pools = {
        "builders": a_pool(provider="desk", provides=["big"]),
        "far": a_pool(provider="shed", provides=["big"]),
    }
    fleet = a_fleet_of_two(pools=pools, tags={"big": {"limits": {"total": 3}}})
    requests = tuple(a_request(id=str(number), required=("big",)) for number in range(4))
    world = a_dark_world(waiting=0)
    world = world.altered(queues={"debian": a_reading(*requests, workers=None)})

    (signature,) = planned(fleet, world).signatures

    assert len(signature.by_worker) + len(signature.by_create) == 1


def test_unreadable_pool_counts_its_max_to_tag_limits() -> None:
    pools = {
        "builders": a_pool(provider="desk", provides=["big"], max=4),
        "far": a_pool(provider="shed", provides=["big"], max=4),
    }
    fleet = a_fleet_of_two(pools=pools, tags={"big": {"limits": {"total": 5}}})
    requests = tuple(a_request(id=str(number), required=("big",)) for number in range(4))
    readings = {"debian": a_reading(*requests, workers=None)}
    world = a_dark_world(waiting=0)
    world = world.altered(queues=readings, stacks={"builders": DARK})

    (signature,) = planned(fleet, world).signatures

    assert len(signature.by_worker) + len(signature.by_create) == 1
