"""This module says what should be: reconcile(fleet, world) -> Plan, total and deterministic.

Permuting any input changes nothing, and equal inputs give byte-identical plans.
The table of steps is the body of `reconcile`, in this order.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from fleet.allocate import Allocation, Room, Want, allocate
from fleet.census import CAPACITY, State, Unit, take_census
from fleet.demand import Signed, Supply, sign_demand
from fleet.draft import Draft, Why
from fleet.facts import MachineState, Worker, WorkerState, World
from fleet.making import new_inputs, taken_names, wont_make, worker_names
from fleet.plan import Cause, Plan, Reason
from fleet.registrations import is_busy
from fleet.schema.model import Fleet, HooksPool, Pool, StaticPool
from fleet.schema.units import write_duration
from fleet.tagrules import Offer, offer_of_pool, offer_of_worker, serves_queue
from fleet.unfinished import finish_interrupted
from fleet.verdicts import assemble


def reconcile(fleet: Fleet, world: World) -> Plan:
    """Return what should be done about this world, and why."""
    drafts = _begin(fleet, world)
    for draft in drafts.values():
        finish_interrupted(draft)
        _delete_drained(draft)
        _drain_unwanted_pool(draft)
        _drain_above_max(draft)
        _find_room(draft)
    supplies = _supplies(fleet, world, drafts)
    demand = sign_demand(fleet, world, supplies)
    allocation = _serve(drafts, supplies, demand)
    _create_for_requests(world, drafts, allocation)
    last = len(allocation.by_pool) + 1
    for draft in drafts.values():
        _keep_warm(world, draft, turn=last)
        _release_surplus(world, draft)
    return assemble(fleet, world, drafts, demand, allocation)


def _begin(fleet: Fleet, world: World) -> dict[str, Draft]:
    taken = taken_names(fleet, world)
    drafts = {}
    for name, census in take_census(fleet, world).items():
        pool = fleet.pools.get(name)
        draft = Draft(
            fleet=fleet,
            census=census,
            pool=pool if isinstance(pool, Pool) else None,
            names=worker_names(fleet, name, taken),
            closed=wont_make(fleet, world, census),
        )
        if draft.pool is not None:
            offer = offer_of_pool(fleet, name, world.images)
            draft.on_demand = bool(offer.on_demand)
            draft.offers = tuple(sorted(offer.provides))
        if not draft.closed:
            draft.digest = new_inputs(fleet, world, name, name).labels["digest"]
        drafts[name] = draft
    return drafts


def _delete_drained(draft: Draft) -> None:
    """Delete what was observed drained and idle; a busy one stays until it is done."""
    reason = _unwanted(draft) or Reason.IDLE_TOO_LONG
    for unit in draft.census.having(State.DRAINING):
        draft.delete(unit, reason, "it was drained and is idle")
    for unit in draft.census.having(State.DISABLED):
        draft.delete(unit, Reason.DISABLED, "its worker is disabled, so it can serve nothing")


def _drain_unwanted_pool(draft: Draft) -> None:
    """Empty a pool that was removed from fleet.yaml or is told to drain."""
    reason = _unwanted(draft)
    if reason is None:
        return
    because = (
        "its pool is no longer in fleet.yaml"
        if reason is Reason.POOL_REMOVED
        else "its pool has mode: drain"
    )
    for unit in draft.census.having(State.IDLE):
        draft.drain(unit, reason, because)


def _unwanted(draft: Draft) -> Reason | None:
    if draft.pool is None:
        return Reason.POOL_REMOVED
    return Reason.POOL_DRAINING if draft.pool.mode == "drain" else None


def _drain_above_max(draft: Draft) -> None:
    """Bring a pool down to its max as work ends; what is busy stays."""
    if draft.pool is None:
        return
    # What only one witness saw may be an error: nothing is scaled down because of it.
    seen = [u for u in draft.staying if u.state not in (State.MISSING, State.UNRECORDED)]
    held, limit = len(seen), draft.pool.workers.max
    idle = [u for u in _longest_idle(draft.staying) if u.state is State.IDLE]
    for unit in idle[: max(0, held - limit)]:
        draft.drain(unit, Reason.ABOVE_MAX, f"the pool holds {held}, workers.max is {limit}")


def _find_room(draft: Draft) -> None:
    """Work out how many machines the pool may still make."""
    if draft.pool is None:
        draft.room = Room(price=Decimal(0), max=0, closed=draft.closed)
        return
    workers = draft.pool.workers
    starting = sum(_is_booting(unit) for unit in draft.census.units)
    most = workers.max_starting
    draft.room = Room(
        price=draft.price or Decimal(0),
        max=max(0, workers.max - len(draft.census.units)),
        starting=None if most is None else max(0, most - starting),
        closed=draft.closed,
    )


def _is_booting(unit: Unit) -> bool:
    """Say whether a machine boots; without a registry only its provider can tell."""
    booting = unit.machine is not None and unit.machine.state is MachineState.STARTING
    return unit.state in (State.STARTING, State.UNFINISHED) or (
        unit.state is State.ASSUMED and booting
    )


def _supplies(fleet: Fleet, world: World, drafts: Mapping[str, Draft]) -> dict[str, Supply]:
    """Return who offers what: a pool's future workers, and those that exist."""
    queues = frozenset(world.queues)
    supplies = {}
    for name, pool in sorted(fleet.pools.items()):
        if isinstance(pool, HooksPool):
            continue  # not yet supported: it neither serves nor is touched
        served = frozenset(queue for queue in queues if serves_queue(pool, queue))
        offer = offer_of_pool(fleet, name, world.images)
        if isinstance(pool, StaticPool):
            found: Iterable[tuple[str, Worker | None]] = _static_workers(world, pool)
        else:
            free = [u for u in drafts[name].staying if u.state in CAPACITY]
            found = [(u.name, u.worker) for u in free]
        groups = _by_offer(fleet, world, name, offer, found)
        groups.setdefault(offer, [])
        for number, (offered, units) in enumerate(groups.items()):
            key = name if offered == offer else f"{name}~{number}"
            supplies[key] = Supply(name, served, offered, tuple(units))
    return supplies


def _by_offer(
    fleet: Fleet,
    world: World,
    pool: str,
    default: Offer,
    workers: Iterable[tuple[str, Worker | None]],
) -> dict[Offer, list[str]]:
    """Group workers by what they offer: what they report themselves, else what the pool says."""
    groups: defaultdict[tuple[tuple[str, ...], ...], list[str]] = defaultdict(list)
    one_of: dict[tuple[tuple[str, ...], ...], Worker] = {}
    for name, worker in sorted(workers, key=lambda pair: pair[0]):
        tags: tuple[tuple[str, ...], ...] = (worker.provides, worker.requires) if worker else ()
        groups[tags].append(name)
        if worker is not None and any(tags):
            one_of[tags] = worker
    offers: dict[Offer, list[str]] = {}
    for shape, names in sorted(groups.items()):
        alike = one_of.get(shape)
        offer = offer_of_worker(fleet, pool, world.images, alike) if alike else default
        offers.setdefault(offer, []).extend(names)
    return offers


def _static_workers(world: World, pool: StaticPool) -> list[tuple[str, Worker]]:
    """Return the workers of a static pool that are free at every queue that knows them."""
    names = frozenset(pool.static)
    found: dict[str, Worker] = {}
    taken: set[str] = set()
    for queue, reading in sorted(world.queues.items()):
        if isinstance(reading.workers, tuple) and serves_queue(pool, queue):
            for worker in reading.workers:
                if worker.name in names:
                    found.setdefault(worker.name, worker)
                    if is_busy(worker) or worker.draining or worker.state is not WorkerState.IDLE:
                        taken.add(worker.name)
    return [(name, worker) for name, worker in found.items() if name not in taken]


def _serve(
    drafts: Mapping[str, Draft], supplies: Mapping[str, Supply], demand: Sequence[Signed]
) -> Allocation:
    """Give requests, in the queue's order, to what exists and then to what can be made."""
    order = sorted(
        ((request, signed) for signed in demand for request in signed.requests),
        key=lambda pair: pair[0],
    )
    wants = [
        Want(
            id=request.key,
            workers_of=signed.workers_of,
            machines_of=tuple(pool for pool in signed.machines_of if pool in drafts),
        )
        for request, signed in order
    ]
    allocation = allocate(
        wants,
        {key: supply.units for key, supply in supplies.items()},
        {name: draft.room for name, draft in drafts.items()},
    )
    owner = {unit.name: draft for draft in drafts.values() for unit in draft.census.units}
    for request, unit in allocation.by_worker.items():
        if unit in owner:
            owner[unit].used[unit] = request
    return allocation


def _create_for_requests(
    world: World, drafts: Mapping[str, Draft], allocation: Allocation
) -> None:
    """Make the machines that requests were given room for, in the order of service."""
    for turn, (request, pool) in enumerate(allocation.by_pool.items(), start=1):
        draft = drafts[pool]
        because = f"request {request} waits and no free worker fits it"
        inputs = new_inputs(draft.fleet, world, pool, next(draft.names))
        why = Why(Reason.REQUESTS_WAIT, Cause.DEMAND, because, (request,), turn)
        draft.create(inputs, why)


def _keep_warm(world: World, draft: Draft, *, turn: int) -> None:
    """Hold min workers and spare idle ones; an on-demand pool holds none."""
    if draft.pool is None or draft.on_demand or draft.closed:
        return
    workers = draft.pool.workers
    lacking = workers.min - len(draft.staying) - draft.made
    because = f"workers.min is {workers.min}"
    for _ in range(min(lacking, _room_left(draft))):
        inputs = new_inputs(draft.fleet, world, draft.name, next(draft.names))
        draft.create(inputs, Why(Reason.BELOW_MIN, Cause.CONFIG, because, turn=turn))
    made_for_min = sum(action.reason is Reason.BELOW_MIN for action in draft.actions)
    lacking = workers.spare - len(_unused(draft)) - made_for_min
    because = f"workers.spare is {workers.spare}"
    for _ in range(min(lacking, _room_left(draft))):
        inputs = new_inputs(draft.fleet, world, draft.name, next(draft.names))
        draft.create(inputs, Why(Reason.BELOW_SPARE, Cause.DEMAND, because, turn=turn))


def _room_left(draft: Draft) -> int:
    room = draft.room
    most = room.max if room.starting is None else min(room.max, room.starting)
    return max(0, most - draft.made)


def _unused(draft: Draft) -> list[Unit]:
    return [u for u in draft.staying if u.state in CAPACITY and u.name not in draft.used]


def _release_surplus(world: World, draft: Draft) -> None:
    """Drain what is idle for long, beyond min and spare; longest idle first."""
    if draft.pool is None:
        return
    workers, on_demand = draft.pool.workers, draft.on_demand
    patience = 0 if on_demand else draft.pool.retire.idle_after
    unused = _unused(draft)
    surplus = len(unused)
    if not on_demand:
        sure = [u for u in draft.staying if u.state in CAPACITY or u.state is State.BUSY]
        surplus = min(surplus - workers.spare, len(sure) - workers.min)
    idle = [unit for unit in _longest_idle(unused) if unit.state is State.IDLE]
    for unit in idle[: max(0, surplus)]:
        seconds = int((world.time - unit.since).total_seconds()) if unit.since else -1
        if seconds >= patience:
            because = (
                "it is idle and nothing asks for this on-demand pool"
                if on_demand
                else f"idle for {write_duration(seconds)}, "
                f"retire.idle_after is {write_duration(patience)}"
            )
            draft.drain(unit, Reason.IDLE_TOO_LONG, because)


def _longest_idle(units: Iterable[Unit]) -> list[Unit]:
    return sorted(units, key=lambda unit: (unit.since is None, unit.since, unit.name))
