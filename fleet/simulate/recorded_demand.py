"""Convert recorded observations to external events: jobs, boots, refusals, spot losses.

Observations are read and events are yielded in order of time. The buffer has the waiting and
running jobs, and all events after the oldest of these jobs. A job is yielded after its end is
known, or after `HORIZON`, so that memory does not grow with the length of the history.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from fleet.model.facts import (
    Attempt,
    Demand,
    Listing,
    Machine,
    Request,
    Unknown,
    Work,
    Worker,
    World,
    market_of,
)
from fleet.planner.transitions import SHARED
from fleet.planner.units import is_busy
from fleet.simulate.recorded_groups import Groups

HORIZON = timedelta(days=3)
"""Time after which a job is yielded even if its end is still unknown."""
_TRIED_FOR_NOTHING = ("out-of-stock", "quota")


@dataclass(slots=True, eq=False)
class PastRequest:
    """A recorded request, with its arrival, its worker and the duration of its work."""

    key: str
    """Queue and id of the request, as `queue/id`."""
    queue: str
    request: Request
    at: datetime
    """Observed time of the arrival in the queue."""
    since: datetime | None = None
    """Start of the wait if it began before the history; None if it began with the arrival."""
    seconds: int | None = None
    """Duration of the work in seconds; None if unknown."""
    least: int = 0
    """Minimum duration in seconds, if the end of the work was not observed."""
    pool: str = ""
    type: str = ""
    """Type of the machine that ran the request; empty if unknown."""
    started: datetime | None = None
    worker: str = ""
    """Name of the worker that ran the request."""
    withdrawn: datetime | None = None
    """Time when the request disappeared without having run on a worker."""
    is_done: bool = field(default=False, repr=False)


class Facts(NamedTuple):
    """Observed facts that fleet does not control, valid from a point in time."""

    at: datetime
    world: World
    """The observation without demand, workers, machines and stacks."""


class BootDuration(NamedTuple):
    """Duration from the creation of a machine to the registration of its worker."""

    at: datetime
    pool: str
    type: str
    seconds: int


class Refused(NamedTuple):
    """A creation refused for lack of stock or quota. `is_over`: creations succeed again."""

    at: datetime
    pool: str
    type: str
    market: str
    is_over: bool


class Lost(NamedTuple):
    """Lifetime of all spot machines since the last observation; number of busy machines lost."""

    at: datetime
    seconds: int
    lost: int


Event = PastRequest | Facts | BootDuration | Refused | Lost


class KnownHistory:
    """Collector of events from recorded observations, with a buffer of unfinished events."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, Event]] = []
        self._numbers = count()
        self._alive: dict[str, PastRequest] = {}
        self._groups = Groups(self._alive)
        self.worlds = 0
        """Number of observations read so far."""
        self.latest: datetime | None = None
        """Time of the latest observation."""
        self._facts: World | None = None
        self._booting: dict[str, Machine] = {}
        self._tried: dict[tuple[str, datetime], str] = {}
        self._uses: dict[str, int] = {}
        self._spot: set[str] = set()
        self._busy_spot: set[str] = set()
        self.unseen = 0
        """Number of requests that workers finished but that no observation contains."""
        self._runs: dict[tuple[str, str, str], tuple[int, ...]] = {}

    def events(self, worlds: Iterable[World]) -> Iterator[Event]:
        """Yield events in order of time, starting with the `Facts` of the first observation."""
        for world in worlds:
            self.see(world)
            yield from self.ready(world.time)
        yield from self.rest()

    def see(self, world: World) -> None:
        """Read the next observation and add its events to the buffer."""
        self._see_facts(world)
        self._see_attempts(world)
        machines = {machine.name: machine for _, machine in world.machines()}
        workers = list(listed_workers(world))
        self._see_boots(world, machines, workers)
        self._see_spot(world, machines, workers)
        self._see_jobs(world, machines, workers)
        self.worlds += 1
        self.latest = world.time

    @property
    def kept(self) -> int:
        """Return the number of events in the buffer."""
        return len(self._heap)

    def ready(self, now: datetime) -> Iterator[Event]:
        """Yield the buffered events that no later event can precede."""
        while self._heap and self._is_known(self._heap[0][2], now):
            yield heappop(self._heap)[2]

    def rest(self) -> Iterator[Event]:
        """Yield the remaining buffered events, after the last observation was read."""
        for job in self._alive.values():
            if job.started is not None and self.latest is not None and job.seconds is None:
                job.least = _seconds(job.started, self.latest)
        while self._heap:
            yield heappop(self._heap)[2]

    def _is_known(self, event: Event, now: datetime) -> bool:
        if not isinstance(event, PastRequest) or event.is_done:
            return True
        if now - event.at < HORIZON:
            return False
        if event.started is not None:
            event.least = _seconds(event.started, now)
        return True

    def _add(self, event: Event) -> None:
        heappush(self._heap, (event.at, next(self._numbers), event))

    def _see_facts(self, world: World) -> None:
        facts = world.altered(
            queues={
                name: reading.altered(
                    demand=_without_requests(reading.demand), workers=None, clock_ahead=None
                )
                for name, reading in world.queues.items()
            },
            providers={},
            stacks={},
            attempts=(),
            runs=(),
            ledger=_NOT_SAID,
            approved={},
        )
        if self._facts is None or _has_changed(facts, self._facts):
            self._facts = facts
            self._add(Facts(world.time, facts))

    def _see_attempts(self, world: World) -> None:
        known: dict[tuple[str, datetime], str] = {}
        for each in world.attempts:
            key = (each.worker, each.at)
            known[key] = each.result
            if self.latest is None or self._tried.get(key) == each.result:
                continue
            self._add_attempt(each, world.time)
        self._tried = known

    def _add_attempt(self, each: Attempt, now: datetime) -> None:
        failed = each.result in _TRIED_FOR_NOTHING
        if failed or each.result in ("starting", "registered"):
            # A late discovery gets the current time, because events are in order of time.
            at = max(each.at, self.latest or now)
            self._add(Refused(at, each.pool, each.type, each.market, is_over=not failed))

    def _see_boots(
        self, world: World, machines: dict[str, Machine], workers: list[tuple[str, Worker]]
    ) -> None:
        registered = {w.machine or w.name: w for _, w in workers if w.state != "enrolled"}
        for name, machine in self._booting.items():
            worker = registered.get(name)
            if (
                worker is None
                or machine.created_at is None
                or machines.get(name, machine).id != machine.id
            ):
                continue
            since = worker.connected_since or (worker.work.started_at if worker.work else None)
            since = since or worker.since or world.time
            if self.latest is not None and self.latest <= since <= world.time:
                seconds = _seconds(machine.created_at, since)
                self._add(BootDuration(world.time, machine.pool, machine.type, seconds))
        self._booting = {n: m for n, m in machines.items() if n not in registered}

    def _see_spot(
        self, world: World, machines: dict[str, Machine], workers: list[tuple[str, Worker]]
    ) -> None:
        """Add an event with the lifetime of spot machines and the number lost while busy."""
        # While a provider is unreadable, no machine counts as deleted.
        has_unknown = any(isinstance(each, Unknown) for each in world.providers.values())
        if self.latest is not None and not has_unknown:
            between = _seconds(self.latest, world.time)
            lost = sum(name not in machines for name in self._busy_spot)
            if self._spot:
                self._add(Lost(world.time, between * len(self._spot), lost))
        bought = {
            inputs.name
            for stack in world.known_stacks.values()
            for inputs in stack.workers
            if market_of(inputs) == "spot"
        }
        busy = {w.machine or w.name for _, w in workers if is_busy(w)}
        self._spot = bought & machines.keys()
        self._busy_spot = self._spot & busy

    def _see_jobs(
        self, world: World, machines: dict[str, Machine], workers: list[tuple[str, Worker]]
    ) -> None:
        running = {}
        for queue, worker in workers:
            if worker.running is not None and is_busy(worker):
                named = self._running_key(world, queue, worker.running)
                running[self._groups.key_of_running(named, worker.work)] = worker
        waiting = {key: (queue, each) for key, queue, each in self._groups.waiting(world)}
        unread = {
            name
            for name, reading in world.queues.items()
            if not isinstance(reading.demand, Demand)
            or reading.demand.estimate
            or isinstance(reading.workers, Unknown)
        }
        unread |= {"" for each in world.providers.values() if isinstance(each, Unknown)}
        for key, (queue, request) in waiting.items():
            job = self._alive.get(key)
            if job is None and key not in running:
                came = self._arrival(world, request.pending_since)
                since = request.pending_since if self.latest is None else None
                self._begin(PastRequest(key, queue, request, came, since))
            elif job is not None and job.started is not None and key not in running:
                job.started = None  # the queue retries the request
        for key, worker in running.items():
            self._see_running(world, key, worker, machines)
        free = {worker.name: worker for _, worker in workers}
        self._see_uses(free)
        new_runs = self._new_runs(world)
        for key, job in list(self._alive.items()):
            if key in waiting or key in running or job.queue in unread or "" in unread:
                continue
            self._end(world, job, free.get(job.worker), new_runs)
        self._groups.forget()

    def _see_uses(self, workers: dict[str, Worker]) -> None:
        """Count the requests that workers finished unobserved since the previous observation."""
        seen = Counter(job.worker for job in self._alive.values() if job.started is not None)
        for name, worker in workers.items():
            if worker.uses is not None and name in self._uses:
                still = worker.running is not None and is_busy(worker)
                ended = seen[name] - still
                self.unseen += max(0, worker.uses - self._uses[name] - max(0, ended))
        self._uses = {n: w.uses for n, w in workers.items() if w.uses is not None}

    def _running_key(self, world: World, queue: str, running: str) -> str:
        """Return `queue/id` of a worker's request. If `queue` is empty, search all queues."""
        if queue:
            return f"{queue}/{running}"
        keys = [f"{name}/{running}" for name in sorted(world.queues)]
        return next((key for key in keys if key in self._alive), keys[0] if keys else running)

    def _arrival(self, world: World, said: datetime | None) -> datetime:
        """Return the arrival time of a request that the previous observation did not contain."""
        if self.latest is None:
            return world.time
        return min(max(said or world.time, self.latest), world.time)

    def _begin(self, job: PastRequest) -> None:
        self._alive[job.key] = job
        self._add(job)

    def _see_running(
        self, world: World, key: str, worker: Worker, machines: dict[str, Machine]
    ) -> None:
        started = (worker.work.started_at if worker.work else None) or worker.since or world.time
        job = self._alive.get(key)
        if job is None:
            queue, _, own = key.partition("/")
            request = _request_of(own, worker.work or Work(), started)
            job = PastRequest(key, queue, request, self._arrival(world, started))
            self._begin(job)
        if job.started is None or job.worker != worker.name:
            machine = machines.get(worker.machine or worker.name)
            job.started, job.worker = started, worker.name
            job.pool = machine.pool if machine else worker.pool or ""
            job.type = machine.type if machine else ""

    def _end(
        self,
        world: World,
        job: PastRequest,
        worker: Worker | None,
        new_runs: Counter[tuple[str, str, str, int]],
    ) -> None:
        before = self.latest or world.time
        if job.started is not None:
            job.seconds = _seconds(job.started, _end_time(worker, before, world.time))
        else:
            found = _find_unseen_run(job.request, new_runs)
            expected = job.request.expected_seconds
            if found is not None:
                new_runs[found] -= 1
                job.type, job.seconds = found[2], found[3]
            elif expected is not None and expected <= _seconds(before, world.time):
                job.seconds = expected
            else:
                job.withdrawn = world.time
        job.is_done = True
        del self._alive[job.key]

    def _new_runs(self, world: World) -> Counter[tuple[str, str, str, int]]:
        """Count the new runs in queue histories by (task, package, machine, seconds)."""
        found: Counter[tuple[str, str, str, int]] = Counter()
        known: dict[tuple[str, str, str], tuple[int, ...]] = {}
        for each in (run for _, demand in world.demands() for run in demand.runs):
            about = (each.task, each.package, each.machine)
            known[about] = each.seconds
            if self.latest is not None and self._runs.get(about) is not each.seconds:
                new = Counter(each.seconds) - Counter(self._runs.get(about, ()))
                for seconds, times in new.items():
                    found[(*about, seconds)] += times
        self._runs = known
        return found


_NOT_SAID = Unknown(unknown="the simulation has its own")
_PASSING = {"time", "delete_seconds", "queues"}


def _has_changed(facts: World, before: World) -> bool:
    """Return whether facts that affect decisions differ between two observations."""
    if facts.queues.keys() != before.queues.keys():
        return True
    if any(facts.queues[name] != before.queues[name] for name in facts.queues):
        return True
    return any(
        getattr(facts, name) != getattr(before, name)
        for name in World.model_fields
        if name not in _PASSING
    )


def _without_requests(demand: Demand | Unknown) -> Demand | Unknown:
    if isinstance(demand, Unknown):
        return Demand(read_at=_EPOCH)
    return demand.altered(read_at=_EPOCH, requests=(), estimate=False, sample=None)


_EPOCH = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


def listed_workers(world: World) -> Iterator[tuple[str, Worker]]:
    """Yield (queue, worker) for each listed worker. The queue is empty for a provider's list."""
    for queue, reading in sorted(world.queues.items()):
        if isinstance(reading.workers, tuple):
            yield from ((queue, worker) for worker in reading.workers)
    for listing in world.providers.values():
        if isinstance(listing, Listing):
            yield from (("", worker) for worker in listing.workers or ())


def _find_unseen_run(
    request: Request, new_runs: Counter[tuple[str, str, str, int]]
) -> tuple[str, str, str, int] | None:
    """Return an unmatched new run of the same task and package; None if there is no such run."""
    about = (request.task, request.package or "")
    fitting = (run for run, left in new_runs.items() if left > 0 and run[:2] == about)
    return min(fitting, default=None)


def _request_of(own: str, work: Work, started: datetime) -> Request:
    """Return a request for running work that no observation contained as waiting."""
    return Request(id=own, pending_since=started, **{key: getattr(work, key) for key in SHARED})


def _end_time(worker: Worker | None, before: datetime, now: datetime) -> datetime:
    """Return the end of work that ran in the previous observation and no longer runs."""
    if worker is not None:
        began = worker.work.started_at if worker.work and is_busy(worker) else worker.since
        if began is not None and before <= began <= now:
            return began
    return now


def _seconds(since: datetime, until: datetime) -> int:
    return max(1, int((until - since).total_seconds()))
