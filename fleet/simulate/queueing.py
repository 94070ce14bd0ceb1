"""Match waiting requests to free workers as the queues do, one event at a time.

A free worker gets the first fitting request of its queues. A new request gets the free worker that
is first by name among the fitting ones. Equal workers and equal requests are matched only once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from heapq import heappop, heappush
from typing import NamedTuple

from fleet.model.facts import (
    Demand,
    Machine,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.planner.demand import Order, judge_of, ordered
from fleet.planner.images import images_by_pool
from fleet.schema.model import Fleet, StaticPool, TicketQueue, serves_queue
from fleet.schema.pools import Market
from fleet.simulate.recorded_demand import PastRequest
from fleet.tagrules.derive import context_of, queue_context
from fleet.tagrules.offers import (
    Ask,
    Offer,
    offer_of_pool,
    offer_of_tags,
    offer_of_worker,
    satisfies,
)

_MAX_FITS = 200_000
"""Maximum cached pairs of a requirement and a class of workers; they use about 40 MB."""
_UNAVAILABLE_STATES = frozenset({WorkerState.DISABLED, WorkerState.DISCONNECTED, WorkerState.DEAF})


@dataclass(slots=True, eq=False)
class Box:
    """A machine with its worker, or a worker without a machine (for example in a static pool)."""

    name: str
    pool: str
    registry: str
    """The queue or provider at which the worker registers."""
    provider: str = ""
    type: str = ""
    market: Market = "on-demand"
    inputs: WorkerInputs | None = None
    machine: Machine | None = None
    worker: Worker | None = None
    """The worker; None before the queue or provider knows the worker."""
    job: PastRequest | None = None
    """The job that the worker runs; None if idle, or if the recording has no details."""
    number: int = -1
    """Index of the worker's class of interchangeable workers; -1 before classification."""
    busy_seconds: int = 0
    """Busy time in seconds, until the end of the last job."""

    @property
    def is_registered(self) -> bool:
        """Return whether the worker has registered."""
        return self.worker is not None and self.worker.state is not WorkerState.ENROLLED

    @property
    def takes_work(self) -> bool:
        """Return whether the worker can run work; True if the worker does not exist yet."""
        return self.worker is None or self.worker.state not in _UNAVAILABLE_STATES

    @property
    def running(self) -> str | None:
        """Return the id of the request that the worker runs; None if idle."""
        return self.worker.running if self.worker else None

    @property
    def is_free(self) -> bool:
        """Return whether the worker accepts work now."""
        worker = self.worker
        return (
            worker is not None
            and worker.state is WorkerState.IDLE
            and worker.running is None
            and not worker.draining
            and self.number >= 0
        )


class Class(NamedTuple):
    """A class of interchangeable workers: all fit the same requests."""

    queues: frozenset[str]
    offer: Offer


@dataclass
class Line:
    """Waiting requests of one queue with equal requirements, in the order of the queue."""

    queue: str
    ask: Ask
    heap: list[tuple[Order, str]] = field(default_factory=list)
    """Heap of the requests; requests that no longer wait are skipped later."""


class Queueing:
    """The waiting requests of all queues, and the free workers."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.waiting: dict[str, dict[str, PastRequest]] = {name: {} for name in fleet.queues}
        self.desks = {n for n, q in fleet.queues.items() if isinstance(q, TicketQueue)}
        """Names of ticket queues, whose requests fleet itself assigns."""
        self._orders: dict[str, Order] = {}
        self._lines: dict[tuple[str, Ask], Line] = {}
        self._free: defaultdict[int, dict[str, Box]] = defaultdict(dict)
        self._classes: list[Class] = []
        self._numbers: dict[object, int] = {}
        self._fits: dict[tuple[Ask, int], bool] = {}
        self._rules_of: date | None = None

    def learn(self, facts: World) -> None:
        """Apply new facts about rules and images; afterwards, `classify` all workers again."""
        self._facts = facts
        self._contexts = {
            name: context_of(self._fleet, name, demand) for name, demand in facts.demands()
        }
        self._no_context = queue_context(Demand(read_at=facts.time))
        self._images = images_by_pool(self._fleet, facts, {})
        self._rules_of = None
        self._numbers.clear()
        self._lines.clear()
        self._fits.clear()

    def queue_again(self, now: datetime) -> None:
        """Queue all waiting requests again, after a change of rules or images."""
        for job in [job for jobs in self.waiting.values() for job in jobs.values()]:
            self._queue(job, now)

    @property
    def free(self) -> Iterator[Box]:
        """Yield the free workers."""
        for boxes in self._free.values():
            yield from boxes.values()

    def enter(self, job: PastRequest, now: datetime) -> Box | None:
        """Queue a request; return the free worker that it gets, or None."""
        self.waiting[job.queue][job.key] = job
        line = self._queue(job, now)
        fitting = (
            boxes[min(boxes)]
            for number, boxes in self._free.items()
            if line is not None and boxes and self._is_fitting(line, number)
        )
        return min(fitting, key=lambda box: box.name, default=None)

    def leave(self, job: PastRequest) -> bool:
        """Remove a request from its queue; return False if it did not wait."""
        self._orders.pop(job.key, None)
        return self.waiting[job.queue].pop(job.key, None) is not None

    def first_for(self, box: Box) -> PastRequest | None:
        """Return the first fitting request in the queues of a worker; None if none fits."""
        first: tuple[Order, str] | None = None
        found: Line | None = None
        for key, line in list(self._lines.items()):
            heap, waiting = line.heap, self.waiting[line.queue]
            while heap and heap[0][1] not in waiting:
                heappop(heap)
            if not heap:
                del self._lines[key]
            elif (first is None or heap[0] < first) and self._is_fitting(line, box.number):
                first, found = heap[0], line
        return None if first is None or found is None else self.waiting[found.queue][first[1]]

    def add_free(self, box: Box) -> None:
        """Add a worker to the free workers."""
        self._free[box.number][box.name] = box

    def remove_free(self, box: Box) -> None:
        """Remove a worker from the free workers."""
        if box.number >= 0:
            self._free[box.number].pop(box.name, None)

    def classify(self, box: Box) -> None:
        """Determine the class of a worker from its queues and its tags."""
        self.remove_free(box)
        provides = box.worker.provides if box.worker else ()
        requires = box.worker.requires if box.worker else ()
        shape = (box.pool, box.registry, provides, requires)
        if shape not in self._numbers:
            self._numbers[shape] = self._class_of(box, provides, requires)
        box.number = self._numbers[shape]
        if box.is_free:
            self.add_free(box)

    def tags_of(self, box: Box) -> Collection[str]:
        """Return the tags that a machine's worker provides."""
        return self._classes[box.number].offer.provides

    def _class_of(self, box: Box, provides: tuple[str, ...], requires: tuple[str, ...]) -> int:
        fleet = self._fleet
        pool = fleet.pools.get(box.pool)
        queues = frozenset(q for q in fleet.queues if pool is None or serves_queue(pool, q))
        if box.registry in fleet.queues and box.registry not in self.desks:
            queues &= {box.registry}
        if pool is None or isinstance(pool, StaticPool):
            offer = offer_of_tags(fleet, provides, requires)
        elif box.worker is not None and provides:
            offer = offer_of_worker(fleet, box.pool, self._images[box.pool], box.worker)
        else:
            offer = offer_of_pool(fleet, box.pool, self._images[box.pool])
        found = Class(queues, offer)
        if found not in self._classes:
            self._classes.append(found)
        return self._classes.index(found)

    def _queue(self, job: PastRequest, now: datetime) -> Line | None:
        """Add a request to its line; return None if the queue assigns no worker to it."""
        if self._rules_of != now.date():
            self._rules_of = now.date()
            self._judge = judge_of(self._fleet, self._facts.altered(time=now))
        self._orders[job.key] = ordered(job.queue, job.request)[0].order
        asking = self._judge.ask_of_alike(
            job.request, self._contexts.get(job.queue, self._no_context)
        )
        if asking.held or job.queue in self.desks:
            return None
        key = (job.queue, asking.ask)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(job.queue, asking.ask)
        heappush(line.heap, (self._orders[job.key], job.key))
        return line

    def _is_fitting(self, line: Line, number: int) -> bool:
        found = self._fits.get((line.ask, number))
        if found is None:
            if len(self._fits) > _MAX_FITS:
                self._fits.clear()
            offer = self._classes[number].offer
            found = self._fits[line.ask, number] = satisfies(line.ask, offer)
        return found and line.queue in self._classes[number].queues
