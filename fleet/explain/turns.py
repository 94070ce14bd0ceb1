"""The start of each request that limits on tags or queues stop.

In service order, a request takes the place of the work that counts to its limits and ends first.
Work of other users, which does not count to the limit, is no reason to wait.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
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


_UNUSED = CountedWork(0, "", "")
"""The part of a limit that no work uses."""


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

    @property
    def counted(self) -> list[CountedWork]:
        """Return the work that counts, without work of unknown payers if the limit has a payer."""
        if self.use.limit.of == "total":
            return [*self.works]
        return [*self.works[: len(self.use.workers[0])], *self.works[self.use.taken :]]

    @property
    def is_later(self) -> bool:
        """Return True if only work of unknown payers counts now, and the payer's build is next."""
        is_total = self.use.limit.of == "total"
        return not (is_total or self.first is None or self.first in self.works or self.counted)


def _find_stopped(plan: Plan) -> dict[str, datetime | None]:
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


class _LimitLine:
    """The work that counts to one limit of one payer, and the known ends."""

    def __init__(self, use: Use, works: Iterable[CountedWork]) -> None:
        self.use, self.works = use, tuple(works)
        ends = sorted(each for each in self.works if each.end is not None)
        unused = use.limit.most - len(self.works)
        needed = min(unused, sum(len(group.requests) for group in use.groups))
        # More work may count than the limit permits.
        self.ends = [*[_UNUSED] * needed, *ends[max(0, -unused) :]]

    @property
    def is_full(self) -> bool:
        return not self.ends or bool(self.ends[0].worker)


def find_turns(
    plan: Plan, list_uses: Callable[[], Iterable[Use]], found: Forecast, assumed: int | None = None
) -> dict[str, LimitTurn]:
    """Return the turn of each request that limits stop, in service order.

    Work of unknown duration takes `assumed` seconds; if None, its end is unknown.
    """
    stopped = {key: at for key, at in _find_stopped(plan).items() if key not in found.starts}
    requests: dict[str, tuple[Ordered, list[_LimitLine]]] = {}
    for use, works in _count_works(plan, list_uses() if stopped else (), found):
        line = _LimitLine(use, works)
        for each in (each for group in use.groups for each in group.requests):
            if each.key in stopped:
                requests.setdefault(each.key, (each, []))[1].append(line)
    turns = {}
    for request, lines in sorted(requests.values(), key=lambda each: each[0].order):
        full = [line for line in lines if line.is_full]
        if not full:
            continue
        moment = stopped[request.key]
        if not all(line.ends for line in lines):
            line = next(line for line in lines if not line.ends)
            turns[request.key] = LimitTurn(line.use, line.works, is_alone=moment == plan.time)
            continue
        first, last = max((heappop(line.ends), number) for number, line in enumerate(lines))
        standing, start = found.standing.get(first.worker), first.end or 0
        seconds = request.seconds_on(standing.alike[2]) if standing else request.seconds
        seconds = assumed if seconds is None else seconds
        end = None if seconds is None else start + seconds
        is_alone = moment is not None and moment <= plan.time + timedelta(seconds=start)
        turns[request.key] = LimitTurn(lines[last].use, lines[last].works, first, end, is_alone)
        for line in lines if end is not None else ():
            heappush(line.ends, CountedWork(end, first.worker, request.key))
    return turns


def _count_works(
    plan: Plan, uses: Iterable[Use], found: Forecast
) -> Iterator[tuple[Use, list[CountedWork]]]:
    """Yield each use of a limit with the work that counts: running, then served requests."""
    ways = (way for s in plan.signatures for way in (s.by_worker, s.by_create))
    served = {key: worker for way in ways for key, worker in way.items()}
    served |= {key: each.worker for each in list_postponed(plan) for key in each.serves}
    running = {each.worker: each.running or "" for each in plan.workers}
    for use in uses:
        works = []
        for name in chain(*use.workers):
            worker = found.standing.get(name)
            end = worker.free_in if worker and worker.works else None
            works.append(CountedWork(end, name, running.get(name, ""), is_running=True))
        keys = (each.key for group in use.groups for each in group.requests)
        works += [CountedWork(found.ends.get(k), served[k], k) for k in keys if k in served]
        yield use, works
