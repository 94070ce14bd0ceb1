"""This module says who offers what: the workers that exist, and the future ones of each pool."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from fleet.census.registrations import is_busy
from fleet.census.units import CAPACITY, State, Unit
from fleet.demand import Supply
from fleet.draft import Draft, is_going
from fleet.facts import Worker, WorkerState, World
from fleet.facts.versions import ImageVersion
from fleet.schema.model import Fleet, StaticPool
from fleet.tagrules import Offer, offer_of_pool, offer_of_worker, serves_queue


def find_supplies(fleet: Fleet, world: World, drafts: Mapping[str, Draft]) -> dict[str, Supply]:
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
            draft = drafts[name]
            images, offer = draft.choice.images, draft.offer
            found = [(u.name, u.worker) for u in _taking_work(draft)]
            found += [(each, None) for each in islice(draft.names, draft.census.uncounted)]
        groups = _by_offer(fleet, images, name, offer, found)
        groups.setdefault(offer, [])
        for number, (offered, units) in enumerate(groups.items()):
            key = name if offered == offer else f"{name}~{number}"
            supplies[key] = Supply(name, served, offered, tuple(units))
    return supplies


def _taking_work(draft: Draft) -> list[Unit]:
    """Return the workers that can take a request; busy ones too where work may wait for them.

    Those that are merely unseen may be about to take it: nothing is bought twice because of that.
    """
    may_wait = draft.pool is not None and draft.pool.target_wait is not None
    states = CAPACITY | {State.BUSY} if may_wait else CAPACITY
    unseen = [unit for unit in draft.census.unseen if not is_going(unit)]
    return [unit for unit in (*draft.staying, *unseen) if unit.state in states]


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
