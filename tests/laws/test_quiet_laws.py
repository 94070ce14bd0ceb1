"""A quiet world reaches an empty plan and stays there, whatever had to be replaced on the way."""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fleet.model.facts import Demand, Listing, Machine, QueueReading, Worker, WorkerState, World
from fleet.model.plan import Create, Drain, Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet, Pool
from tests.builders import (
    a_machine,
    a_pool,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    some_inputs,
)
from tests.builders.deciding import with_machines

RUNS = 45
"""Enough for each of six workers to be made, registered, drained and deleted one by one."""
AT_REST = 8
"""So many runs see a whole paid hour go by."""


@st.composite
def quiet_fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet with one pool that has room for itself, in every way of replacing."""
    most = draw(st.integers(0, 5))
    least = draw(st.integers(0, most))
    increment = draw(st.sampled_from(["1s", "1h"]))
    pool = a_pool(
        provider="desk",
        max=most,
        min=least,
        spare=draw(st.integers(0, most)),
        max_starting=draw(st.none() | st.integers(1, 3)),
        replace={"at_a_time": draw(st.sampled_from(["1%", "40%", "100%"]))},
        provides=draw(st.sampled_from([[], ["powerful"]])),
    )
    return a_sim_fleet(
        pools={"builders": pool},
        providers={"desk": {"kind": "sim", "billing": {"increment": increment}}},
        tags={"powerful": {"on_demand": True}},
    )


@st.composite
def quiet_worlds(draw: st.DrawFn) -> World:
    """Return a world in which nothing waits: workers, some outdated, and machines that boot."""
    count = draw(st.integers(0, 4))
    workers = tuple(
        a_worker(
            name=f"debian-ci-builders-{number:04}",
            busy=draw(st.booleans()),
            draining=draw(st.booleans()),
        )
        for number in range(1, count + 1)
    )
    starting = tuple(f"debian-ci-builders-{count + n}" for n in range(1, draw(st.integers(1, 3))))
    world = a_sim_world(*workers, starting=starting)
    names = [worker.name for worker in workers] + list(starting)
    outdated = [name for name in names if draw(st.booleans())]
    return with_machines(world, *outdated, digest="yesterday") if outdated else world


def carried_out(world: World, plan: Plan, cadence: int) -> World:
    """Return the world at the next run: what was begun is done, and what was busy is idle."""
    now = world.time + timedelta(seconds=cadence)
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    gone = {action.worker for action in plan.actions if action.action == "delete"}
    drained = {action.worker for action in plan.actions if isinstance(action, Drain)}
    made = [action.inputs for action in plan.actions if isinstance(action, Create)]
    old = [machine for machine in listing.machines if machine.name not in gone]
    new = [
        a_machine(name=each.name, id=each.name, digest=each.labels["digest"], created_at=now)
        for each in made
    ]
    known = {worker.name: worker for worker in listing.workers or ()}
    workers = tuple(
        _rested(known.get(machine.name), machine, world.time, drains=machine.name in drained)
        for machine in old
    )
    machines = (*old, *new)
    stack = a_stack(
        provider="desk",
        workers=tuple(some_inputs(name=machine.name) for machine in machines),
        ids={machine.name: machine.id for machine in machines},
    )
    demand = Demand(read_at=now)
    return world.altered(
        time=now,
        queues={"debian": QueueReading(demand=demand, workers=None)},
        providers={"desk": Listing(read_at=now, machines=machines, workers=workers)},
        stacks={"builders": stack},
    )


def _rested(worker: Worker | None, machine: Machine, then: datetime, *, drains: bool) -> Worker:
    """Return a worker that has registered and ended its work."""
    if worker is None:
        return a_worker(name=machine.name, since=then)
    ended = {"state": WorkerState.IDLE, "running": None, "since": then}
    update = ended if worker.state is WorkerState.BUSY else {}
    return worker.altered(**update, draining=worker.draining or drains)


@given(quiet_fleets(), quiet_worlds())
def test_quiet_world_converges_with_min_and_no_outdated(fleet: Fleet, world: World) -> None:
    plans = []
    for _ in range(RUNS):
        plans.append(reconcile(fleet, world))
        world = carried_out(world, plans[-1], fleet.cadence)

    assert [plan.actions for plan in plans[-AT_REST:]] == [()] * AT_REST
    pool = fleet.pools["builders"]
    assert isinstance(pool, Pool)
    ready = sum(verdict.state in ("idle", "busy") for verdict in plans[-1].workers)
    assert not [verdict.worker for verdict in plans[-1].workers if verdict.outdated]
    assert ready >= (0 if "powerful" in pool.provides else pool.workers.min)
