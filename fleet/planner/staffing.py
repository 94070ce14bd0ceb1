"""Who offers what, which worker each request counts for, and which machines are created.

Each place's requests are spread over its workers in the order of service: who comes next goes to
the worker that is expected to be free first.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from itertools import islice

from fleet.model.facts import Worker, WorkerInputs, WorkerState, World
from fleet.model.images import ImageVersion
from fleet.model.plan import BudgetVerdict, Cause, Reason
from fleet.planner.allocation import Allocation
from fleet.planner.demand import Ordered, Place, Rank, Supply
from fleet.planner.durations import USUAL
from fleet.planner.formulation import Stop
from fleet.planner.machine_inputs import Option, new_inputs, renamed
from fleet.planner.pool_plan import PoolPlan, Why, is_going
from fleet.planner.units import CAPACITY, State, Unit, is_busy
from fleet.schema.model import Fleet, StaticPool, serves_queue
from fleet.tagrules import Offer, offer_of_pool, offer_of_worker


def find_supplies(
    fleet: Fleet, world: World, pool_plans: Mapping[str, PoolPlan]
) -> dict[str, Supply]:
    """Return who offers what: a pool's future workers, and those that exist."""
    queues = frozenset(world.queues)
    supplies = {}
    for name, pool in sorted(fleet.pools.items()):
        served = frozenset(queue for queue in queues if serves_queue(pool, queue))
        if isinstance(pool, StaticPool):
            images: Iterable[ImageVersion] = world.versions
            offer = offer_of_pool(fleet, name, images)
            found: Iterable[tuple[str, Worker | None]] = _static_workers(world, pool)
        else:
            pool_plan = pool_plans[name]
            images, offer = pool_plan.choice.images, pool_plan.offer
            found = [(u.name, u.worker) for u in _taking_work(pool_plan)]
            found += [
                (each, None) for each in islice(pool_plan.names, pool_plan.inventory.uncounted)
            ]
        groups = _by_offer(fleet, images, name, offer, found)
        groups.setdefault(offer, [])
        for number, (offered, units) in enumerate(groups.items()):
            key = name if offered == offer else f"{name}~{number}"
            supplies[key] = Supply(name, served, offered, tuple(units))
    return supplies


def _taking_work(pool_plan: PoolPlan) -> list[Unit]:
    """Return the workers that can take a request; busy ones too where work may wait for them.

    Those that are merely unseen may be about to take it: nothing is bought twice because of that.
    """
    may_wait = pool_plan.pool is not None and pool_plan.pool.target_wait is not None
    states = CAPACITY | {State.BUSY} if may_wait else CAPACITY
    unseen = [unit for unit in pool_plan.inventory.unseen if not is_going(unit)]
    return [unit for unit in (*pool_plan.staying, *unseen) if unit.state in states]


def _by_offer(
    fleet: Fleet,
    images: Iterable[ImageVersion],
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
        offer = default
        if alike is not None and alike.provides:
            offer = offer_of_worker(fleet, pool, images, alike)
        elif alike is not None:
            # It says only whom it is for: what it provides is what its pool does.
            offer = replace(default, requires=default.requires | set(alike.requires))
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


_Load = list[tuple[Rank, Ordered]]
"""The requests of one worker, in the order of service."""


@dataclass
class Service:
    """Who is served by what."""

    by_worker: dict[str, str] = field(default_factory=dict)
    """Request to the existing worker that it is counted for."""
    unserved: Mapping[str, tuple[Stop, ...]] = field(default_factory=dict)
    turns: int = 0
    """How many machines are made for requests."""
    budgets: tuple[BudgetVerdict, ...] = ()
    """How far budgets are used up by it."""


def staff(
    pool_plans: Mapping[str, PoolPlan],
    supplies: Mapping[str, Supply],
    places: Mapping[str, Place],
    allocation: Allocation,
) -> Service:
    """Count existing workers for requests, and add the machines that are made for the others."""
    service = Service(unserved=allocation.unserved)
    owner = {
        unit.name: pool_plan
        for pool_plan in pool_plans.values()
        for unit in (*pool_plan.inventory.units, *pool_plan.inventory.unseen)
    }
    busy = {
        unit.name
        for pool_plan in pool_plans.values()
        for unit in pool_plan.inventory.having(State.BUSY)
    }
    loads: list[tuple[str, _Load]] = []
    for key, served in sorted(allocation.served.items()):
        if places[key].makes:
            own = _spread(served, allocation.machines.get(key, 0), places[key])
            loads += ((key, load) for load in own if load)
            continue
        # Who is free comes before who still works.
        units = sorted(supplies[key].units, key=lambda name: (name in busy, name))
        for unit, load in zip(units, _spread(served, len(units), places[key]), strict=True):
            service.by_worker |= {request.key: unit for _, request in load}
            if load and unit in owner:
                owner[unit].used[unit] = load[0][1].key
                owner[unit].served += len(load)
    loads.sort(key=lambda each: each[1][0])
    options: dict[str, Option] = {}
    made: dict[tuple[str, str], WorkerInputs] = {}
    for turn, (key, load) in enumerate(loads, start=1):
        pool_plan = pool_plans[places[key].pool]
        worker = next(pool_plan.names)
        if key not in options:
            options[key] = next(option for option in pool_plan.options if option.key == key)
        way = pool_plan.next_way(options[key])
        alike = (key, way.image)
        if alike not in made:
            made[alike] = new_inputs(pool_plan.fleet, way, worker)
        pool_plan.create(renamed(made[alike], worker), _why(places[key], load, turn))
        pool_plan.served += len(load)
    service.turns = len(loads)
    _note_awaited(pool_plans, places, allocation)
    return service


def _note_awaited(
    pool_plans: Mapping[str, PoolPlan], places: Mapping[str, Place], allocation: Allocation
) -> None:
    """Note the pools that requests wait for because of a limit."""
    stopped = allocation.unserved.values()
    # Those who are stopped by the same share one tuple.
    for stops in dict(zip(map(id, stopped), stopped, strict=True)).values():
        for stop in stops:
            if stop.rows:
                pool_plans[places[stop.place].pool].awaited = True


def _spread(served: Sequence[tuple[Rank, Ordered]], workers: int, place: Place) -> list[_Load]:
    """Return the requests of each worker: each goes to who is free first."""
    loads: list[_Load] = [[] for _ in range(workers)]
    if len(served) <= workers:
        for load, each in zip(loads, served, strict=False):
            load.append(each)
        return loads
    free = [(0, worker) for worker in range(workers)]
    for each in served if workers else ():
        taken, worker = free[0]
        loads[worker].append(each)
        heapreplace(free, (taken + max(1, _seconds(each[1], place)), worker))
    return loads


def _why(place: Place, load: _Load, turn: int) -> Why:
    """Return why a machine is made for these requests, and what it is billed until it goes."""
    keys = tuple(request.key for _, request in load)
    others = f" and {len(keys) - 1} more wait" if keys[1:] else " waits"
    because = f"request {keys[0]}{others} and no free worker fits {'them' if keys[1:] else 'it'}"
    until_idle = place.billed(sum(_seconds(request, place) for _, request in load))
    assumed = sum(request.seconds is None for _, request in load)
    return Why(Reason.REQUESTS_WAIT, Cause.DEMAND, because, keys, turn, until_idle, assumed)


def _seconds(request: Ordered, place: Place) -> int:
    seconds = request.seconds_on(*place.kinds)
    return USUAL if seconds is None else seconds
