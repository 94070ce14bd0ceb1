"""Predict the world at a later time.

`move_time` changes only the time, `apply_plan` also applies a plan, and `step` a forecast.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from math import inf

from fleet.model.facts import (
    Demand,
    Listing,
    Machine,
    MachineState,
    Request,
    Stack,
    Unknown,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.plan import Create, Plan
from fleet.model.pool_limits import boot_of
from fleet.planner import transitions
from fleet.planner.forecast import Forecast, list_postponed, next_pause, pauses_until_created
from fleet.planner.inventory import departures_after
from fleet.schema.model import Fleet, Pool, TicketQueue, serves_queue
from fleet.tagrules.names import names_of

_Change = Callable[[str, tuple[Worker, ...]], tuple[Worker, ...]]
_Made = tuple[Create, datetime]
"""The creation of a machine, and its time."""


def move_time(world: World, at: datetime) -> World:
    """Return the world as a later read would observe it if no event happened.

    Machines without a registered worker keep their age, because they still boot.
    """
    by = at - world.time
    booting = {machine.name for _, machine in world.machines()} - _registered_machines(world)

    def see_again(_: str, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        return tuple(w.altered(last_seen=w.last_seen + by) if w.last_seen else w for w in workers)

    world = _replace_workers(world, see_again)
    world = _replace_demands(world, lambda _, demand: demand.altered(read_at=demand.read_at + by))
    providers = dict(world.providers)
    for name, listing in providers.items():
        if isinstance(listing, Listing):
            machines = tuple(
                m.altered(created_at=m.created_at + by)
                if m.name in booting and m.created_at
                else m
                for m in listing.machines
            )
            providers[name] = listing.altered(machines=machines, read_at=listing.read_at + by)
    return world.altered(time=at, providers=providers)


def step(fleet: Fleet, world: World, plan: Plan, moment: datetime, found: Forecast) -> World:
    """Return the world at `moment`, after the plan and all forecast events until then.

    The plan's machines have booted, and postponed machines that later runs create until then.
    Requests that started before `moment` have left the queue: their workers run them or are idle
    afterwards. Work of unknown duration continues.
    """
    seconds = (moment - world.time).total_seconds()
    ready = {
        n for n, w in found.standing.items() if w.free_in is not None and w.free_in <= seconds
    }
    pauses, pause = pauses_until_created(fleet, plan), next_pause(fleet)
    postponed = [
        (each, world.time + pauses[each.worker] * pause)
        for each in list_postponed(plan)
        if each.worker in pauses and each.worker in ready
    ]
    after = apply_plan(fleet, world, plan, moment, postponed)
    started = {key for key, start in found.starts.items() if start < seconds}
    turns: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for key in started:
        turns[found.workers[key]].append((found.starts[key], key))
    waiting = {f"{queue}/{each.id}": each for queue, d in world.demands() for each in d.requests}
    signature_of = {key: each for each in plan.signatures for key in each.requests}

    def end_work(registry: str, worker: Worker, at: float) -> Worker:
        ended = world.time + timedelta(seconds=at)
        worker, pool = transitions.end_work(worker, ended), fleet.pools.get(worker.pool or "")
        is_once = isinstance(pool, Pool) and pool.reuse is None
        if is_once and isinstance(fleet.queues.get(registry), TicketQueue):
            # The machine of an ended ticket gets no other ticket.
            return transitions.set_draining(worker, ended, draining=True)
        return worker

    def let_work(registry: str, before: Worker) -> Worker:
        """Return a worker after all work that it ends or starts until `moment`."""
        worker, standing = before, found.standing.get(before.name)
        left = standing.free_in if standing and standing.works else None
        if left is not None and left <= seconds:
            worker = end_work(registry, worker, left)
        for start, key in sorted(turns[worker.name]):
            request = waiting.get(key) or waiting[key.rpartition("#")[0]]
            since = world.time + timedelta(seconds=start)
            signature, provides = signature_of[key], found.standing[worker.name].alike[1].provides
            tags = [t for t in signature.required if t in provides or t not in signature.dropped]
            work = transitions.work_on(request, tags, since, names=names_of(request))
            worker = transitions.start_work(worker, request.id, work, since)
            if (ends := found.ends.get(key, inf)) <= seconds:
                worker = end_work(registry, worker, ends)
        return worker if worker is before else worker.altered(last_seen=moment)

    after = _replace_workers(
        after, lambda registry, workers: tuple(map(partial(let_work, registry), workers))
    )
    return _replace_demands(after, lambda queue, demand: _drop_started(demand, queue, started))


def _drop_started(demand: Demand, queue: str, started: Collection[str]) -> Demand:
    """Return the demand without started requests. Other members of a group keep their names."""
    kept: list[Request] = []
    for request in demand.requests:
        names = [f"{request.id}#{nth}" for nth in range(1, request.count + 1)]
        ids = names if request.count > 1 else [request.id]
        left = [each for each in ids if f"{queue}/{each}" not in started]
        if len(left) == len(ids):
            kept.append(request)
            continue
        since = request.pending_since
        for nth, each in enumerate(left):
            # The microseconds keep the order of the requests.
            own = since + timedelta(microseconds=nth) if since else None
            kept.append(request.altered(id=each, count=1, pending_since=own))
    return demand.altered(requests=tuple(kept))


def apply_plan(
    fleet: Fleet, world: World, plan: Plan, at: datetime, postponed: Sequence[_Made] = ()
) -> World:
    """Return the world at `at`, after a plan was applied and its machines have booted.

    `postponed` are creations by later runs, with their times.
    """
    now = world.time
    gone = {a.worker for a in plan.actions if a.action == "delete"}
    made = [*((a, now) for a in plan.actions if isinstance(a, Create)), *postponed]
    draining = {a.worker: True for a in plan.actions if a.action == "drain"}
    draining |= {each.worker: False for each in plan.resumes}

    def settle(_: str, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        return tuple(
            transitions.set_draining(
                worker, now, draining=draining.get(worker.name, worker.draining)
            )
            for worker in workers
            if (worker.machine or worker.name) not in gone
        )

    after = world.altered(departures=departures_after(world.departures, plan))
    after = _replace_machines(_replace_workers(after, settle), fleet, made, gone)
    return move_time(_boot_machines(fleet, after, made, at), at)


def _boot_machines(fleet: Fleet, world: World, made: Sequence[_Made], at: datetime) -> World:
    """Return the world after machines that boot until `at` have idle workers."""
    registered = _registered_machines(world)
    booting = {
        machine.name: machine
        for _, machine in world.machines()
        if machine.name not in registered
        and machine.state in (MachineState.STARTING, MachineState.RUNNING)
        and isinstance(pool := fleet.pools.get(machine.pool), Pool)
        and world.time <= boot_of(pool).fails_at(machine.created_at or world.time)
    }
    registries = {create.worker: create.registry for create, _ in made}
    registries |= {w.machine or w.name: registry for registry, w in world.registered()}
    new: defaultdict[str, list[Worker]] = defaultdict(list)
    for name, machine in booting.items():
        ready = boot_of(fleet.pools[machine.pool]).ready_at(machine.created_at or world.time)
        worker = transitions.register(machine, min(at, max(world.time, ready)))
        registry = registries.get(name) or _registry_of(fleet, world, machine)
        # `move_time` later moves the `last_seen` time.
        new[registry].append(worker.altered(last_seen=world.time))

    def register_all(registry: str, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        kept = (w for w in workers if (w.machine or w.name) not in booting)
        return (*kept, *new[registry])

    world = _replace_workers(world, register_all)
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
    """Return the registry of a machine's worker; empty if no registry is readable."""
    pool = fleet.pools[machine.pool]
    provider = pool.provider if isinstance(pool, Pool) else ""
    listing = world.providers.get(provider)
    if isinstance(listing, Listing) and listing.workers is not None:
        return provider
    readable = (n for n, each in sorted(world.queues.items()) if isinstance(each.workers, tuple))
    return next((name for name in readable if serves_queue(pool, name)), "")


def _registered_machines(world: World) -> set[str]:
    return {
        worker.machine or worker.name
        for _, worker in world.registered()
        if worker.state is not WorkerState.ENROLLED
    }


def _replace_demands(world: World, change: Callable[[str, Demand], Demand]) -> World:
    """Return the world with `change` applied to the readable demand of every queue."""
    queues = {
        name: reading.altered(demand=change(name, reading.demand))
        if isinstance(reading.demand, Demand)
        else reading
        for name, reading in world.queues.items()
    }
    return world.altered(queues=queues)


def _replace_workers(world: World, change: _Change) -> World:
    """Return the world with `change` applied to the workers of every registry."""
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


def _replace_machines(
    world: World, fleet: Fleet, made: Sequence[_Made], gone: Collection[str]
) -> World:
    """Return the world after creations and deletions, with listings and stacks updated."""
    listed = {machine.name for _, machine in world.machines()}
    machines: defaultdict[str, list[Machine]] = defaultdict(list)
    created: defaultdict[str, list[tuple[WorkerInputs, str]]] = defaultdict(list)
    stacks = {} if isinstance(world.stacks, Unknown) else dict(world.stacks)
    for each, at in made:
        pool, inputs, name = fleet.pools.get(each.pool), each.inputs, f"expected-{each.worker}"
        if isinstance(pool, Pool) and isinstance(world.providers.get(pool.provider), Listing):
            stacks.setdefault(
                each.pool, Stack(engine="embedded", provider=pool.provider, serial=0)
            )
            created[each.pool].append((inputs, name))
            if each.worker not in listed:
                machine = transitions.create_machine(inputs, each.pool, name, at)
                machines[pool.provider].append(machine)
    providers = {
        name: listing.altered(
            machines=(*(m for m in listing.machines if m.name not in gone), *machines[name])
        )
        if isinstance(listing, Listing)
        else listing
        for name, listing in world.providers.items()
    }
    after = {
        name: transitions.change_stack(stack, created=created[name], gone=gone)
        if isinstance(stack, Stack)
        else stack
        for name, stack in stacks.items()
    }
    known = world.stacks if isinstance(world.stacks, Unknown) else after
    return world.altered(providers=providers, stacks=known)
