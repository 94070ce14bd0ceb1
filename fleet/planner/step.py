"""Move the world forward in time.

`move_time` moves only the time. `apply_plan` also applies a plan, and `step` follows a forecast.
"""

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
    Work,
    Worker,
    WorkerState,
    World,
)
from fleet.model.plan import Create, Plan, Signature
from fleet.model.pool_limits import boot_of
from fleet.planner.forecast import Forecast
from fleet.planner.inventory import departures_after
from fleet.schema.model import Fleet, Pool, serves_queue
from fleet.tagrules.names import names_of, package_of

_Seen = TypeVar("_Seen", Demand, Worker, Machine)
_Change = Callable[[tuple[Worker, ...]], tuple[Worker, ...]]


def move_time(world: World, at: datetime) -> World:
    """Return the world as it is read again at a later moment without any event.

    Machines whose workers have not registered keep their age: they still boot.
    """
    by = at - world.time
    booting = {machine.name for _, machine in world.machines()} - _registered_machines(world)

    def see_again(workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
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


def free_workers(world: World, names: Collection[str]) -> World:
    """Return the world in which these busy workers have just become free."""

    def free(worker: Worker) -> Worker:
        if worker.name not in names:
            return worker
        return worker.altered(state=WorkerState.IDLE, running=None, work=None, since=world.time)

    return _with_workers(world, lambda workers: tuple(map(free, workers)))


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
    working = {found.workers[key]: key for key in started if found.ends.get(key, inf) > seconds}
    used = {found.workers[key] for key in started}
    ends = ((each.name, each.free_in) for each in found.standing.values() if each.works)
    free = {name for name, left in ends if left is not None and left <= seconds}
    after = free_workers(after, (free | used) - working.keys())

    waiting = {f"{queue}/{each.id}": each for queue, d in world.demands() for each in d.requests}
    signature_of = {key: each for each in plan.signatures for key in each.requests}

    def give(workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        return tuple(
            _working_on(
                worker,
                request,
                signature_of[key],
                world.time + timedelta(seconds=found.starts[key]),
            )
            if (key := working.get(worker.name))
            and (request := waiting.get(key) or waiting.get(key.rpartition("#")[0]))
            else worker
            for worker in workers
        )

    after = _with_workers(after, give)
    return _with_demands(after, lambda queue, demand: _drop_started(demand, queue, started))


def _working_on(worker: Worker, request: Request, signature: Signature, since: datetime) -> Worker:
    """Return a worker that runs a request, with the tags that rules add."""
    work = Work(
        task=request.task,
        required=signature.required,
        started_at=since,
        expected_seconds=request.expected_seconds,
        requester=request.requester,
        owner=request.owner,
        package=package_of(request),
        names=names_of(request),
        scope=request.scope,
        workspace=request.workspace,
        groups=request.groups,
        team=request.team,
        sandbox=request.sandbox,
    )
    return worker.altered(state=WorkerState.BUSY, running=request.id, work=work, since=since)


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
    after = move_time(world, at)
    gone = {a.worker for a in plan.actions if a.action == "delete"}
    drained = {a.worker for a in plan.actions if a.action == "drain"}
    made = [a for a in plan.actions if isinstance(a, Create)]
    resumed = {each.worker for each in plan.resumes}

    def settle(workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        return tuple(
            worker.altered(draining=worker.name in drained)
            if worker.name in drained or worker.name in resumed
            else worker
            for worker in workers
            if (worker.machine or worker.name) not in gone
        )

    after = after.altered(departures=departures_after(world.departures, plan))
    after = _with_machines(_with_workers(after, settle), fleet, made, gone)
    registered = _registered_machines(after)
    for _, machine in [*after.machines()]:
        if machine.name not in registered and _boots(fleet, after, machine):
            after = _register(fleet, after, machine)
    return after


def _boots(fleet: Fleet, world: World, machine: Machine) -> bool:
    pool = fleet.pools.get(machine.pool)
    created = machine.created_at or world.time
    boots = machine.state in (MachineState.STARTING, MachineState.RUNNING)
    return isinstance(pool, Pool) and boots and world.time <= boot_of(pool).fails_at(created)


def _moved(value: _Seen, by: timedelta, field: str) -> _Seen:
    return value.altered(**{field: getattr(value, field) + by})


def _registered_machines(world: World) -> set[str]:
    return {worker.machine or worker.name for _, worker in world.registered()}


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
        name: reading.altered(workers=change(reading.workers))
        if isinstance(reading.workers, tuple)
        else reading
        for name, reading in world.queues.items()
    }
    providers = {
        name: listing.altered(workers=change(listing.workers))
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
            stacks[name] = stack.altered(
                workers=tuple(w for w in stack.workers if w.name not in gone),
                ids={n: i for n, i in stack.ids.items() if n not in gone},
            )
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
        providers[provider] = listing.altered(machines=(*listing.machines, machine))
    known = tuple(w for w in stack.workers if w.name != create.worker)
    stacks[create.pool] = stack.altered(
        workers=(*known, create.inputs), ids={**stack.ids, create.worker: id_}
    )


def _register(fleet: Fleet, world: World, machine: Machine) -> World:
    """Return the world in which a machine's worker has registered and is idle."""
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
        listing = listing.altered(workers=(*listing.workers, worker))
        return world.altered(providers={**world.providers, provider: listing})
    for name, reading in sorted(world.queues.items()):
        if isinstance(reading.workers, tuple) and serves_queue(pool, name):
            told = reading.altered(workers=(*reading.workers, worker))
            return world.altered(queues={**world.queues, name: told})
    return world
