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
from fleet.failures import recall
from fleet.image_choice import choose_image
from fleet.making import (
    digests_of,
    new_inputs,
    options_of,
    taken_names,
    why_closed,
    wont_make,
    worker_names,
)
from fleet.plan import Cause, Plan, Reason
from fleet.registrations import is_busy
from fleet.schema.model import Fleet, HooksPool, Pool, StaticPool
from fleet.steps.failed import delete_failed
from fleet.steps.interrupted import finish_interrupted
from fleet.steps.outdated import mark_outdated
from fleet.steps.replace import replace_due
from fleet.steps.surplus import release_surplus
from fleet.steps.unwanted import delete_drained, drain_above_max, drain_unwanted_pool
from fleet.steps.warm import keep_warm
from fleet.steps.worn import mark_worn
from fleet.tagrules import Offer, offer_of_pool, offer_of_worker, serves_queue
from fleet.verdicts import assemble


def reconcile(fleet: Fleet, world: World) -> Plan:
    """Return what should be done about this world, and why."""
    drafts = _begin(fleet, world)
    for draft in drafts.values():
        finish_interrupted(draft)
        mark_outdated(draft)
        mark_worn(world, draft)
        delete_failed(draft)
        delete_drained(draft)
        drain_unwanted_pool(draft)
        drain_above_max(world, draft)
        _find_room(draft)
    supplies = _supplies(fleet, world, drafts)
    demand = sign_demand(fleet, world, supplies)
    allocation = _serve(drafts, supplies, demand)
    _create_for_requests(drafts, allocation)
    last = len(allocation.by_pool) + 1
    for draft in drafts.values():
        keep_warm(draft, turn=last)
        replace_due(world, draft, turn=last)
        release_surplus(world, draft)
    return assemble(fleet, world, drafts, demand, allocation)


def _begin(fleet: Fleet, world: World) -> dict[str, Draft]:
    taken = taken_names(fleet, world)
    drafts = {}
    censuses = take_census(fleet, world)
    memory = recall(fleet, world, censuses)
    for name, census in censuses.items():
        choice = choose_image(fleet, world, memory, name)
        pool = fleet.pools.get(name)
        draft = Draft(
            fleet=fleet,
            census=census,
            pool=pool if isinstance(pool, Pool) else None,
            names=worker_names(fleet, name, taken),
            closed=wont_make(fleet, census, choice),
            options=options_of(fleet, memory, name, choice),
            choice=choice,
        )
        if draft.pool is not None:
            offer = offer_of_pool(fleet, name, choice.images)
            draft.on_demand = bool(offer.on_demand)
            draft.offers = tuple(sorted(offer.provides))
        if not draft.closed:
            draft.digests = digests_of(fleet, draft.options, choice)
            draft.closed = why_closed(draft.options)
        drafts[name] = draft
    return drafts


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
        images = drafts[name].choice.images if name in drafts else world.images
        offer = offer_of_pool(fleet, name, images)
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


def _create_for_requests(drafts: Mapping[str, Draft], allocation: Allocation) -> None:
    """Make the machines that requests were given room for, in the order of service."""
    for turn, (request, pool) in enumerate(allocation.by_pool.items(), start=1):
        draft = drafts[pool]
        because = f"request {request} waits and no free worker fits it"
        if draft.option is None:
            continue
        inputs = new_inputs(draft.fleet, draft.option, next(draft.names))
        why = Why(Reason.REQUESTS_WAIT, Cause.DEMAND, because, (request,), turn)
        draft.create(inputs, why)
