"""Estimate when each waiting request starts, consistent with the plan.

A request that the plan serves starts on the worker that the plan assigns. The other requests
follow in queue order, each on the fitting worker that is free first; a machine that a throttle
postpones is free after the later run that creates it. The start is unknown if a limit or a budget
stops a request, or if no fitting worker has work with a known end.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import chain, islice
from math import inf
from typing import NamedTuple

from pydantic import Field

from fleet.guard.refusals import throttle
from fleet.model.decisions import NoMachineReason
from fleet.model.facts import Listing, Worker, World
from fleet.model.plan import CREATE_LIMIT, Create, Plan, WorkerVerdict
from fleet.model.pool_limits import boot_of
from fleet.model.values import Value, later
from fleet.planner.demand import Drops, Ordered, ordered
from fleet.planner.durations import NO_KIND, Durations, MachineKind, kind_at
from fleet.planner.fitting import asked_by
from fleet.planner.images import images_by_pool
from fleet.planner.inventory import is_of_older, joined
from fleet.schema.model import Fleet, serves_queue
from fleet.tagrules.offers import Matcher, Offer, offer_of_pool, offer_of_worker
from fleet.words import answers
from fleet.words.limits import explain_no_room

_WORKING = frozenset({"idle", "busy", "starting", "assumed", "planned", "unfinished"})
Class = tuple[frozenset[str], Offer, MachineKind]
"""Key of interchangeable workers: their queues, offer and machine kind."""


@dataclass(frozen=True)
class ForecastWorker:
    """A worker that takes work, with the seconds until it is free."""

    name: str
    alike: Class
    free_in: int | None
    """None if the end of its work is unknown."""
    works: bool = False


@dataclass
class Forecast:
    """The expected start and end of each waiting request; if unknown, the reason."""

    now: datetime
    starts: dict[str, int] = field(default_factory=dict)
    """Request to the seconds from now until it starts; only requests with a known start."""
    ends: dict[str, int] = field(default_factory=dict)
    """Request to the seconds from now until it ends; only requests with a known end."""
    workers: dict[str, str] = field(default_factory=dict)
    """Request to the worker on which it starts; only requests with a known start."""
    not_known: dict[str, str] = field(default_factory=dict)
    """Request to the reason why its start is unknown."""
    untimed: set[str] = field(default_factory=set)
    """Requests whose start depends only on work of unknown duration."""
    standing: dict[str, ForecastWorker] = field(default_factory=dict)
    """Name to worker, for the workers that take work."""

    def leave(self, key: str, reason: str) -> None:
        """Record why the start of a request is unknown."""
        self.not_known[key] = reason
        self.untimed.discard(key)

    def leave_untimed(self, key: str) -> None:
        """Record that the start of a request depends on work of unknown duration."""
        self.leave(key, answers.UNTIMED)
        self.untimed.add(key)

    def start_of(self, key: str) -> datetime | None:
        """Return the expected start of a request; None if unknown."""
        seconds = self.starts.get(key)
        return None if seconds is None else self.now + timedelta(seconds=seconds)


@dataclass
class _Line:
    """The workers with equal queues, offer and machine kind, in the order they become free.

    `heap` has (seconds until free, worker). An entry is stale if the worker got another request.
    """

    heap: list[tuple[int, str]] = field(default_factory=list)
    untimed: bool = False
    """One of these workers has work with an unknown end."""
    kind: MachineKind = NO_KIND

    def ends_in_time(self, request: Ordered) -> bool:
        """Return True if a request would end before its deadline on these workers."""
        return request.timing is None or not request.timing.is_late([self.kind], request.seconds)


def forecast(fleet: Fleet, world: World, plan: Plan, *, assumed: int | None = None) -> Forecast:
    """Return the expected start of each waiting request.

    Work of unknown duration takes `assumed` seconds. If `assumed` is None, its end is unknown.
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
    turns = _Schedule(standing, assumed, {each.worker for each in list_postponed(plan)})
    for request in requests:
        if request.key in own:
            turns.start(found, request, own[request.key])
    lines = turns.lines()
    fits = _fitting_lines(fleet, world, plan, lines)
    waived = _waived_lines(fleet, world, plan, [*lines.items(), *turns.idle_lines().items()])
    number_of = {key: n for n, s in enumerate(plan.signatures) for key in s.requests}
    stopped = _blocked_requests(plan)
    for request in requests:
        if request.key in own:
            continue
        number = number_of.get(request.key)
        if request.key in stopped:
            found.leave(request.key, stopped[request.key])
        elif number is None:
            found.leave(request.key, answers.NONE_FITS)
        else:
            turns.queue(found, request, number, fits[number], waived.get(number, ()))
    turns.start_all_waiving(found)
    _drop_partial_queues(plan, found)
    return found


_Waits = Sequence[tuple[int, Sequence[_Line]]]
"""(Seconds of waiting after which a tag is waived, lines that fit then)."""


class _Waiving(NamedTuple):
    """A request that fits more workers after it has waived a tag (`otherwise`)."""

    request: Ordered
    stages: _Waits
    """(Seconds from now, lines that fit from then on)."""

    @classmethod
    def of(
        cls, request: Ordered, now: datetime, lines: Sequence[_Line], waits: _Waits
    ) -> "_Waiving":
        """Return a request that fits the workers in `lines` now, and more after each wait."""
        since = request.since
        waited = 0 if since is None else int((now - since).total_seconds())
        known = waits if since is not None else ()
        return cls(request, [(0, lines), *((seconds - waited, then) for seconds, then in known)])

    def first(self, free: Mapping[str, int]) -> tuple[int, str] | None:
        """Return (seconds, worker) of the first possible start of the request; None if unknown."""
        able = (
            (after, [line for line in lines if line.ends_in_time(self.request)])
            for after, lines in self.stages
        )
        firsts = ((after, _first_free(lines, free)) for after, lines in able)
        return min(((max(after, f[0]), f[1]) for after, f in firsts if f), default=None)


class _Schedule:
    """The times, in seconds, at which workers are free; each started request delays its worker."""

    def __init__(
        self, standing: Mapping[str, ForecastWorker], assumed: int | None, later: Collection[str]
    ) -> None:
        self._standing = standing
        self._assumed = assumed
        self.free = {n: each.free_in for n, each in standing.items() if each.free_in is not None}
        self._working = {name for name, each in standing.items() if each.works or name in later}
        self._lines: defaultdict[Class, _Line] = defaultdict(_Line)
        self._idle: defaultdict[Class, _Line] = defaultdict(_Line)
        self._waiving: defaultdict[int, deque[_Waiving]] = defaultdict(deque)

    def start(self, found: Forecast, request: Ordered, name: str, at: int = 0) -> None:
        """Start a request on a worker when the worker is free, but not before `at` seconds."""
        if name not in self._standing:
            found.leave(request.key, answers.explain_unseen_worker(name))
        elif name not in self.free:
            found.leave_untimed(request.key)
        else:
            start = found.starts[request.key] = max(at, self.free.pop(name))
            found.workers[request.key] = name
            seconds = request.seconds_on(self._standing[name].alike[2])
            seconds = self._assumed if seconds is None else seconds
            if seconds is not None:
                self.free[name] = found.ends[request.key] = start + seconds
        self._working.add(name)

    def lines(self) -> dict[Class, _Line]:
        """Return the busy workers by class, with those that the plan assigns or postpones."""
        for name in self._working & self._standing.keys():
            self._add_free(self._lines, name)
        return dict(self._lines)

    def idle_lines(self) -> dict[Class, _Line]:
        """Return the workers without work, grouped by queues, offer and machine kind."""
        for name in self.free.keys() - self._working:
            self._add_free(self._idle, name)
        return dict(self._idle)

    def _add_free(self, lines: defaultdict[Class, _Line], name: str) -> None:
        line = lines[self._standing[name].alike]
        line.kind = self._standing[name].alike[2]
        if name in self.free:
            heappush(line.heap, (self.free[name], name))
        else:
            line.untimed = True

    def queue(
        self, found: Forecast, request: Ordered, number: int, lines: Sequence[_Line], waits: _Waits
    ) -> None:
        """Start a request of a signature on the fitting worker that is free first.

        Before that, start earlier requests that can start until then because they waive a tag.
        """
        able = [line for line in lines if line.ends_in_time(request)]
        first = _first_free(able, self.free)
        while first is not None and self.start_waiving(found, first[0]):
            first = _first_free(able, self.free)
        later = _Waiving.of(request, found.now, lines, waits)
        then = later.first(self.free)
        if then is not None and (first is None or then < first):
            self._waiving[number].append(later)
        elif first is not None:
            self.start(found, request, first[1])
            self._add_free(self._lines, first[1])
        else:
            is_untimed = any(line.untimed for line in able)
            if is_untimed:
                found.leave_untimed(request.key)
            else:
                found.leave(request.key, answers.NONE_FITS)

    def start_waiving(self, found: Forecast, until: float) -> bool:
        """Start the first waiting request that waives a tag, if possible before `until` seconds.

        Return True if a request was started.
        """
        firsts = [(each[0].first(self.free), n) for n, each in self._waiving.items() if each]
        known = [(first, n) for first, n in firsts if first is not None and first[0] <= until]
        if not known:
            return False
        (at, name), number = min(known)
        self.start(found, self._waiving[number].popleft().request, name, at)
        for lines in (self._lines, self._idle):
            self._add_free(lines, name)
        return True

    def start_all_waiving(self, found: Forecast) -> None:
        """Start all waiting requests that waive a tag."""
        while self.start_waiving(found, inf):
            pass
        for each in chain.from_iterable(self._waiving.values()):
            found.leave_untimed(each.request.key)


def _blocked_requests(plan: Plan) -> dict[str, str]:
    """Return the reason per request that limits or budgets block in all fitting pools."""
    found: dict[str, str] = {}
    for unserved in plan.unserved:
        # The deadline of a single request has no key.
        stops = [each for each in unserved.decisions if each.code in _LIMITS and each.key]
        stopped = {pool for each in stops for pool in each.subject}
        if not stops or stopped != {each.pool for each in unserved.blocked}:
            continue
        path = [stops[0].subject[0] if step == "*" else step for step in stops[0].key]
        because = explain_no_room(".".join(map(str, path)))
        found |= dict.fromkeys(unserved.requests, because)
    return found


_LIMITS = frozenset(
    {
        *(NoMachineReason.TAG_LIMIT, NoMachineReason.QUEUE_LIMIT, NoMachineReason.TAGGED_FIRST),
        *(NoMachineReason.OWNER_BLOCKED, NoMachineReason.BUDGET, NoMachineReason.DEADLINE),
    }
)
"""Reasons for waiting that more machines do not remove."""


def _drop_partial_queues(plan: Plan, found: Forecast) -> None:
    """Remove the starts in partly read queues, because unread requests possibly come first."""
    sampled = {estimate.queue for estimate in plan.estimates}
    for key in [key for key in found.starts if key.partition("/")[0] in sampled]:
        turn = found.starts.pop(key)
        del found.workers[key]
        found.leave(key, answers.explain_sampled_turn(turn))


def _first_free(lines: list[_Line], free: Mapping[str, int]) -> tuple[int, str] | None:
    """Return (seconds, worker) of the worker that is free first; None if unknown."""
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
    """Return the groups of equal workers that fit, per signature in the plan's order."""
    names = {str(number): alike for number, alike in enumerate(lines)}
    matchers = {
        queue: Matcher({name: offer for name, (at, offer, _) in names.items() if queue in at})
        for queue in world.queues
    }
    found = []
    for signature in plan.signatures:
        asked = asked_by(fleet, signature)
        able: Iterable[str] = matchers[signature.queue].fitting(asked.ask)
        if asked.dropped:
            own = ((name, offer) for name, (at, offer, _) in names.items() if asked.queue in at)
            able = [name for name, offer in own if asked.fits(offer)]
        found.append([lines[names[name]] for name in (() if asked.held else able)])
    return found


def _waived_lines(
    fleet: Fleet, world: World, plan: Plan, lines: Sequence[tuple[Class, _Line]]
) -> dict[int, list[tuple[int, list[_Line]]]]:
    """Map signature number to (seconds of waiting, groups of workers that fit only then)."""
    drops = Drops(fleet, world.time)
    stored = {queue for queue, demand in world.demands() if demand.stored}
    found: defaultdict[int, list[tuple[int, list[_Line]]]] = defaultdict(list)
    for number, signature in enumerate(plan.signatures if drops.are_stated else ()):
        asked = asked_by(fleet, signature)
        if asked.queue in stored or asked.held:
            continue
        for seconds in sorted({seconds for *_, seconds in drops.delays(signature.required)}):
            then = asked._replace(dropped=drops.within(signature.required, seconds))
            if then.dropped != asked.dropped:
                fitting = [
                    line
                    for (at, offer, _), line in lines
                    if asked.queue in at and then.fits(offer) and not asked.fits(offer)
                ]
                found[number].append((seconds, fitting))
    return found


def workers_of(
    fleet: Fleet, world: World, plan: Plan, *, assumed: int | None = None
) -> Iterator[ForecastWorker]:
    """Yield the workers that take work: existing, booting, or created by this or a later plan."""
    withheld = {a.worker for a in plan.withheld}
    postponed = pauses_until_created(fleet, plan)
    pause = int(next_pause(fleet).total_seconds())
    durations = Durations(fleet, world, assumed=assumed)
    known = registered_workers(world)
    images = images_by_pool(fleet, world)
    offers: dict[tuple[str, tuple[str, ...], tuple[str, ...], MachineKind], Class] = {}
    for verdict in plan.workers:
        stays = verdict.verdict == "keep" or (verdict.worker in withheld)
        if verdict.verdict == "create":
            stays = verdict.worker not in withheld or verdict.worker in postponed
        if not stays or verdict.state not in _WORKING or verdict.inactive:
            continue
        # Do not use the tags of an earlier worker with the name of a new machine.
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
            free_in = _seconds_until_free(fleet, world, verdict)
            free_in += postponed.get(verdict.worker, 0) * pause
        yield ForecastWorker(verdict.worker, offers[shape], free_in, works)


def next_pause(fleet: Fleet) -> timedelta:
    """Return the time until the first run at which machines created now have booted."""
    boots = [boot_of(pool).expected for pool in fleet.dynamic_pools.values()]
    return timedelta(seconds=max([fleet.cadence, *boots]))


def list_postponed(plan: Plan) -> list[Create]:
    """Return the creations that only a throttle postpones, in service order."""
    late = {key for each in plan.unserved if each.path == CREATE_LIMIT for key in each.requests}
    stopped = {each.pool for each in plan.guards if each.withheld and each.path != CREATE_LIMIT}
    free = {each.pool for each in plan.pools if stopped.isdisjoint((each.pool, None))}
    creates = (each for each in plan.withheld if isinstance(each, Create))
    found = (
        each
        for each in creates
        if (not late.isdisjoint(each.serves) if each.serves else each.pool in free)
    )
    return sorted(found, key=lambda each: each.turn)


def pauses_until_created(fleet: Fleet, plan: Plan) -> dict[str, int]:
    """Map each postponed machine to the number of the later run that creates it.

    Between the runs, the pools grow, so that the throttle lets more machines pass. A machine that
    it never lets pass, or only after `_MAX_RUNS`, is not in the map.
    """
    left, found = list_postponed(plan), dict[str, int]()
    made = Counter({each.pool: each.create - each.delete for each in plan.pools})
    for number in range(1, _MAX_RUNS + 1):
        pools = tuple(each.altered(other=each.other + made[each.pool]) for each in plan.pools)
        decisions = throttle(fleet, plan.altered(pools=pools), left)
        withheld = {action.worker for each in decisions for action in each.withheld}
        passing = [each for each in left if each.worker not in withheld]
        if not passing:
            break
        found |= dict.fromkeys((each.worker for each in passing), number)
        made.update(each.pool for each in passing)
        left = [each for each in left if each.worker in withheld]
    return found


_MAX_RUNS = 100
"""Maximum number of later runs in a forecast; each takes 5 ms for 1,000 postponed machines."""


def left_of(fleet: Fleet, world: World, worker: Worker) -> int | None:
    """Return the expected seconds until a worker's work ends; None if unknown."""
    name = worker.machine or worker.name
    machine = next((each for _, each in world.machines() if each.name == name), None)
    kind = kind_at(fleet, machine.pool, machine.type) if machine else NO_KIND
    return Durations(fleet, world).remaining(worker, world.time, kind)


def registered_workers(world: World) -> dict[str, Worker]:
    """Map name to registered worker, with the work that its queue assigns.

    If a worker registers at its provider, a ticket may assign its work and sandbox.
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


def _seconds_until_free(fleet: Fleet, world: World, verdict: WorkerVerdict) -> int:
    """Return the seconds until a worker without work is ready, including the rest of its boot."""
    if verdict.state in ("idle", "assumed"):
        return 0
    boots = boot_of(fleet.pools[verdict.pool]).expected
    if verdict.since is None:
        return boots
    return max(0, boots - int((world.time - verdict.since).total_seconds()))


_MAX_UNKNOWN = 3
"""Maximum number of requests with an unknown start that a comparison names."""


class ExpectedWaits(Value):
    """The wait, in seconds, that half and nearly all requests do not exceed.

    An unknown wait counts as longer than every known wait.
    """

    half: int | None = Field(None, description="Seconds of p50; None: unknown.")
    most: int | None = Field(None, description="Seconds of p95; None: unknown.")
    known: int = Field(0, description="Requests whose start is known.")
    of: int = Field(0, description="Requests that wait.")
    unknown: dict[str, str] = later({}, "Some of the other requests, with the reason.")


def find_waits(fleet: Fleet, world: World, plan: Plan) -> ExpectedWaits:
    """Return the percentiles of the expected waits in a plan."""
    found = forecast(fleet, world, plan)
    starts = sorted(found.starts.values())
    total = len(starts) + len(found.not_known)
    half, most = (_percentile(starts, total, share) for share in (50, 95))
    unknown = dict(islice(found.not_known.items(), _MAX_UNKNOWN))
    return ExpectedWaits(half=half, most=most, known=len(starts), of=total, unknown=unknown)


def _percentile(starts: list[int], total: int, percent: int) -> int | None:
    """Return a percentile of all waits, in seconds; None if the wait at this rank is unknown."""
    place = -(-total * percent // 100) - 1
    return starts[place] if 0 <= place < len(starts) else None
