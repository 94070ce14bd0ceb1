"""The start of each request that limits on tags or queues stop.

In service order, a request takes the place of the work that counts to its limits and ends first.
Work of other users, which does not count to the limit, is no reason to wait.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

from fleet.model.decisions import NoMachineReason
from fleet.model.plan import Plan
from fleet.planner.demand import Ordered
from fleet.planner.forecast import Forecast, list_postponed
from fleet.planner.limits import Use

_COUNTED = frozenset({NoMachineReason.TAG_LIMIT, NoMachineReason.QUEUE_LIMIT})
"""Reasons to wait that end when counted work ends."""
ENDING = frozenset({*_COUNTED, NoMachineReason.AT_MAX, NoMachineReason.AT_MAX_STARTING})
"""Reasons to wait that end when the worker of counted work is free."""


class CountedWork(NamedTuple):
    """Work that counts to a limit, with its end."""

    end: int | None
    """Seconds from now; None if unknown."""
    worker: str
    work: str
    """A waiting request as `queue/id`, or the id of running work; empty if unknown."""
    is_running: bool = False


class LimitTurn(NamedTuple):
    """The limit that stops a request, and the work that has to end before its start."""

    use: Use
    works: tuple[CountedWork, ...]
    """The work that counts to the limit now."""
    first: CountedWork | None = None
    """The work in whose place the request starts; None if its end is unknown."""
    end: int | None = None
    """The end of the request in seconds from now; None if unknown."""
    is_alone: bool = True
    """False if something else also stops the request, such as a budget or another pool."""


def find_stopped(plan: Plan) -> dict[str, datetime | None]:
    """Map each request that a limit stops to the time from which nothing else stops it.

    None if that time is unknown.
    """
    found: dict[str, datetime | None] = {}
    for unserved in plan.unserved:
        pools = {p for d in unserved.decisions if d.code in _COUNTED for p in d.subject}
        if not pools:
            continue
        others = [d.figures.until for d in unserved.decisions if d.code not in ENDING]
        ends = [until for until in others if until is not None]
        is_known = len(ends) == len(others) and pools == {each.pool for each in unserved.blocked}
        found |= dict.fromkeys(unserved.requests, max([plan.time, *ends]) if is_known else None)
    return found


def find_turns(
    plan: Plan, uses: Iterable[Use], found: Forecast, assumed: int | None = None
) -> dict[str, LimitTurn]:
    """Return the turn of each request that limits stop, in service order.

    Work of unknown duration takes `assumed` seconds; if None, its end is unknown.
    """
    known = _CountedWorks(plan)
    lines = [_LimitLine(known, use, found) for use in uses]
    stopped = {key: at for key, at in find_stopped(plan).items() if key not in found.starts}
    requests: dict[str, tuple[Ordered, list[_LimitLine]]] = {}
    for line in lines:
        for each in (each for group in line.use.groups for each in group.requests):
            if each.key in stopped:
                requests.setdefault(each.key, (each, []))[1].append(line)
    turns = {}
    for request, counting in sorted(requests.values(), key=lambda each: each[0].order):
        full = [line for line in counting if line.room <= 0]
        if not full:
            continue
        moment = stopped[request.key]
        if not all(line.ends for line in full):
            line = next(line for line in full if not line.ends)
            turns[request.key] = LimitTurn(line.use, line.works, is_alone=moment == plan.time)
            continue
        first, last = max((heappop(line.ends), n) for n, line in enumerate(full))
        work, line = CountedWork(*first), full[last]
        standing = found.standing.get(work.worker)
        seconds = request.seconds_on(standing.alike[2]) if standing else request.seconds
        seconds = assumed if seconds is None else seconds
        end = None if seconds is None else first[0] + seconds
        is_alone = moment is not None and moment <= plan.time + timedelta(seconds=first[0])
        turns[request.key] = LimitTurn(line.use, line.works, work, end, is_alone)
        for other in counting:
            other.room -= other not in full
            if end is not None:
                heappush(other.ends, (end, work.worker, request.key, False))
    return turns


class _LimitLine:
    """The work that counts to one limit of one payer, and the known ends."""

    def __init__(self, known: "_CountedWorks", use: Use, found: Forecast) -> None:
        self.use = use
        self.works = (*known.list_running(use, found), *known.list_served(use, found))
        self.room = use.limit.most - len(self.works)
        self.ends = [(w.end, *w[1:]) for w in self.works if w.end is not None]
        heapify(self.ends)
        for _ in range(min(-self.room, len(self.ends))):
            heappop(self.ends)  # more work counts than the limit permits


class _CountedWorks:
    """The worker of each request, also one that a later run creates, and each worker's work."""

    def __init__(self, plan: Plan) -> None:
        ways = (way for s in plan.signatures for way in (s.by_worker, s.by_create))
        self._served = {key: worker for way in ways for key, worker in way.items()}
        self._served |= {key: each.worker for each in list_postponed(plan) for key in each.serves}
        self._running = {each.worker: each.running or "" for each in plan.workers}

    def list_running(self, use: Use, found: Forecast) -> Iterator[CountedWork]:
        """Yield the running work that counts to a limit."""
        for name in chain(*use.workers):
            worker = found.standing.get(name)
            end = worker.free_in if worker and worker.works else None
            yield CountedWork(end, name, self._running.get(name, ""), is_running=True)

    def list_served(self, use: Use, found: Forecast) -> Iterator[CountedWork]:
        """Yield the requests with a worker that count to a limit."""
        for request in (each for group in use.groups for each in group.requests):
            worker = self._served.get(request.key)
            if worker is not None:
                yield CountedWork(found.ends.get(request.key), worker, request.key)
