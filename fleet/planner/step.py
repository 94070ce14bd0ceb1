"""Move the world forward in time.

`move_time` moves only the time. `apply_plan` also applies a plan, and `step` follows a forecast.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import TypeVar

from fleet.model.facts import (
    Demand,
    Listing,
    Machine,
    MachineState,
    Request,
    Stack,
    Unknown,
    Worker,
    WorkerState,
    World,
)
from fleet.model.plan import Create, Plan
from fleet.model.pool_limits import boot_of
from fleet.planner import transitions
from fleet.planner.forecast import Forecast
from fleet.planner.inventory import departures_after
from fleet.schema.model import Fleet, Pool, serves_queue
from fleet.tagrules.names import names_of

_Seen = TypeVar("_Seen", Demand, Worker, Machine)
_Change = Callable[[str, tuple[Worker, ...]], tuple[Worker, ...]]


def move_time(world: World, at: datetime) -> World:
    """Return the world as it is read again at a later moment without any event.

    Machines whose workers have not registered keep their age: they still boot.
    """
    by = at - world.time
    booting = {machine.name for _, machine in world.machines()} - _registered_machines(world)

    def see_again(_: str, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        return tuple(_moved(w, by, "last_seen") if w.last_seen else w for w in workers)

    world = _with_workers(world, see_again)
    world = _with_demands(world, lambda _, demand: _moved(demand, by, "read_at"))
    providers = dict(world.providers)
    for name, listing in providers.items():
        if isinstance(listing, Listing):
            machines = tuple(
                _moved(m, by, "created_at") if m.name in booting and m.created_at else m
                for m in listing.machines
            )
            providers[name] = listing.altered(machines=machines, read_at=listing.read_at + by)
    return world.altered(time=at, providers=providers)


def next_pause(fleet: Fleet) -> timedelta:
    """Return the time until the next run at which new machines are up."""
    boots = [boot_of(pool).expected for pool in fleet.dynamic_pools.values()]
    return timedelta(seconds=max([fleet.cadence, *boots]))


def step(fleet: Fleet, world: World, plan: Plan, moment: datetime, found: Forecast) -> World:
    """Return the world at a moment, with all events of the forecast of a plan until then.

    Machines of the plan are up. Requests with an earlier start have left the queue: their workers
    are busy with them, or idle after them. Work without a known end continues.
    """
    after = apply_plan(fleet, world, plan, moment)
    seconds = (moment - world.time).total_seconds()
    started = {key for key, start in found.starts.items() if start < seconds}
    turns: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for key in started:
        turns[found.workers[key]].append((found.starts[key], key))
    waiting = {f"{queue}/{each.id}": each for queue, d in world.demands() for each in d.requests}
    signature_of = {key: each for each in plan.signatures for key in each.requests}

    def let_work(worker: Worker) -> Worker:
        """Return a worker after the work that it ends and starts until the moment."""
        standing = found.standing.get(worker.name)
        left = standing.free_in if standing and standing.works else None
        events = sorted(turns.get(worker.name, ()))
        if left is not None and left <= seconds:
            worker = transitions.end_work(worker, world.time + timedelta(seconds=left))
        for start, key in events:
            request = waiting.get(key) or waiting[key.rpartition("#")[0]]
            since = world.time + timedelta(seconds=start)
            required = signature_of[key].required
            work = transitions.work_on(request, required, since, names=names_of(request))
            worker = transitions.start_work(worker, request.id, work, since)
            if (ends := found.ends.get(key, inf)) <= seconds:
                worker = transitions.end_work(worker, world.time + timedelta(seconds=ends))
        return worker.altered(last_seen=moment) if worker.last_seen else worker

    after = _with_workers(after, lambda _, workers: tuple(map(let_work, workers)))
    return _with_demands(after, lambda queue, demand: _drop_started(demand, queue, started))


def _drop_started(demand: Demand, queue: str, started: Collection[str]) -> Demand:
    """Return the demand without started requests; the rest of a group keeps its names."""
    kept: list[Request] = []
    for request in demand.requests:
        if request.count == 1:
            kept += [request] if f"{queue}/{request.id}" not in started else []
            continue
        ids = [f"{request.id}#{nth}" for nth in range(1, request.count + 1)]
        left = [each for each in ids if f"{queue}/{each}" not in started]
        if len(left) == len(ids):
            kept.append(request)
            continue
        since = request.pending_since
        for nth, each in enumerate(left):
            # The requests keep the order of their moments.
            own = since + timedelta(microseconds=nth) if since else None
            kept.append(request.altered(id=each, count=1, pending_since=own))
    return demand.altered(requests=tuple(kept))


def apply_plan(fleet: Fleet, world: World, plan: Plan, at: datetime) -> World:
    """Return the world after this plan was applied, at a moment, with its machines up."""
    now = world.time
    gone = {a.worker for a in plan.actions if a.action == "delete"}
    drained = {a.worker for a in plan.actions if a.action == "drain"}
    made = [a for a in plan.actions if isinstance(a, Create)]
    resumed = {each.worker for each in plan.resumes}

    def settle(_: str, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        return tuple(
            transitions.drain(worker, now)
            if worker.name in drained
            else transitions.resume(worker, now)
            if worker.name in resumed
            else worker
            for worker in workers
            if (worker.machine or worker.name) not in gone
        )

    after = world.altered(departures=departures_after(world.departures, plan))
    after = _with_machines(_with_workers(after, settle), fleet, made, gone)
    return move_time(_boot_machines(fleet, after, made, at), at)


def _boot_machines(fleet: Fleet, world: World, made: Sequence[Create], at: datetime) -> World:
    """Return the world whose machines have booted until a moment; their workers are idle."""
    registered = _registered_machines(world)
    booting = {
        machine.name: machine
        for _, machine in world.machines()
        if machine.name not in registered and _boots(fleet, world, machine)
    }
    registries = {create.worker: create.registry for create in made}
    registries |= {w.machine or w.name: registry for registry, w in world.registered()}
    new: defaultdict[str, list[Worker]] = defaultdict(list)
    for name, machine in booting.items():
        ready = boot_of(fleet.pools[machine.pool]).ready_at(machine.created_at or world.time)
        worker = transitions.register(machine, min(at, max(world.time, ready)))
        registry = registries.get(name) or _registry_of(fleet, world, machine)
        # Later, `move_time` moves the time when it was last seen.
        new[registry].append(worker.altered(last_seen=world.time))

    def register_all(registry: str, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        kept = (w for w in workers if (w.machine or w.name) not in booting)
        return (*kept, *new[registry])

    world = _with_workers(world, register_all)
    providers = {
        name: listing.altered(
            machines=tuple(
                transitions.boot(m) if m.name in booting else m for m in listing.machines
            )
        )
        if isinstance(listing, Listing)
        else listing
        for name, listing in world.providers.items()
    }
    return world.altered(providers=providers)


def _registry_of(fleet: Fleet, world: World, machine: Machine) -> str:
    """Return where the worker of a machine registers; empty: nowhere that is read."""
    pool = fleet.pools[machine.pool]
    provider = pool.provider if isinstance(pool, Pool) else ""
    listing = world.providers.get(provider)
    if isinstance(listing, Listing) and listing.workers is not None:
        return provider
    readable = (n for n, each in sorted(world.queues.items()) if isinstance(each.workers, tuple))
    return next((name for name in readable if serves_queue(pool, name)), "")


def _boots(fleet: Fleet, world: World, machine: Machine) -> bool:
    pool = fleet.pools.get(machine.pool)
    created = machine.created_at or world.time
    boots = machine.state in (MachineState.STARTING, MachineState.RUNNING)
    return isinstance(pool, Pool) and boots and world.time <= boot_of(pool).fails_at(created)


def _moved(value: _Seen, by: timedelta, field: str) -> _Seen:
    return value.altered(**{field: getattr(value, field) + by})


def _registered_machines(world: World) -> set[str]:
    return {
        worker.machine or worker.name
        for _, worker in world.registered()
        if worker.state is not WorkerState.ENROLLED
    }


def _with_demands(world: World, change: Callable[[str, Demand], Demand]) -> World:
    """Return the world with the readable demand of every queue changed."""
    queues = {
        name: reading.altered(demand=change(name, reading.demand))
        if isinstance(reading.demand, Demand)
        else reading
        for name, reading in world.queues.items()
    }
    return world.altered(queues=queues)


def _with_workers(world: World, change: _Change) -> World:
    """Return the world with the workers of every registry changed."""
    queues = {
        name: reading.altered(workers=change(name, reading.workers))
        if isinstance(reading.workers, tuple)
        else reading
        for name, reading in world.queues.items()
    }
    providers = {
        name: listing.altered(workers=change(name, listing.workers))
        if isinstance(listing, Listing) and listing.workers is not None
        else listing
        for name, listing in world.providers.items()
    }
    return world.altered(queues=queues, providers=providers)


def _with_machines(
    world: World, fleet: Fleet, made: Sequence[Create], gone: Collection[str]
) -> World:
    """Return the world with new machines, and without deleted ones, in listings and stacks."""
    providers = dict(world.providers)
    stacks = {} if isinstance(world.stacks, Unknown) else dict(world.stacks)
    for name, listing in providers.items():
        if isinstance(listing, Listing):
            kept = tuple(m for m in listing.machines if m.name not in gone)
            providers[name] = listing.altered(machines=kept)
    for name, stack in stacks.items():
        if isinstance(stack, Stack):
            stacks[name] = transitions.change_stack(stack, gone=gone)
    for create in made:
        pool = fleet.pools.get(create.pool)
        if isinstance(pool, Pool):
            _make(providers, stacks, create, pool.provider, world.time)
    known = world.stacks if isinstance(world.stacks, Unknown) else stacks
    return world.altered(providers=providers, stacks=known)


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
    machine_id = f"expected-{create.worker}"
    if all(machine.name != create.worker for machine in listing.machines):
        machine = transitions.create_machine(create.inputs, create.pool, machine_id, now)
        providers[provider] = listing.altered(machines=(*listing.machines, machine))
    stacks[create.pool] = transitions.change_stack(stack, created=[(create.inputs, machine_id)])
