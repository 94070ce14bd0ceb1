"""Convert recorded observations to external events: jobs, boots, refusals, spot losses.

Observations are read and events are yielded in order of time. The buffer has the waiting and
running jobs, and all events after the oldest of these jobs. A job is yielded after its end is
known, or after `HORIZON`, so that memory does not grow with the length of the history.

A queue may report only the oldest request of a group of equal requests, and their number. `Groups`
tracks single requests from observation to observation. A running request that no queue reported
was the oldest of its group. The oldest other requests disappear first; an increase is new
requests.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from fleet.explain.builds import find_unread, listed_workers
from fleet.model.facts import (
    Demand,
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


@dataclass
class _Moment:
    """An observation, with the parts that are compared with those of the next observation."""

    world: World

    @cached_property
    def machines(self) -> dict[str, Machine]:
        """Map the name of each machine to the machine."""
        return {machine.name: machine for _, machine in self.world.machines()}

    @cached_property
    def workers(self) -> list[tuple[str, Worker]]:
        """Return (queue, worker) per listed worker. The queue is empty for a provider's list."""
        return list(listed_workers(self.world))

    @cached_property
    def registered(self) -> dict[str, Worker]:
        """Map machines to their registered workers."""
        return {w.machine or w.name: w for _, w in self.workers if w.state != "enrolled"}

    @cached_property
    def spot(self) -> dict[str, bool]:
        """Map the name of each spot machine to whether the machine is busy."""
        busy = {w.machine or w.name for _, w in self.workers if is_busy(w)}
        return {
            inputs.name: inputs.name in busy
            for stack in self.world.known_stacks.values()
            for inputs in stack.workers
            if market_of(inputs) == "spot" and inputs.name in self.machines
        }

    @cached_property
    def runs(self) -> dict[tuple[str, str, str], tuple[int, ...]]:
        """Map (task, package, machine) to the seconds of the runs in the queues' histories."""
        runs = (run for _, demand in self.world.demands() for run in demand.runs)
        return {(each.task, each.package, each.machine): each.seconds for each in runs}


class KnownHistory:
    """Collector of events from recorded observations, with a buffer of unfinished events."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, Event]] = []
        self._numbers = count()
        self._alive: dict[str, PastRequest] = {}
        self._groups = Groups(self._alive)
        self.worlds = 0
        """Number of observations read so far."""
        self.unseen = 0
        """Number of requests that workers finished but that no observation contains."""
        self._before: _Moment | None = None
        self._facts: World | None = None

    @property
    def latest(self) -> datetime | None:
        """Return the time of the latest observation."""
        return self._before.world.time if self._before else None

    def events(self, worlds: Iterable[World]) -> Iterator[Event]:
        """Yield events in order of time, starting with the `Facts` of the first observation."""
        for world in worlds:
            self.see(world)
            yield from self.ready(world.time)
        yield from self.rest()

    def see(self, world: World) -> None:
        """Read the next observation and add its events to the buffer."""
        now, before, known = _Moment(world), self._before, self._facts
        without = {"read_at": _EPOCH, "requests": (), "estimate": False, "sample": None}
        facts = world.altered(
            queues={
                name: reading.altered(
                    demand=Demand(read_at=_EPOCH)
                    if isinstance(reading.demand, Unknown)
                    else reading.demand.altered(**without),
                    workers=None,
                    clock_ahead=None,
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
        if known is None or known != facts.altered(
            time=known.time, delete_seconds=known.delete_seconds
        ):
            self._facts = facts
            self._add(Facts(world.time, facts))
        if before is not None:
            for find_events in (_attempts, _boots, _spot):
                for event in find_events(before, now):
                    self._add(event)
        self._see_jobs(now)
        self.worlds += 1
        self._before = now

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

    def _see_jobs(self, now: _Moment) -> None:
        world = now.world
        running = {}
        for queue, worker in now.workers:
            if worker.running is not None and is_busy(worker):
                named = self._running_key(world, queue, worker.running)
                running[self._groups.key_of_running(named, worker.work)] = worker
        waiting = {key: (queue, each) for key, queue, each in self._groups.waiting(world)}
        for key, (queue, request) in waiting.items():
            job = self._alive.get(key)
            if job is None and key not in running:
                came = self._arrival(world, request.pending_since)
                since = request.pending_since if self.latest is None else None
                self._begin(PastRequest(key, queue, request, came, since))
            elif job is not None and job.started is not None and key not in running:
                job.started = None  # the queue retries the request
        for key, worker in running.items():
            self._see_running(world, key, worker, now.machines.get(worker.machine or worker.name))
        free = {worker.name: worker for _, worker in now.workers}
        self._count_unseen(free)
        new_runs = Counter[_Run]() if self._before is None else _find_new_runs(self._before, now)
        unread = set(find_unread(world))
        for key, job in list(self._alive.items()):
            if not (key in waiting or key in running or unread & {job.queue, ""}):
                self._end(world, job, free.get(job.worker), new_runs)
        self._groups.forget()

    def _count_unseen(self, workers: dict[str, Worker]) -> None:
        """Count the requests that workers finished unobserved since the previous observation."""
        seen = Counter(job.worker for job in self._alive.values() if job.started is not None)
        for _, earlier in self._before.workers if self._before else ():
            worker = workers.get(earlier.name)
            if worker is not None and worker.uses is not None and earlier.uses is not None:
                still = worker.running is not None and is_busy(worker)
                ended = max(0, seen[worker.name] - still)
                self.unseen += max(0, worker.uses - earlier.uses - ended)

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

    def _begin(self, job: PastRequest) -> PastRequest:
        self._alive[job.key] = job
        self._add(job)
        return job

    def _see_running(
        self, world: World, key: str, worker: Worker, machine: Machine | None
    ) -> None:
        work = worker.work or Work()
        started = work.started_at or worker.since or world.time
        job = self._alive.get(key)
        if job is None:
            queue, _, own = key.partition("/")
            shared = {name: getattr(work, name) for name in SHARED}
            request = Request(id=own, pending_since=started, **shared)
            job = self._begin(PastRequest(key, queue, request, self._arrival(world, started)))
        if job.started is None or job.worker != worker.name:
            job.started, job.worker = started, worker.name
            job.pool = machine.pool if machine else worker.pool or ""
            job.type = machine.type if machine else ""

    def _end(
        self, world: World, job: PastRequest, worker: Worker | None, new_runs: "Counter[_Run]"
    ) -> None:
        before = self.latest or world.time
        expected = job.request.expected_seconds
        about = (job.request.task, job.request.package or "")
        if job.started is not None:
            job.seconds = _seconds(job.started, _end_time(worker, before, world.time))
        elif fitting := [run for run, left in new_runs.items() if left > 0 and run[:2] == about]:
            run = min(fitting)
            new_runs[run] -= 1
            _, _, job.type, job.seconds = run
        elif expected is not None and expected <= _seconds(before, world.time):
            job.seconds = expected
        else:
            job.withdrawn = world.time
        job.is_done = True
        del self._alive[job.key]


_Run = tuple[str, str, str, int]
"""Task, package, machine and seconds of a run that a queue's history has."""


def _find_new_runs(before: _Moment, now: _Moment) -> Counter[_Run]:
    """Count the runs that the queues' histories have only in the later observation."""
    found: Counter[_Run] = Counter()
    for about, seconds in now.runs.items():
        new = Counter(seconds) - Counter(before.runs.get(about, ()))
        found.update({(*about, each): times for each, times in new.items()})
    return found


def _attempts(before: _Moment, now: _Moment) -> Iterator[Refused]:
    """Yield the creations that were refused or succeeded since the observation before."""
    known = {(each.worker, each.at): each.result for each in before.world.attempts}
    for each in now.world.attempts:
        failed = each.result in _TRIED_FOR_NOTHING
        is_new = known.get((each.worker, each.at)) != each.result
        if is_new and (failed or each.result in ("starting", "registered")):
            # A late discovery gets the current time, because events are in order of time.
            at = max(each.at, before.world.time)
            yield Refused(at, each.pool, each.type, each.market, is_over=not failed)


def _boots(before: _Moment, now: _Moment) -> Iterator[BootDuration]:
    """Yield the boot duration of each machine that registered since the observation before."""
    for name, machine in before.machines.items():
        worker = None if name in before.registered else now.registered.get(name)
        is_same = now.machines.get(name, machine).id == machine.id
        if worker is None or machine.created_at is None or not is_same:
            continue
        started = worker.work.started_at if worker.work else None
        since = worker.connected_since or started or worker.since or now.world.time
        if before.world.time <= since <= now.world.time:
            seconds = _seconds(machine.created_at, since)
            yield BootDuration(now.world.time, machine.pool, machine.type, seconds)


def _spot(before: _Moment, now: _Moment) -> Iterator[Lost]:
    """Yield the lifetime of the spot machines before, and the number lost while busy."""
    # While a provider is unreadable, no machine counts as deleted.
    has_unknown = any(isinstance(each, Unknown) for each in now.world.providers.values())
    if before.spot and not has_unknown:
        between = _seconds(before.world.time, now.world.time)
        lost = sum(busy and name not in now.machines for name, busy in before.spot.items())
        yield Lost(now.world.time, between * len(before.spot), lost)


_NOT_SAID = Unknown(unknown="the simulation has its own")
_EPOCH = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


def _end_time(worker: Worker | None, before: datetime, now: datetime) -> datetime:
    """Return the end of work that ran in the previous observation and no longer runs."""
    if worker is not None:
        began = worker.work.started_at if worker.work and is_busy(worker) else worker.since
        if began is not None and before <= began <= now:
            return began
    return now


def _seconds(since: datetime, until: datetime) -> int:
    return max(1, int((until - since).total_seconds()))


_Likeness = tuple[str, tuple[str, ...], tuple[str, ...], int, str | None, str | None, int | None]
_Hidden = dict[_Likeness, list[tuple[str, Request]]]
"""Key of a group of equal requests to its unreported requests, oldest first."""


class Groups:
    """The waiting requests in groups of equal requests, with an identity for each request."""

    def __init__(self, alive: Collection[str]) -> None:
        """Start empty. `alive` is a live view of the keys of waiting and running requests."""
        self._alive = alive
        self._hidden: defaultdict[str, _Hidden] = defaultdict(dict)
        self._keys: dict[str, str] = {}
        """`queue/id` to the key that the request had before the queue reported its id."""
        self._numbers = count(1)
        self._before: datetime | None = None

    def key_of_running(self, named: str, work: Work | None) -> str:
        """Return the key of a running request. `named` is its `queue/id`."""
        if self._is_unknown(named) and work is not None:
            for hidden in self._hidden[named.partition("/")[0]].values():
                request = hidden[0][1] if hidden else None
                if request and (request.task, request.required) == (work.task, work.required):
                    self._keys[named], _ = hidden.pop(0)
                    break
        return self._keys.get(named, named)

    def waiting(self, world: World) -> Iterator[tuple[str, str, Request]]:
        """Yield (key, queue, request) for each waiting request of an observation."""
        for queue, demand in world.demands():
            known, self._hidden[queue] = self._hidden[queue], {}
            alike: defaultdict[_Likeness, list[Request]] = defaultdict(list)
            for each in demand.requests:
                about = (each.task, each.required, each.provided, each.priority)
                whose = (each.requester, each.owner, each.deadline_seconds)
                alike[*about, *whose].append(each)
            for likeness, group in alike.items():
                hidden = known.get(likeness, [])
                for each in group:
                    named = f"{queue}/{each.id}"
                    since = each.pending_since
                    is_old = since is not None and self._before and since <= self._before
                    if hidden and is_old and self._is_unknown(named):
                        self._keys[named], _ = hidden.pop(0)
                    yield self._keys.get(named, named), queue, each
                more = sum(each.count for each in group) - len(group)
                del hidden[: max(0, len(hidden) - more)]
                turns = range(len(hidden) + 1, more + 1)
                hidden += [self._create_request(world, queue, group[0], nth) for nth in turns]
                self._hidden[queue][likeness] = hidden
                yield from ((key, queue, each) for key, each in hidden)
        self._before = world.time

    def forget(self) -> None:
        """Forget the ids of requests that no longer wait or run."""
        self._keys = {named: key for named, key in self._keys.items() if key in self._alive}

    def _is_unknown(self, named: str) -> bool:
        return named not in self._keys and named not in self._alive

    def _create_request(
        self, world: World, queue: str, oldest: Request, nth: int
    ) -> tuple[str, Request]:
        """Return an unreported request of a group: number `nth` after the oldest request."""
        since = oldest.pending_since
        if since is not None:
            if self._before is not None:
                since = min(max(since, self._before), world.time)
                since += (world.time - since) / 2
            # A queue serves its oldest request before requests of the same time.
            since += timedelta(microseconds=nth)
        name = f"{oldest.id}#{next(self._numbers)}"
        return f"{queue}/{name}", oldest.altered(id=name, count=1, pending_since=since)
