"""Estimate when each waiting request starts, consistent with the plan.

A request that the plan serves starts on its worker of the plan. The others follow in queue order,
each on the worker that fits and is free first. The start is unknown where a limit or a budget
stops a request, and on workers whose work has no known end.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heappop, heappush

from pydantic import Field

from fleet.model.facts import Listing, Worker, World
from fleet.model.plan import Plan, WorkerVerdict
from fleet.model.values import Value
from fleet.planner.demand import Ordered, ordered
from fleet.planner.durations import NO_KIND, Durations, Kind, kind_at
from fleet.planner.images import images_by_pool
from fleet.planner.inventory import is_of_older, joined
from fleet.schema.model import Boot, Fleet, Pool, serves_queue
from fleet.schema.units import write_duration
from fleet.tagrules.offers import Matcher, Offer, ask_of_tags, offer_of_pool, offer_of_worker
from fleet.tagrules.vocabulary import Vocabulary

UNTIMED = "the workers that fit run or get work of unknown duration: no history, no `durations`"
_NONE_FITS = "no worker that fits exists or is made by this plan"
_WORKING = frozenset({"idle", "busy", "starting", "assumed", "planned", "unfinished"})
Class = tuple[frozenset[str], Offer, Kind]
"""Workers that are alike to every request: their queues, what they offer, and on what machine."""


@dataclass(frozen=True)
class Standing:
    """A worker that takes work, and how many seconds from now."""

    name: str
    alike: Class
    free_in: int | None
    """None where the end of its work is unknown."""
    works: bool = False


@dataclass
class Forecast:
    """When requests start, as far as known."""

    now: datetime
    starts: dict[str, int] = field(default_factory=dict)
    """Request to the seconds from now until it starts; absent where unknown."""
    ends: dict[str, int] = field(default_factory=dict)
    """Request to the seconds from now until it ends; absent where unknown."""
    workers: dict[str, str] = field(default_factory=dict)
    """Request to the worker that it starts on, for those whose start is known."""
    not_known: dict[str, str] = field(default_factory=dict)
    """Request to why its start is unknown."""
    standing: dict[str, Standing] = field(default_factory=dict)
    """The workers that take work, by name."""

    def start_of(self, key: str) -> datetime | None:
        """Return when a request is expected to start; None where unknown."""
        seconds = self.starts.get(key)
        return None if seconds is None else self.now + timedelta(seconds=seconds)


@dataclass
class _Line:
    """The workers of one class, the first to be free first; taken entries are stale."""

    heap: list[tuple[int, str]] = field(default_factory=list)
    untimed: bool = False
    """One of them works for an unknown time."""
    kind: Kind = NO_KIND

    def ends_in_time(self, request: Ordered) -> bool:
        """Return whether a request ends before its deadline there."""
        return request.timing is None or not request.timing.is_late([self.kind], request.seconds)


def forecast(fleet: Fleet, world: World, plan: Plan, *, assumed: int | None = None) -> Forecast:
    """Return when each waiting request is expected to start.

    Work of unknown duration takes `assumed` seconds; None: what follows it is unknown.
    """
    standing = {each.name: each for each in workers_of(fleet, world, plan, assumed=assumed)}
    own = {k: w for s in plan.signatures for k, w in (*s.by_worker.items(), *s.by_create.items())}
    durations = Durations(fleet, world)
    requests = sorted(
        each
        for queue, demand in world.demands()
        for request in demand.requests
        for each in ordered(queue, request, durations.of(queue, request))
    )
    found = Forecast(world.time, standing=standing)
    turns = _Turns(standing, assumed)
    for request in requests:
        if request.key in own:
            turns.start(found, request, own[request.key])
    lines = turns.lines()
    fits = _fitting_lines(fleet, world, plan, lines)
    number_of = {key: n for n, s in enumerate(plan.signatures) for key in s.requests}
    stopped = _stopped(fleet, plan, turns)
    for request in requests:
        if request.key in own:
            continue
        if request.key in stopped:
            found.not_known[request.key] = stopped[request.key]
            continue
        fitting = fits[number_of[request.key]] if request.key in number_of else []
        able = [line for line in fitting if line.ends_in_time(request)]
        first = _first_free(able, turns.free)
        if first is None:
            is_untimed = any(line.untimed for line in able)
            found.not_known[request.key] = UNTIMED if is_untimed else _NONE_FITS
            continue
        turns.start(found, request, first[1])
        line = lines[standing[first[1]].alike]
        if first[1] in turns.free:
            heappush(line.heap, (turns.free[first[1]], first[1]))
        else:
            line.untimed = True
    _keep_samples(plan, found)
    return found


class _Turns:
    """Who works until when; each request that starts keeps its worker for so long."""

    def __init__(self, standing: Mapping[str, Standing], assumed: int | None) -> None:
        self._standing = standing
        self._assumed = assumed
        self.free = {n: each.free_in for n, each in standing.items() if each.free_in is not None}
        self._working = {name for name, each in standing.items() if each.works}

    def start(self, found: Forecast, request: Ordered, name: str) -> None:
        """Start a request on a worker once that is free."""
        if name not in self._standing:
            found.not_known[request.key] = f"worker {name}, which it is next for, is not seen now"
        elif name not in self.free:
            found.not_known[request.key] = UNTIMED
        else:
            start = found.starts[request.key] = self.free.pop(name)
            found.workers[request.key] = name
            seconds = request.seconds_on(self._standing[name].alike[2])
            seconds = self._assumed if seconds is None else seconds
            if seconds is not None:
                self.free[name] = found.ends[request.key] = start + seconds
        self._working.add(name)

    def lines(self) -> dict[Class, _Line]:
        """Return the busy workers by class; free ones are used by the plan already."""
        lines: defaultdict[Class, _Line] = defaultdict(_Line)
        for name in self._working & self._standing.keys():
            line = lines[self._standing[name].alike]
            line.kind = self._standing[name].alike[2]
            if name in self.free:
                line.heap.append((self.free[name], name))
            else:
                line.untimed = True
        for line in lines.values():
            heapify(line.heap)
        return dict(lines)

    def first_end(self, counts: Callable[[Offer], bool]) -> int | None:
        """Return when the first of the matching workers ends its work; None: unknown."""
        working = [self._standing[n] for n in self._working & self._standing.keys()]
        ends = [self.free.get(each.name) for each in working if counts(each.alike[1])]
        known = [end for end in ends if end is not None]
        return min(known) if known and len(known) == len(ends) else None


def _stopped(fleet: Fleet, plan: Plan, turns: _Turns) -> dict[str, str]:
    """Return the requests that a limit or a budget stops in every pool that fits, and why."""
    vocabulary = Vocabulary(fleet)
    found: dict[str, str] = {}
    for unserved in plan.unserved:
        stops = [each for each in unserved.blocked if _is_limit(each.path)]
        if not stops or {each.pool for each in stops} != {e.pool for e in unserved.blocked}:
            continue
        path = stops[0].path
        because = f"{'.'.join(map(str, path))} leaves no room for it"
        if path[0] == "tags":
            end = turns.first_end(partial(_provides, vocabulary, str(path[1])))
            if end is not None:
                until = plan.time + timedelta(seconds=end)
                because += f" before {until:%Y-%m-%d %H:%M} UTC, when work that counts to it ends"
        found |= dict.fromkeys(unserved.requests, because)
    return found


def _provides(vocabulary: Vocabulary, name: str, offer: Offer) -> bool:
    return any(name in vocabulary.names_of(tag) for tag in offer.provides)


def _is_limit(path: tuple[str | int, ...]) -> bool:
    of_desk = path[:1] == ("queues",) and bool(path[2:])  # else a guard speaks of the queue
    return path[:1] in (("tags",), ("budgets",)) or of_desk or "budget" in path[2:3]


def _keep_samples(plan: Plan, found: Forecast) -> None:
    """Remove the starts of requests of partly read queues: others may go first."""
    sampled = {estimate.queue for estimate in plan.estimates}
    for key in [key for key in found.starts if key.partition("/")[0] in sampled]:
        turn = write_duration(found.starts.pop(key))
        del found.workers[key]
        found.not_known[key] = (
            f"of what was listed its turn would come in {turn}, but its queue was only "
            "sampled, and others may go first"
        )


def _first_free(lines: list[_Line], free: Mapping[str, int]) -> tuple[int, str] | None:
    """Return which of these workers is free first, and when; None where none will be."""
    first: tuple[int, str] | None = None
    for line in lines:
        heap = line.heap
        while heap and free.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if heap and (first is None or heap[0] < first):
            first = heap[0]
    return first


def _fitting_lines(
    fleet: Fleet, world: World, plan: Plan, lines: Mapping[Class, _Line]
) -> list[list[_Line]]:
    """Return the lines that may serve each signature, in the order of the plan."""
    names = {str(number): alike for number, alike in enumerate(lines)}
    matchers = {
        queue: Matcher({name: offer for name, (at, offer, _) in names.items() if queue in at})
        for queue in world.queues
    }
    refused = {(each.id, tag.path) for each in plan.signatures for tag in each.refused}
    held = {each.signature for each in plan.unserved if (each.signature, each.path) in refused}
    found = []
    for signature in plan.signatures:
        ask = ask_of_tags(fleet, signature.required, signature.provided)
        able = () if signature.id in held else matchers[signature.queue].fitting(ask)
        found.append([lines[names[name]] for name in able])
    return found


def workers_of(
    fleet: Fleet, world: World, plan: Plan, *, assumed: int | None = None
) -> Iterator[Standing]:
    """Yield the workers that take work: those that stay, boot, or are created by this plan."""
    withheld = {a.worker for a in plan.withheld}
    durations = Durations(fleet, world, assumed=assumed)
    known = registered_workers(world)
    images = images_by_pool(fleet, world)
    offers: dict[tuple[str, tuple[str, ...], tuple[str, ...], Kind], Class] = {}
    for verdict in plan.workers:
        stays = verdict.verdict == "keep" or (verdict.worker in withheld)
        if verdict.verdict == "create":
            stays = verdict.worker not in withheld
        if not stays or verdict.state not in _WORKING or verdict.inactive:
            continue
        # An earlier worker of the same name says nothing about a new machine.
        worker = None if verdict.verdict == "create" else known.get(verdict.worker)
        if verdict.pool not in fleet.pools or (worker is not None and worker.draining):
            continue
        tags = (worker.provides, worker.requires) if worker else ((), ())
        kind = kind_at(fleet, verdict.pool, verdict.type)
        shape = (verdict.pool, *tags, kind)
        if shape not in offers:
            served = frozenset(
                q for q in world.queues if serves_queue(fleet.pools[verdict.pool], q)
            )
            versions = images[verdict.pool]
            offer = (
                offer_of_worker(fleet, verdict.pool, versions, worker)
                if worker and any(tags)
                else offer_of_pool(fleet, verdict.pool, versions)
            )
            offers[shape] = served, offer, kind
        works = verdict.state == "busy"
        if works:
            free_in = durations.remaining(worker, world.time, kind) if worker else assumed
        else:
            free_in = _free_in(fleet, world, verdict)
        yield Standing(verdict.worker, offers[shape], free_in, works)


def left_of(fleet: Fleet, world: World, worker: Worker) -> int | None:
    """Return how many more seconds a worker is expected to be busy; None: unknown."""
    name = worker.machine or worker.name
    machine = next((each for _, each in world.machines() if each.name == name), None)
    kind = kind_at(fleet, machine.pool, machine.type) if machine else NO_KIND
    return Durations(fleet, world).remaining(worker, world.time, kind)


def registered_workers(world: World) -> dict[str, Worker]:
    """Return every registered worker by its name, with the work that its queue gave it.

    One that registers at its provider itself may have its work, and its sandbox, by a ticket.
    """
    readings = [reading.workers for reading in world.queues.values()]
    known = {w.name: w for group in readings if isinstance(group, tuple) for w in group}
    for listing in world.providers.values():
        if not isinstance(listing, Listing) or not listing.workers:
            continue
        created = {machine.name: machine.created_at for machine in listing.machines}
        for worker in listing.workers:
            own = known.get(worker.name)
            if own is None or is_of_older(own, created.get(worker.name)):
                known[worker.name] = worker
                continue
            both = joined(worker, own)
            known[worker.name] = both if both.work else both.altered(work=own.work)
    return known


def _free_in(fleet: Fleet, world: World, verdict: WorkerVerdict) -> int:
    """Return in how many seconds a worker is free that has no work, and may still boot."""
    if verdict.state in ("idle", "assumed"):
        return 0
    pool = fleet.pools[verdict.pool]
    boots = pool.boot.expected if isinstance(pool, Pool) else Boot().expected
    if verdict.since is None:
        return boots
    return max(0, boots - int((world.time - verdict.since).total_seconds()))


class Waits(Value):
    """Of requests that wait, how many seconds the half and nearly all of them wait at most.

    An unknown wait counts as longer than every known one.
    """

    half: int | None = Field(None, description="Seconds of p50; None: not known.")
    most: int | None = Field(None, description="Seconds of p95; None: not known.")
    known: int = Field(0, description="Requests whose start is known.")
    of: int = Field(0, description="Requests that wait.")


def find_waits(fleet: Fleet, world: World, plan: Plan) -> Waits:
    """Return the expected waits of a plan."""
    found = forecast(fleet, world, plan)
    starts = sorted(found.starts.values())
    total = len(starts) + len(found.not_known)
    half, most = (_wait_of(starts, total, share) for share in (50, 95))
    return Waits(half=half, most=most, known=len(starts), of=total)


def _wait_of(starts: list[int], total: int, percent: int) -> int | None:
    """Return the smallest wait that so many percent of all requests do not exceed."""
    place = -(-total * percent // 100) - 1
    return starts[place] if 0 <= place < len(starts) else None
