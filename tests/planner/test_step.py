"""One step of the world: what machines, workers and queues are at a later moment."""

from datetime import timedelta

import pytest

from fleet.guard import guard
from fleet.model.facts import MachineState, Unknown, Worker, WorkerState, World
from fleet.model.plan import Plan
from fleet.planner.forecast import forecast
from fleet.planner.step import apply_plan, step
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.queue_worlds import QUEUE

FIRST = "debian-ci-builders-0001"
WORK = {"task": "sbuild", "started_at": ago(minutes=10), "expected_seconds": 1200}


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


def stepped(fleet: Fleet, world: World, minutes: int) -> World:
    plan = planned(fleet, world)
    at = world.time + timedelta(minutes=minutes)
    return step(fleet, world, plan, at, forecast(fleet, world, plan))


def worker(world: World, name: str = FIRST) -> tuple[str, Worker]:
    return next((registry, each) for registry, each in world.registered() if each.name == name)


def one_pool(**pool: object) -> Fleet:
    return a_sim_fleet(pools={"builders": a_pool(provider="desk", **pool)})


def at_queue(world: World, *workers: Worker) -> World:
    """Return the world whose workers register at the queue."""
    desk = world.providers["desk"]
    assert not isinstance(desk, Unknown)
    reading = world.queues["debian"].altered(workers=workers)
    return world.altered(
        queues={"debian": reading}, providers={"desk": desk.altered(workers=None)}
    )


def test_machine_with_an_enrolled_worker_boots() -> None:
    enrolled = a_worker(state=WorkerState.ENROLLED, since=None)
    world = at_queue(a_sim_world(enrolled), enrolled)
    ((name, machine),) = world.machines()
    desk = world.providers[name]
    assert not isinstance(desk, Unknown)
    booting = machine.altered(state=MachineState.STARTING, created_at=ago(minutes=1))
    world = world.altered(providers={name: desk.altered(machines=(booting,))})

    after = apply_plan(one_pool(), world, planned(one_pool(), world), NOW + timedelta(minutes=5))

    assert [each.state for _, each in after.registered()] == [WorkerState.IDLE]
    assert [each.state for _, each in after.machines()] == [MachineState.RUNNING]
    assert [each.created_at for _, each in after.machines()] == [ago(minutes=1)]


def test_created_worker_registers_at_queue_of_its_token() -> None:
    queues = {name: QUEUE | {"scopes": [name]} for name in ("a", "b")}
    fleet = a_sim_fleet(queues=queues)
    empty = a_sim_world()
    reading = empty.queues["debian"].altered(workers=())
    desk = empty.providers["desk"]
    assert not isinstance(desk, Unknown)
    asking = reading.altered(demand=a_sim_world(requests=(a_request(),)).queues["debian"].demand)
    world = empty.altered(
        queues={"a": reading, "b": asking}, providers={"desk": desk.altered(workers=None)}
    )
    plan = planned(fleet, world)
    (create,) = plan.actions

    after = apply_plan(fleet, world, plan, NOW + timedelta(minutes=10))

    assert worker(after, create.worker)[0] == create.registry


@pytest.mark.parametrize("reuse", [None, {"opportunity": "5m"}])
def test_worker_of_ended_ticket_drains_when_pool_has_no_reuse(
    reuse: dict[str, object] | None,
) -> None:
    pool = {"reuse": reuse} if reuse else {}
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", **pool)}, queues={"debian": {"kind": "tickets"}}
    )
    working = a_worker(busy=True, work=WORK, uses=1)
    world = at_queue(a_sim_world(working), working)

    _, after = worker(stepped(fleet, world, minutes=11))

    assert (after.state, after.draining) == (WorkerState.IDLE, reuse is None)
