"""This module imagines the same world later: observed again, with what is expected by then.

`later` moves the time and nothing else: what was spent and what failed stay where they are.
`next_run` adds what this plan does, its machines up; `freed` ends the work of some workers.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from fleet.facts import (
    Demand,
    Listing,
    Machine,
    MachineState,
    Stack,
    Unknown,
    Worker,
    WorkerState,
    World,
)
from fleet.plan import Create, Plan
from fleet.schema.model import Fleet, Pool
from fleet.tagrules import serves_queue

_Seen = TypeVar("_Seen", Demand, Worker, Machine)
_Change = Callable[[tuple[Worker, ...]], tuple[Worker, ...]]


def later(world: World, at: datetime) -> World:
    """Return the world as it is read again at a later moment, when nothing has happened.

    Machines whose workers have not registered stay as young as they are: they still boot.
    """
    by = at - world.time
    registered = _registered_machines(world)
    queues = {
        name: reading.model_copy(
            update={
                "demand": _read_again(reading.demand, by),
                "workers": _seen_again(reading.workers, by),
            }
        )
        for name, reading in world.queues.items()
    }
    providers: dict[str, Listing | Unknown] = {}
    for name, listing in world.providers.items():
        if isinstance(listing, Listing):
            machines = tuple(
                m if m.name in registered else _moved(m, by, "created_at")
                for m in listing.machines
            )
            workers = _seen_again(listing.workers, by)
            update = {"machines": machines, "workers": workers, "read_at": listing.read_at + by}
            providers[name] = listing.model_copy(update=update)
        else:
            providers[name] = listing
    return world.model_copy(update={"time": at, "queues": queues, "providers": providers})


def freed(world: World, names: Collection[str]) -> World:
    """Return the world in which these busy workers have just become free."""

    def free(worker: Worker) -> Worker:
        update = {"state": WorkerState.IDLE, "running": None, "work": None, "since": world.time}
        return worker.model_copy(update=update) if worker.name in names else worker

    return _with_workers(world, lambda workers: tuple(map(free, workers)))


def next_run(fleet: Fleet, world: World, plan: Plan) -> World:
    """Return the world after this plan was applied, at the next run at which its machines are up.

    Requests still wait for the workers that were made for them.
    """
    boots = [pool.boot.expected for pool in fleet.pools.values() if isinstance(pool, Pool)]
    pause = max([fleet.cadence, *boots])
    after = later(world, world.time + timedelta(seconds=pause))
    gone = {a.worker for a in plan.actions if a.action == "delete"}
    drained = {a.worker for a in plan.actions if a.action == "drain"}
    made = [a for a in plan.actions if isinstance(a, Create)]

    def settle(workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        return tuple(
            worker.model_copy(update={"draining": True}) if worker.name in drained else worker
            for worker in workers
            if (worker.machine or worker.name) not in gone
        )

    after = _with_machines(_with_workers(after, settle), fleet, made, gone)
    registered = _registered_machines(after)
    for listing in [each for each in after.providers.values() if isinstance(each, Listing)]:
        for machine in listing.machines:
            if machine.name not in registered and _comes_up(fleet, after, machine):
                after = _register(fleet, after, machine)
    return after


def _comes_up(fleet: Fleet, world: World, machine: Machine) -> bool:
    pool = fleet.pools.get(machine.pool)
    age = (world.time - machine.created_at).total_seconds()
    boots = machine.state in (MachineState.STARTING, MachineState.RUNNING)
    return isinstance(pool, Pool) and boots and age <= pool.boot.deadline


def _read_again(demand: Demand | Unknown, by: timedelta) -> Demand | Unknown:
    return demand if isinstance(demand, Unknown) else _moved(demand, by, "read_at")


def _seen_again(workers: Any, by: timedelta) -> Any:  # noqa: ANN401 - as a reading holds them
    if not isinstance(workers, tuple):
        return workers
    return tuple(_moved(w, by, "last_seen") if w.last_seen else w for w in workers)


def _moved(value: _Seen, by: timedelta, field: str) -> _Seen:
    return value.model_copy(update={field: getattr(value, field) + by})


def _registered_machines(world: World) -> set[str]:
    found = [r.workers for r in world.queues.values() if isinstance(r.workers, tuple)]
    found += [
        listing.workers
        for listing in world.providers.values()
        if isinstance(listing, Listing) and listing.workers is not None
    ]
    return {worker.machine or worker.name for workers in found for worker in workers}


def _with_workers(world: World, change: _Change) -> World:
    """Return the world with the workers of every registry changed."""
    queues = {
        name: reading.model_copy(update={"workers": change(reading.workers)})
        if isinstance(reading.workers, tuple)
        else reading
        for name, reading in world.queues.items()
    }
    providers = {
        name: listing.model_copy(update={"workers": change(listing.workers)})
        if isinstance(listing, Listing) and listing.workers is not None
        else listing
        for name, listing in world.providers.items()
    }
    return world.model_copy(update={"queues": queues, "providers": providers})


def _with_machines(
    world: World, fleet: Fleet, made: Sequence[Create], gone: Collection[str]
) -> World:
    """Return the world with new machines at both witnesses, and without those that are gone."""
    providers = dict(world.providers)
    stacks = {} if isinstance(world.stacks, Unknown) else dict(world.stacks)
    for name, listing in providers.items():
        if isinstance(listing, Listing):
            kept = tuple(m for m in listing.machines if m.name not in gone)
            providers[name] = listing.model_copy(update={"machines": kept})
    for name, stack in stacks.items():
        if isinstance(stack, Stack):
            stacks[name] = stack.model_copy(
                update={
                    "workers": tuple(w for w in stack.workers if w.name not in gone),
                    "ids": {n: i for n, i in stack.ids.items() if n not in gone},
                }
            )
    for create in made:
        pool = fleet.pools.get(create.pool)
        if isinstance(pool, Pool):
            _make(providers, stacks, create, pool.provider, world.time)
    known = world.stacks if isinstance(world.stacks, Unknown) else stacks
    return world.model_copy(update={"providers": providers, "stacks": known})


def _make(
    providers: dict[str, Listing | Unknown],
    stacks: dict[str, Stack | Unknown],
    create: Create,
    provider: str,
    now: datetime,
) -> None:
    listing = providers.get(provider)
    stack = stacks.get(create.pool) or Stack(engine="embedded", provider=provider, serial=0)
    if not isinstance(listing, Listing) or not isinstance(stack, Stack):
        return
    id_ = f"expected-{create.worker}"
    if all(machine.name != create.worker for machine in listing.machines):
        machine = Machine(
            name=create.worker,
            id=id_,
            pool=create.pool,
            type=create.inputs.type,
            state=MachineState.RUNNING,
            created_at=now,
            image=create.inputs.image,
            digest=create.inputs.labels.get("digest"),
        )
        providers[provider] = listing.model_copy(update={"machines": (*listing.machines, machine)})
    known = tuple(w for w in stack.workers if w.name != create.worker)
    stacks[create.pool] = stack.model_copy(
        update={"workers": (*known, create.inputs), "ids": {**stack.ids, create.worker: id_}}
    )


def _register(fleet: Fleet, world: World, machine: Machine) -> World:
    """Return the world in which a machine's worker has registered, idle, where its like do."""
    pool = fleet.pools[machine.pool]
    worker = Worker(
        name=machine.name,
        machine=machine.name,
        pool=machine.pool,
        state=WorkerState.IDLE,
        since=world.time,
        last_seen=world.time,
    )
    provider = pool.provider if isinstance(pool, Pool) else ""
    listing = world.providers.get(provider)
    if isinstance(listing, Listing) and listing.workers is not None:
        update = {"workers": (*listing.workers, worker)}
        providers = {**world.providers, provider: listing.model_copy(update=update)}
        return world.model_copy(update={"providers": providers})
    for name, reading in sorted(world.queues.items()):
        if isinstance(reading.workers, tuple) and serves_queue(pool, name):
            update = {"workers": (*reading.workers, worker)}
            queues = {**world.queues, name: reading.model_copy(update=update)}
            return world.model_copy(update={"queues": queues})
    return world
