"""Estimate when each waiting request starts, consistent with the plan.

A request that the plan serves starts on the worker that the plan assigns. The other requests
follow in queue order, each on the fitting worker that is free first; a machine that a throttle
postpones is free after the later run that creates it. The start is unknown if a limit or a budget
stops a request, or if no fitting worker has work with a known end. Tags that a request may waive
later (`otherwise`) still count, except in `find_waits`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice

from pydantic import Field

from fleet.guard.refusals import throttle
from fleet.model.decisions import NoMachineReason
from fleet.model.facts import Worker, World
from fleet.model.plan import CREATE_LIMIT, Create, Plan, WorkerVerdict
from fleet.model.pool_limits import boot_of
from fleet.model.values import Value, later
from fleet.planner.demand import Drops, Ordered, ordered
from fleet.planner.durations import NO_KIND, Durations, MachineKind, kind_at
from fleet.planner.fitting import FitRequirements, asked_by
from fleet.planner.images import images_by_pool
from fleet.planner.inventory import PoolInventory, take_inventory
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

    def end_of(self, key: str) -> datetime | None:
        """Return the expected end of a request; None if unknown."""
        seconds = self.ends.get(key)
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


def forecast(
    fleet: Fleet, world: World, plan: Plan, *, assumed: int | None = None, waives: bool = False
) -> Forecast:
    """Return the expected start of each waiting request.

    Work of unknown duration takes `assumed` seconds. If `assumed` is None, its end is unknown.
    With `waives`, a request starts without a tag (`otherwise`) if that is earlier.
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
    fits = _fitting_lines(fleet, world, plan, turns.lines())
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
            turns.queue(found, request, fits[number])
    if waives:
        turns.add_idle()
        for after, request, asked in _list_waiving(fleet, world, plan, requests):
            turns.start_after(found, request, asked, after)
    # Unread requests of partly read queues possibly come first, so their starts are unknown.
    sampled = {estimate.queue for estimate in plan.estimates}
    for key in [key for key in found.starts if key.partition("/")[0] in sampled]:
        del found.workers[key]
        found.leave(key, answers.explain_sampled_turn(found.starts.pop(key)))
    return found


_MAX_SECONDS = 10 * 366 * 86_400
"""Maximum time until a forecast start: the end of later work can be after the last moment."""


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

    def start(self, found: Forecast, request: Ordered, name: str) -> None:
        """Start a request on a worker when the worker is free."""
        if name not in self._standing:
            found.leave(request.key, answers.explain_unseen_worker(name))
        elif name not in self.free:
            found.leave_untimed(request.key)
        elif self.free[name] > _MAX_SECONDS:
            found.leave(request.key, answers.TOO_FAR)
        else:
            start = found.starts[request.key] = self.free.pop(name)
            found.workers[request.key] = name
            seconds = request.seconds_on(self._standing[name].alike[2])
            seconds = self._assumed if seconds is None else seconds
            if seconds is not None:
                self.free[name] = found.ends[request.key] = start + seconds
        self._working.add(name)

    def lines(self) -> dict[Class, _Line]:
        """Return the busy workers by class, with those that the plan assigns or postpones."""
        for name in self._working & self._standing.keys():
            self._add_free(name)
        return dict(self._lines)

    def _add_free(self, name: str) -> None:
        line = self._lines[self._standing[name].alike]
        line.kind = self._standing[name].alike[2]
        if name in self.free:
            heappush(line.heap, (self.free[name], name))
        else:
            line.untimed = True

    def queue(self, found: Forecast, request: Ordered, lines: Sequence[_Line]) -> None:
        """Start a request on the fitting worker that is free first."""
        able = [line for line in lines if line.ends_in_time(request)]
        first = _first_free(able, self.free)
        if first is not None:
            self.start(found, request, first[1])
            self._add_free(first[1])
        elif any(line.untimed for line in able):
            found.leave_untimed(request.key)
        else:
            found.leave(request.key, answers.NONE_FITS)

    def add_idle(self) -> None:
        """Add the idle workers that the plan assigns nothing."""
        self._working.update(self._standing)
        self.lines()

    def start_after(
        self, found: Forecast, request: Ordered, asked: FitRequirements, after: int
    ) -> None:
        """Start a request after these seconds on a worker without its tags, if that is earlier."""
        able = [
            line
            for (queues, offer, _), line in self._lines.items()
            if asked.queue in queues and asked.dropped.isdisjoint(offer.provides)
            if asked.fits(offer) and line.ends_in_time(request)
        ]
        first = _first_free(able, self.free)
        known = found.starts.get(request.key)
        start = max(first[0], after) if first else _MAX_SECONDS + 1
        if first is None or start > _MAX_SECONDS or (known is not None and known <= start):
            return
        self.free[first[1]] = start
        self.start(found, request, first[1])
        self._add_free(first[1])
        found.not_known.pop(request.key, None)
        found.untimed.discard(request.key)


def _list_waiving(
    fleet: Fleet, world: World, plan: Plan, requests: Iterable[Ordered]
) -> list[tuple[int, Ordered, FitRequirements]]:
    """Return the requests that may waive a tag later: after which seconds, and the rest."""
    drops, found = Drops(fleet, world.time), list[tuple[int, Ordered, FitRequirements]]()
    signature_of = {key: each for each in plan.signatures for key in each.requests}
    stops = {key: each for each in plan.unserved for key in each.requests}
    # Tags that a queue has stored are never waived.
    waiting = ((q, d) for q, d in world.demands() if not d.stored)
    known = {f"{queue}/{r.id}": r.pending_since for queue, d in waiting for r in d.requests}
    for request in requests if drops.are_stated else ():
        signature, unserved = signature_of.get(request.key), stops.get(request.key)
        since = known.get(request.key) or known.get(request.key.rpartition("#")[0])
        if signature is None or unserved is None or since is None:
            continue
        limits = {each.path[:2] for each in unserved.blocked if each.code == "limit"}
        # A limit on new machines of a pool leaves its workers free.
        limits -= {("pools", each.pool) for each in unserved.blocked}
        waited = int((world.time - since).total_seconds())
        delays = [*drops.delays(signature.required)]
        for seconds in sorted({after for *_, after in delays if after > waited}):
            own = {("tags", name) for _, name, after in delays if after <= seconds}
            asked = asked_by(fleet, signature)
            if limits <= own and not asked.held:
                dropped = drops.within(signature.required, seconds)
                found.append((seconds - waited, request, asked._replace(dropped=dropped)))
    return sorted(found, key=lambda each: each[:2])


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
        found |= dict.fromkeys(unserved.requests, explain_no_room(".".join(map(str, path))))
    return found


_LIMITS = frozenset(
    {
        *(NoMachineReason.TAG_LIMIT, NoMachineReason.QUEUE_LIMIT, NoMachineReason.TAGGED_FIRST),
        *(NoMachineReason.OWNER_BLOCKED, NoMachineReason.BUDGET, NoMachineReason.DEADLINE),
    }
)
"""Reasons for waiting that more machines do not remove."""


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


def workers_of(
    fleet: Fleet, world: World, plan: Plan, *, assumed: int | None = None
) -> Iterator[ForecastWorker]:
    """Yield the workers that take work: existing, booting, or created by this or a later plan."""
    withheld = {a.worker for a in plan.withheld}
    postponed = pauses_until_created(fleet, plan)
    pause = int(next_pause(fleet).total_seconds())
    durations = Durations(fleet, world, assumed=assumed)
    inventory = take_inventory(fleet, world)
    known = registered_workers(fleet, world, inventory)
    images = images_by_pool(fleet, world, inventory)
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
    found = (
        each
        for each in plan.withheld
        if isinstance(each, Create)
        and (not late.isdisjoint(each.serves) if each.serves else each.pool in free)
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


def registered_workers(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory] | None = None
) -> dict[str, Worker]:
    """Map the name of each machine and static worker to its worker, as a plan observes it."""
    known = {worker.name: worker for _, worker in world.registered()}
    for each in (inventory or take_inventory(fleet, world)).values():
        known |= {unit.name: unit.worker for unit in (*each.known, *each.unseen) if unit.worker}
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
    found = forecast(fleet, world, plan, waives=True)
    starts = sorted(found.starts.values())
    total = len(starts) + len(found.not_known)
    half, most = (_percentile(starts, total, share) for share in (50, 95))
    unknown = dict(islice(found.not_known.items(), _MAX_UNKNOWN))
    return ExpectedWaits(half=half, most=most, known=len(starts), of=total, unknown=unknown)


def _percentile(starts: list[int], total: int, percent: int) -> int | None:
    """Return a percentile of all waits, in seconds; None if the wait at this rank is unknown."""
    place = -(-total * percent // 100) - 1
    return starts[place] if 0 <= place < len(starts) else None
