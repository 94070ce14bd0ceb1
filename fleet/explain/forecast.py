"""This module estimates when each waiting request starts, in the queue's own order.

It is list scheduling: each request in turn takes the worker that fits it and is free first, of
those that exist and those that this plan makes. A worker whose work nobody can time takes nothing
more, so that what would follow on it is not known rather than wrong.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush

from fleet.demand import Ordered, judge_of, ordered
from fleet.demand.durations import expected_seconds, remaining_seconds
from fleet.facts import Demand, Listing, Worker, World
from fleet.facts.versions import ImageVersion
from fleet.making.image_choice import images_by_pool
from fleet.plan import Plan, WorkerVerdict
from fleet.schema.model import Boot, Fleet, Pool
from fleet.schema.units import write_duration
from fleet.tagrules import (
    Offer,
    ask_of_tags,
    offer_of_pool,
    offer_of_worker,
    serves_queue,
)
from fleet.tagrules.bulk import Matcher
from fleet.tagrules.told import told_of

_WORKING = frozenset({"idle", "busy", "starting", "assumed", "planned", "unfinished"})
Class = tuple[frozenset[str], Offer]
"""Workers that are alike to every request: the queues they are at, and what they offer."""


@dataclass(frozen=True)
class Standing:
    """A worker that takes work, and how many seconds from now."""

    name: str
    alike: Class
    free_in: int | None
    """None where nothing says how long it still works."""


@dataclass
class Forecast:
    """When requests start, as far as anything says so."""

    now: datetime
    starts: dict[str, int] = field(default_factory=dict)
    """Request to the seconds from now until it starts; a request that is absent is not known."""
    not_known: dict[str, str] = field(default_factory=dict)
    """Request to why its start is not known."""

    def start_of(self, key: str) -> datetime | None:
        """Return when a request is expected to start; None where that is not known."""
        seconds = self.starts.get(key)
        return None if seconds is None else self.now + timedelta(seconds=seconds)


@dataclass
class _Line:
    """The workers of one class, the first to be free first; what was taken since is stale."""

    heap: list[tuple[int, str]] = field(default_factory=list)
    untimed: bool = False
    """One of them works for nobody knows how long."""


def forecast(fleet: Fleet, world: World, plan: Plan) -> Forecast:
    """Return when each waiting request is expected to start."""
    standing = {each.name: each for each in workers_of(fleet, world, plan)}
    lines: defaultdict[Class, _Line] = defaultdict(_Line)
    free: dict[str, int] = {}
    for name, each in standing.items():
        line = lines[each.alike]
        if each.free_in is None:
            line.untimed = True
        else:
            free[name] = each.free_in
            line.heap.append((each.free_in, name))
    for line in lines.values():
        heapify(line.heap)
    fits = _fitting_lines(fleet, world, plan, lines)
    own = {k: w for s in plan.signatures for k, w in (*s.by_worker.items(), *s.by_create.items())}
    number_of = {key: n for n, s in enumerate(plan.signatures) for key in s.requests}
    found = Forecast(world.time)
    sampled = {estimate.queue for estimate in plan.estimates}
    for request in sorted(_requests(fleet, world)):
        able = fits[number_of[request.key]] if request.key in number_of else []
        first = _first_free(able, free)
        if first is None:
            found.not_known[request.key] = _why_not_known(able)
            continue
        name = own.get(request.key, "")
        if free.get(name, first[0] + 1) > first[0]:
            name = first[1]
        start = found.starts[request.key] = free.pop(name)
        if request.key.partition("/")[0] in sampled:
            turn = write_duration(found.starts.pop(request.key))
            found.not_known[request.key] = (
                f"of what was listed its turn would come in {turn}, but its queue was only "
                "sampled, and others may go first"
            )
        line = lines[standing[name].alike]
        if request.seconds is None:
            line.untimed = True
        else:
            free[name] = start + request.seconds
            heappush(line.heap, (free[name], name))
    return found


def _first_free(lines: list[_Line], free: Mapping[str, int]) -> tuple[int, str] | None:
    """Return who of these workers is free first, and when; None where nobody ever is."""
    first: tuple[int, str] | None = None
    for line in lines:
        heap = line.heap
        while heap and free.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if heap and (first is None or heap[0] < first):
            first = heap[0]
    return first


def _why_not_known(lines: list[_Line]) -> str:
    if any(line.untimed for line in lines):
        return (
            "nothing says how long the workers that fit are busy: no history, and no `durations`"
        )
    return "no worker that fits exists or is made by this plan"


def _requests(fleet: Fleet, world: World) -> Iterator[Ordered]:
    for queue, reading in world.queues.items():
        if isinstance(reading.demand, Demand):
            for request in reading.demand.requests:
                yield from ordered(queue, request, expected_seconds(fleet, request))


def _fitting_lines(
    fleet: Fleet, world: World, plan: Plan, lines: Mapping[Class, _Line]
) -> list[list[_Line]]:
    """Return the lines that may serve each signature, in the order of the plan."""
    names = {str(number): alike for number, alike in enumerate(lines)}
    matchers = {
        queue: Matcher({name: offer for name, (at, offer) in names.items() if queue in at})
        for queue in world.queues
    }
    held = _held(fleet, world, plan)
    found = []
    for signature in plan.signatures:
        ask = ask_of_tags(fleet, signature.required, signature.provided)
        able = () if signature.id in held else matchers[signature.queue].fitting(ask)
        found.append([lines[names[name]] for name in able])
    return found


def _held(fleet: Fleet, world: World, plan: Plan) -> set[str]:
    """Return the signatures whose queue stored a tag that was asked for without permission."""
    refused = {s.requests[0]: s for s in plan.signatures if s.refused}
    judge = judge_of(fleet, world)
    return {
        refused[each.key].id
        for queue, reading in world.queues.items()
        if refused and isinstance(reading.demand, Demand)
        for request in reading.demand.requests
        for each in ordered(queue, request, None)[:1]
        if each.key in refused and judge.ask_of_alike(request, told_of(reading.demand)).held
    }


def workers_of(fleet: Fleet, world: World, plan: Plan) -> Iterator[Standing]:
    """Yield the workers that take work: those that stay, boot, or are made by this plan."""
    withheld = {a.worker for a in plan.withheld}
    known = registered_workers(world)
    images = images_by_pool(fleet, world)
    offers: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Class] = {}
    for verdict in plan.workers:
        stays = verdict.verdict == "keep" or (verdict.worker in withheld)
        if verdict.verdict == "create":
            stays = verdict.worker not in withheld
        if not stays or verdict.state not in _WORKING or verdict.inactive:
            continue
        worker = known.get(verdict.worker)
        if verdict.pool not in fleet.pools or (worker is not None and worker.draining):
            continue
        tags = (worker.provides, worker.requires) if worker else ((), ())
        shape = (verdict.pool, *tags)
        if shape not in offers:
            served = frozenset(
                q for q in world.queues if serves_queue(fleet.pools[verdict.pool], q)
            )
            offer = _offer_of(fleet, images[verdict.pool], verdict.pool, worker)
            offers[shape] = served, offer
        free_in = _free_in(fleet, world, verdict, worker)
        yield Standing(verdict.worker, offers[shape], free_in)


def registered_workers(world: World) -> dict[str, Worker]:
    """Return every registered worker by its name."""
    listings = [x.workers for x in world.providers.values() if isinstance(x, Listing)]
    groups = [*(reading.workers for reading in world.queues.values()), *listings]
    return {w.name: w for group in groups if isinstance(group, tuple) for w in group}


def _offer_of(
    fleet: Fleet, images: tuple[ImageVersion, ...], name: str, worker: Worker | None
) -> Offer:
    if worker is not None and (worker.provides or worker.requires):
        return offer_of_worker(fleet, name, images, worker)
    return offer_of_pool(fleet, name, images)


def _free_in(
    fleet: Fleet, world: World, verdict: WorkerVerdict, worker: Worker | None
) -> int | None:
    if verdict.state == "busy":
        return remaining_seconds(fleet, worker, world.time) if worker else None
    if verdict.state in ("idle", "assumed"):
        return 0
    pool = fleet.pools[verdict.pool]
    boots = pool.boot.expected if isinstance(pool, Pool) else Boot().expected
    if verdict.since is None:
        return boots
    return max(0, boots - int((world.time - verdict.since).total_seconds()))
