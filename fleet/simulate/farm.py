"""The scripted world that executes a plan: machines boot, a queue assigns, work ends.

Only systems outside of fleet are simulated. Unchanged facts since the last observation are the
same objects, so that the cost of observing is proportional to the changes.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from hashlib import sha256
from heapq import heappop, heappush
from itertools import count
from math import log
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from fleet.explain.recorded_demand import ALIKE, Booted, Job, Lost, Refused
from fleet.model.facts import (
    Attempt,
    AttemptResult,
    Demand,
    Ledger,
    Listing,
    Machine,
    MachineState,
    Market,
    QueueReading,
    Request,
    Stack,
    Unknown,
    Work,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
    market_of,
)
from fleet.model.plan import Create, Delete, Drain, Plan
from fleet.model.pool_limits import boot_of
from fleet.planner.demand import Order, judge_of, ordered
from fleet.planner.durations import USUAL, Durations, Kind, kind_at
from fleet.planner.images import images_by_pool
from fleet.planner.inventory import departures_after
from fleet.schema.model import Fleet, Pool, StaticPool, TicketQueue, serves_queue
from fleet.tagrules.context import context_of, queue_context
from fleet.tagrules.names import names_of
from fleet.tagrules.offers import (
    Ask,
    Offer,
    offer_of_pool,
    offer_of_tags,
    offer_of_worker,
    satisfies,
)

_LATEST_TRIES = 20
_LATEST_BOOTS = 50
_NO_STOCK_FOR = timedelta(minutes=30)
"""Assumed duration of a shortage after a refusal; fleet retries within this time."""
_RUNS = 5
_MOST_FITS = 200_000
_OFF = frozenset({WorkerState.DISABLED, WorkerState.DISCONNECTED, WorkerState.DEAF})
_SECOND = timedelta(seconds=1)


@dataclass(slots=True, eq=False)
class Box:
    """A machine with its worker, or a worker alone (of a static pool, or without a pool)."""

    name: str
    pool: str
    registry: str
    """The queue or provider where its worker registers."""
    since: datetime
    """Start of the worker's current state."""
    provider: str = ""
    type: str = ""
    market: Market = "on-demand"
    inputs: WorkerInputs | None = None
    machine: Machine | None = None
    worker: Worker | None = None
    """Its last observed state."""
    is_registered: bool = False
    takes_work: bool = True
    draining: bool = False
    uses: int | None = 0
    running: str | None = None
    job: Job | None = None
    without: Collection[str] = ()
    """Tags of the job that it drops here (`otherwise`)."""
    began: datetime | None = None
    alike: int = -1
    """Index in `Farm.classes`; -1: no class, and no work."""
    busy_seconds: int = 0
    """Total busy time, up to the end of its last work."""

    @property
    def is_free(self) -> bool:
        """Return whether it accepts work now."""
        is_idle = self.is_registered and self.running is None
        return is_idle and self.takes_work and not self.draining and self.alike >= 0


class Class(NamedTuple):
    """Interchangeable workers: each fits the same requests."""

    queues: frozenset[str]
    offer: Offer


@dataclass
class Line:
    """Requests of one queue with equal requirements, in the order of the queue."""

    queue: str
    ask: Ask
    heap: list[tuple[Order, str]] = field(default_factory=list)
    """Entries of requests that no longer wait are stale."""


class Starting(NamedTuple):
    """Work that started for the first time."""

    job: Job
    at: datetime


@dataclass
class Noted:
    """Observations since the last call of `forget`."""

    starts: list[Starting] = field(default_factory=list)
    withdrawn: list[Job] = field(default_factory=list)
    gone: list[tuple[Box, datetime, Literal["deleted", "taken"]]] = field(default_factory=list)
    created: list[Box] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Pool and machine type of creations that the provider refused."""
    assumed: int = 0
    """Jobs assumed to run for an hour."""
    scaled: int = 0
    """Jobs whose time was computed for another machine type."""
    unscaled: int = 0
    """Jobs assumed to have equal durations on another machine type."""


class Farm:
    """All systems outside of fleet."""

    def __init__(self, fleet: Fleet, world: World, seed: int) -> None:
        self.fleet = fleet
        self.now = self._start = world.time
        self._again: set[str] = set()
        """Jobs that started once and wait or run again: their machine was taken back."""
        self._today: date | None = None
        self.noted = Noted()
        self.boxes: dict[str, Box] = {}
        self.changed = True
        """A change was observed since this was last set to False."""
        self._seed = seed
        self._world = world
        self._heap: list[tuple[datetime, int, str, object, object]] = []
        self._numbers = count()
        self._waiting: dict[str, dict[str, Job]] = {name: {} for name in fleet.queues}
        self._orders: dict[str, Order] = {}
        self._lines: dict[tuple[str, Ask], Line] = {}
        self._free: defaultdict[int, dict[str, Box]] = defaultdict(dict)
        self._classes: list[Class] = []
        self._numbers_of: dict[object, int] = {}
        self._fits: dict[tuple[Ask, int], bool] = {}
        self._attempts: dict[tuple[str, str, str], deque[Attempt]] = {}
        self._boots: defaultdict[tuple[str, str], deque[int]] = defaultdict(
            lambda: deque(maxlen=_LATEST_BOOTS)
        )
        self._booted: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._out: dict[tuple[str, str, str], datetime] = {}
        self._spot_seconds = self._spot_lost = 0
        self._stacks: dict[str, Stack] = {}
        self._serials: defaultdict[str, int] = defaultdict(int)
        self._made = 0
        self._approved = dict(world.approved) if isinstance(world.approved, dict) else {}
        self._departures = world.departures
        self._runs = list(() if isinstance(world.runs, Unknown) else world.runs)
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._desks = {n for n, q in fleet.queues.items() if isinstance(q, TicketQueue)}
        self.learn(world)
        self._take_over(world)

    # External events

    def learn(self, facts: World) -> None:
        """Apply facts that fleet does not decide."""
        self._facts = facts
        self._durations = Durations(self.fleet, facts)
        self._contexts = {
            name: context_of(self.fleet, name, demand) for name, demand in facts.demands()
        }
        self._nothing = queue_context(Demand(read_at=facts.time))
        self._images = images_by_pool(self.fleet, facts, {})
        self._today = None  # rules are reloaded
        self._numbers_of.clear()
        for box in self.boxes.values():
            self._classify(box)
        self._queue_again()
        self.changed = True

    def boot_took(self, boot: Booted) -> None:
        """Record the boot time of a machine."""
        self._boots[boot.pool, boot.type].append(boot.seconds)

    def refuse(self, refused: Refused) -> None:
        """Record that a provider had no machine of a type, or has them again."""
        provider = self._provider_of(refused.pool)
        key = (provider, refused.type, refused.market)
        if refused.is_over:
            self._out.pop(key, None)
        else:
            self._out[key] = refused.at + _NO_STOCK_FOR

    def lose_spot(self, lost: Lost) -> None:
        """Record the rate at which spot machines are taken back."""
        self._spot_seconds += lost.seconds
        self._spot_lost += lost.lost

    def arrive(self, job: Job) -> None:
        """Queue a job, or continue it if it runs at the start of the history."""
        self.changed = True
        box = self.boxes.get(job.worker) if job.started and job.started <= self.now else None
        if box is not None and box.job is None and box.running is not None:
            box.job = job
            ends = (box.began or self.now) + timedelta(seconds=self._seconds_on(job, box))
            self._at(max(self.now + _SECOND, ends), "end", box, job)
            return
        if job.queue not in self._waiting:
            self.noted.withdrawn.append(job)
            return
        if job.withdrawn is not None:
            self._at(job.withdrawn, "withdraw", None, job)
        self._wait(job)

    def _wait(self, job: Job) -> None:
        """Queue a job for the first worker that fits."""
        self._waiting[job.queue][job.key] = job
        line = self._line_of(job)
        if line is None:
            return
        heappush(line.heap, (self._orders[job.key], job.key))
        number = self._first_free(line)
        if number is not None:
            name = min(self._free[number])
            self._begin(self._free[number][name], job)

    def advance(self, until: datetime) -> None:
        """Advance the time: machines boot, work ends, spot machines are taken back."""
        while self._heap and self._heap[0][0] <= until:
            at, _, kind, box, job = heappop(self._heap)
            self.now = at
            match kind:
                case "boot" if isinstance(box, Box) and self.boxes.get(box.name) is box:
                    self._register(box)
                case "end" if isinstance(box, Box) and box.job is job and job is not None:
                    self._end(box)
                case "take" if isinstance(box, Box) and self.boxes.get(box.name) is box:
                    self._take_back(box)
                case "withdraw" if isinstance(job, Job):
                    self._withdraw(job)
        self.now = until

    def forget(self) -> None:
        """Clear the observations."""
        self.noted = Noted()

    @property
    def never_started(self) -> Iterator[Job]:
        """Yield the waiting jobs that never started."""
        for jobs in self._waiting.values():
            yield from (job for key, job in jobs.items() if key not in self._again)

    @property
    def waits(self) -> int:
        """Return the number of waiting jobs."""
        return sum(map(len, self._waiting.values()))

    # Observations of fleet

    def observe(self, ledger: Ledger | Unknown) -> World:
        """Return the world as fleet would see it now."""
        self.changed = False
        by_registry: defaultdict[str, list[Worker]] = defaultdict(list)
        by_provider: defaultdict[str, list[Machine]] = defaultdict(list)
        for box in self.boxes.values():
            if box.worker is not None:
                by_registry[box.registry].append(box.worker)
            if box.machine is not None:
                by_provider[box.provider].append(box.machine)
        facts, now = self._facts, self.now
        return World.model_construct(
            format="fleet-world-1",
            fleet=self.fleet.fleet,
            time=now,
            queues={name: self._reading(name, tuple(by_registry[name])) for name in self._waiting},
            providers={
                name: self._listing(name, by_provider[name], by_registry[name])
                for name in sorted({*self.fleet.providers, *by_provider})
            },
            stacks=dict(self._stacks),
            bases=facts.bases,
            images=facts.images,
            ledger=ledger,
            attempts=tuple(each for tries in self._attempts.values() for each in tries),
            approved=dict(self._approved),
            orders=facts.orders,
            departures=self._departures,
            members=facts.members,
            runs=tuple(self._runs),
            delete_seconds=facts.delete_seconds,
            prices=facts.prices,
        )

    # Actions of fleet

    def carry_out(self, plan: Plan) -> None:
        """Carry out a plan, as far as the external systems allow."""
        departures = departures_after(self._departures, plan)
        for action in plan.actions:
            match action:
                case Create():
                    self._create(action)
                case Drain():
                    self._drain(action.worker)
                case Delete():
                    self._remove(action.worker, "deleted")
        for release in plan.releases:
            self._remove(release.worker, "deleted")
        for resume in plan.resumes:
            self._resume(resume.worker)
        self._departures = tuple(each for each in departures if each.worker in self.boxes)
        for approval in plan.approvals:
            if approval.passes:
                used = self._approved.get(approval.digest, 0)
                self._approved[approval.digest] = used + len(approval.passes)
        if self._desks:
            self._assign_tickets(plan)
        self._runs = [*self._runs[-_RUNS + 1 :], self.now]

    def _assign_tickets(self, plan: Plan) -> None:
        """Assign the plan's machines to tickets: fleet itself assigns these."""
        for signature in plan.signatures:
            if signature.queue not in self._desks:
                continue
            for key, worker in signature.by_worker.items():
                job, box = self._waiting[signature.queue].get(key), self.boxes.get(worker)
                if job is not None and box is not None and box.is_free:
                    provides = self._classes[box.alike].offer.provides
                    self._begin(box, job, without={*signature.dropped} - provides)

    def _create(self, action: Create) -> None:
        inputs, market = action.inputs, market_of(action.inputs)
        provider = self._provider_of(action.pool)
        key = (action.pool, inputs.type, market)
        out_until = self._out.get((provider, inputs.type, market))
        is_out = out_until is not None and self.now < out_until
        result: AttemptResult = "out-of-stock" if is_out else "starting"
        tries = self._attempts.setdefault(key, deque(maxlen=_LATEST_TRIES))
        tries.append(
            Attempt.model_construct(
                pool=action.pool,
                worker=action.worker,
                type=inputs.type,
                market=market,
                image=inputs.image,
                at=self.now,
                result=result,
            )
        )
        self.changed = True
        if is_out:
            self.noted.refused.append((action.pool, inputs.type))
            return
        self._made += 1
        registry = action.registry or provider
        box = Box(action.worker, action.pool, registry, self.now, provider, inputs.type, market)
        box.inputs = inputs
        box.machine = Machine.model_construct(
            name=action.worker,
            id=f"simulated-{self._made}",
            pool=action.pool,
            type=inputs.type,
            state=MachineState.STARTING,
            created_at=self.now,
            image=inputs.image,
            digest=inputs.labels.get("digest"),
            address=_ADDRESS,
        )
        if action.registry:
            box.worker = self._worker_of(box, WorkerState.ENROLLED)
        self.boxes[box.name] = box
        self._restack(box.pool)
        self.noted.created.append(box)
        self._at(self.now + timedelta(seconds=self._boot_seconds(box)), "boot", box, None)
        if market == "spot":
            self._schedule_loss(box)

    def _schedule_loss(self, box: Box) -> None:
        """Schedule the loss of a spot machine: by the rate of the history, and the seed."""
        if not self._spot_lost:
            return
        said = f"{self._seed} {box.name} {self.now.isoformat()}".encode()
        share = (int.from_bytes(sha256(said).digest()[:8]) + 1) / (2**64 + 1)
        mean = self._spot_seconds / self._spot_lost
        self._at(self.now + timedelta(seconds=int(-log(share) * mean) + 1), "take", box, None)

    def _boot_seconds(self, box: Box) -> int:
        recorded = self._boots.get((box.pool, box.type))
        if recorded:
            turn = self._booted[box.pool, box.type]
            self._booted[box.pool, box.type] += 1
            return recorded[turn % len(recorded)]
        pool = self.fleet.pools.get(box.pool)
        return boot_of(pool).expected if isinstance(pool, Pool) else 0

    def _drain(self, name: str) -> None:
        box = self.boxes.get(name)
        if box is not None and not box.draining:
            self._busy(box)
            box.draining = True
            if box.running is None:
                box.since = self.now
            self._record_state(box)

    def _resume(self, name: str) -> None:
        box = self.boxes.get(name)
        if box is not None and box.draining:
            box.draining = False
            if box.running is None:
                box.since = self.now
            self._classify(box)
            self._record_state(box)

    def _remove(self, name: str, how: Literal["deleted", "taken"]) -> None:
        box = self.boxes.pop(name, None)
        if box is None:
            return
        self.changed = True
        self._busy(box)
        self._restack(box.pool)
        self.noted.gone.append((box, self.now, how))

    # Transitions of machines and work

    def _register(self, box: Box) -> None:
        box.is_registered, box.since = True, self.now
        if box.machine is not None:
            box.machine = box.machine.altered(state=MachineState.RUNNING, misses=0, was_ready=True)
        tries = self._attempts.get((box.pool, box.type, box.market), deque[Attempt]())
        for nth, each in enumerate(tries):
            if each.worker == box.name and each.result == "starting":
                tries[nth] = each.altered(result="registered")
        self._classify(box)
        self._idle(box)

    def _end(self, box: Box) -> None:
        if box.job is not None:
            self._again.discard(box.job.key)
        self._stop(box)
        box.since = self.now
        box.uses = None if box.uses is None else box.uses + 1
        self._idle(box)

    def _stop(self, box: Box) -> None:
        since = max(box.began or self.now, self._start)
        box.busy_seconds += int((self.now - since).total_seconds())
        box.job = box.began = box.running = None

    def _take_back(self, box: Box) -> None:
        """Take a spot machine back; its job waits again, and restarts from the beginning."""
        job = box.job
        self._stop(box)
        self._remove(box.name, "taken")
        if job is not None and job.queue:
            self._again.add(job.key)
            self._wait(job)

    def _withdraw(self, job: Job) -> None:
        if self._waiting[job.queue].pop(job.key, None) is not None:
            self._orders.pop(job.key, None)
            self.changed = True
            if job.key not in self._again:
                self.noted.withdrawn.append(job)

    def _idle(self, box: Box) -> None:
        """Assign to a worker the first fitting request in its queues, or let it wait."""
        job = self._first_for(box.alike) if box.is_free else None
        if job is not None:
            self._begin(box, job)
            return
        self._record_state(box)
        if box.is_free:
            self._free[box.alike][box.name] = box

    def _begin(self, box: Box, job: Job, without: Collection[str] = ()) -> None:
        self._busy(box)
        del self._waiting[job.queue][job.key]
        self._orders.pop(job.key, None)
        box.job, box.running, box.began, box.since = job, job.request.id, self.now, self.now
        box.without = without
        self._record_state(box)
        self._at(self.now + timedelta(seconds=self._seconds_on(job, box)), "end", box, job)
        if job.key not in self._again:
            self.noted.starts.append(Starting(job, self.now))

    def _busy(self, box: Box) -> None:
        if box.alike >= 0:
            self._free[box.alike].pop(box.name, None)

    def _at(self, at: datetime, kind: str, box: Box | None, job: Job | None) -> None:
        heappush(self._heap, (at, next(self._numbers), kind, box, job))

    def _seconds_on(self, job: Job, box: Box) -> int:
        """Return the duration of a job on a machine, possibly of another type than its own."""
        expected, timing = self._durations.of(job.queue, job.request)
        kind = self._kind(box.pool, box.type)
        if job.seconds is None:
            if timing is not None:
                expected = timing.on(kind, expected)
            if expected is None:
                self.noted.assumed += 1
                expected = USUAL
            seconds = max(expected, job.least)
        else:
            seconds = job.seconds
            if job.type and box.type and job.type != box.type:
                there = timing.on(kind, seconds) if timing else None
                here = timing.on(self._kind(job.pool, job.type), seconds) if timing else None
                if there and here and there != here:
                    self.noted.scaled += 1
                    seconds = max(1, -(-seconds * there // here))
                else:
                    self.noted.unscaled += 1
        if timing is not None and timing.deadline is not None:
            seconds = min(seconds, timing.deadline)
        return max(1, seconds)

    def _kind(self, pool: str, name: str) -> Kind:
        key = (pool, name)
        if key not in self._kinds:
            self._kinds[key] = kind_at(self.fleet, pool, name)
        return self._kinds[key]

    # Matching of requests and workers

    def _line_of(self, job: Job) -> Line | None:
        """Return the line of a job; None if its queue assigns it to no worker."""
        if self._today != self.now.date():
            self._today = self.now.date()
            facts = self._facts.altered(time=self.now)
            self._judge = judge_of(self.fleet, facts)
        self._orders[job.key] = ordered(job.queue, job.request)[0].order
        asking = self._judge.ask_of_alike(
            job.request, self._contexts.get(job.queue, self._nothing)
        )
        if asking.held or job.queue in self._desks:
            return None
        key = (job.queue, asking.ask)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(job.queue, asking.ask)
        return line

    def _queue_again(self) -> None:
        """Queue all waiting jobs again after a change of rules or images."""
        self._lines.clear()
        self._fits.clear()
        for job in [job for jobs in self._waiting.values() for job in jobs.values()]:
            line = self._line_of(job)
            if line is not None:
                heappush(line.heap, (self._orders[job.key], job.key))
        for box in [box for boxes in self._free.values() for box in boxes.values()]:
            if box.is_free:
                self._busy(box)
                self._idle(box)

    def _fitting(self, ask: Ask, queue: str, number: int) -> bool:
        found = self._fits.get((ask, number))
        if found is None:
            if len(self._fits) > _MOST_FITS:
                self._fits.clear()
            found = self._fits[ask, number] = satisfies(ask, self._classes[number].offer)
        return found and queue in self._classes[number].queues

    def _first_free(self, line: Line) -> int | None:
        """Return the class whose first free worker is first by name; None: no worker fits."""
        fitting = (
            number
            for number, boxes in self._free.items()
            if boxes and self._fitting(line.ask, line.queue, number)
        )
        return min(fitting, key=lambda number: min(self._free[number]), default=None)

    def _first_for(self, number: int) -> Job | None:
        """Return the first job in the queues for workers of a class; None: no job fits."""
        first: tuple[Order, str] | None = None
        found: Line | None = None
        for key, line in list(self._lines.items()):
            heap = line.heap
            waiting = self._waiting[line.queue]
            while heap and heap[0][1] not in waiting:
                heappop(heap)
            if not heap:
                del self._lines[key]
            elif (first is None or heap[0] < first) and self._fitting(
                line.ask, line.queue, number
            ):
                first, found = heap[0], line
        return None if first is None or found is None else self._waiting[found.queue][first[1]]

    def _classify(self, box: Box) -> None:
        """Determine the offer of a worker, and its queues."""
        self._busy(box)
        provides = box.worker.provides if box.worker else ()
        requires = box.worker.requires if box.worker else ()
        shape = (box.pool, box.registry, provides, requires)
        if shape not in self._numbers_of:
            self._numbers_of[shape] = self._class_of(box, provides, requires)
        box.alike = self._numbers_of[shape]
        if box.is_free:
            self._free[box.alike][box.name] = box

    def _class_of(self, box: Box, provides: tuple[str, ...], requires: tuple[str, ...]) -> int:
        pool = self.fleet.pools.get(box.pool)
        if pool is not None:
            queues = frozenset(q for q in self.fleet.queues if serves_queue(pool, q))
        else:
            queues = frozenset(self.fleet.queues)
        if box.registry in self.fleet.queues and box.registry not in self._desks:
            queues &= {box.registry}
        if pool is None or isinstance(pool, StaticPool):
            offer = offer_of_tags(self.fleet, provides, requires)
        elif box.worker is not None and provides:
            offer = offer_of_worker(self.fleet, box.pool, self._images[box.pool], box.worker)
        else:
            offer = offer_of_pool(self.fleet, box.pool, self._images[box.pool])
        found = Class(queues, offer)
        if found not in self._classes:
            self._classes.append(found)
        return self._classes.index(found)

    # Values

    def _record_state(self, box: Box) -> None:
        """Record the visible state of a worker."""
        self.changed = True
        if not box.is_registered:
            return
        if box.worker is not None and not box.takes_work:
            return
        state = WorkerState.IDLE if box.running is None else WorkerState.BUSY
        if box.worker is None or box.worker.state is WorkerState.ENROLLED:
            box.worker = self._worker_of(box, state)
        else:
            box.worker = box.worker.altered(**self._registry_fields(box, state))

    def _worker_of(self, box: Box, state: WorkerState) -> Worker:
        return Worker.model_construct(
            name=box.name,
            machine=box.name,
            pool=box.pool,
            connected_since=self.now if state is not WorkerState.ENROLLED else None,
            **self._registry_fields(box, state),
        )

    def _registry_fields(self, box: Box, state: WorkerState) -> dict[str, Any]:
        """Return the changing fields of a worker in its registry."""
        return {
            "state": state,
            "draining": box.draining,
            "running": box.running,
            "work": self._work_of(box),
            "uses": box.uses,
            "since": box.since,
            "last_seen": self.now,
        }

    def _work_of(self, box: Box) -> Work | None:
        if box.job is None:
            return box.worker.work if box.worker and box.running is not None else None
        request = box.job.request
        said = {key: getattr(request, key) for key in ALIKE}
        said["required"] = tuple(t for t in request.required if t not in box.without)
        names = tuple(names_of(request)) if self.fleet.durations else ()
        return Work.model_construct(started_at=box.began, names=names, **said)

    def _reading(self, name: str, workers: tuple[Worker, ...]) -> QueueReading:
        known = self._facts.queues.get(name)
        requests = tuple(map(attrgetter("request"), self._waiting[name].values()))
        if known is None or isinstance(known.demand, Unknown):
            demand = Demand.model_construct(read_at=self.now, requests=requests)
            return QueueReading.model_construct(demand=demand, workers=workers)
        has_registry = bool(workers) or name in self._registries or name in self._desks
        demand = known.demand.altered(read_at=self.now, requests=requests)
        return known.altered(demand=demand, workers=workers if has_registry else None)

    def _listing(self, name: str, machines: list[Machine], workers: list[Worker]) -> Listing:
        return Listing.model_construct(
            read_at=self.now,
            machines=tuple(machines),
            workers=tuple(workers) if name in self._own_registries else None,
        )

    def _restack(self, pool: str) -> None:
        """Record the state of a pool as the engine would."""
        own = [b for b in self.boxes.values() if b.pool == pool and b.inputs and b.machine]
        provider = self._provider_of(pool)
        self._serials[pool] += 1
        before = self._stacks.get(pool)
        declared = self.fleet.providers.get(provider)
        self._stacks[pool] = Stack.model_construct(
            engine=before.engine if before else (declared.engine if declared else "embedded"),
            provider=before.provider if before else provider,
            serial=self._serials[pool],
            name=before.name if before else "",
            workers=tuple(b.inputs for b in own if b.inputs),
            ids={b.name: b.machine.id for b in own if b.machine},
        )

    def _provider_of(self, pool: str) -> str:
        declared = self.fleet.pools.get(pool)
        if isinstance(declared, Pool):
            return declared.provider
        stack = self._stacks.get(pool)
        return stack.provider if stack else ""

    def _take_over(self, world: World) -> None:
        """Start with the machines and workers of the first world."""
        self._registries = {
            name for name, reading in world.queues.items() if reading.workers is not None
        }
        self._own_registries = {
            name
            for name, listing in world.providers.items()
            if isinstance(listing, Listing) and listing.workers is not None
        }
        self._own_registries |= {
            name
            for name, declared in self.fleet.providers.items()
            if declared.kind == "sim" and name not in world.providers
        }
        inputs: dict[str, WorkerInputs] = {}
        for pool, stack in world.known_stacks.items():
            self._stacks[pool], self._serials[pool] = stack, stack.serial
            inputs |= {each.name: each for each in stack.workers}
        for attempt in world.attempts:
            key = (attempt.pool, attempt.type, attempt.market)
            self._attempts.setdefault(key, deque(maxlen=_LATEST_TRIES)).append(attempt)
        for provider, machine in world.machines():
            made = inputs.get(machine.name)
            box = Box(
                *(machine.name, machine.pool, "", machine.created_at or self.now),
                *(provider, machine.type, market_of(made)),
                inputs=made,
                machine=machine.altered(expires=None),
            )
            self.boxes[box.name] = box
        for registry, worker in world.registered():
            self._take_over_worker(registry, worker)
        for box in self.boxes.values():
            if box.machine is not None and not box.is_registered and box.inputs is not None:
                box.registry = box.registry or self._registry_of(box)
                took = timedelta(seconds=self._boot_seconds(box))
                self._at(
                    max(self.now, (box.machine.created_at or self.now) + took), "boot", box, None
                )
            self._classify(box)

    def _registry_of(self, box: Box) -> str:
        known = (each.registry for each in self.boxes.values() if each.pool == box.pool)
        return next((each for each in known if each), box.provider)

    def _take_over_worker(self, registry: str, worker: Worker) -> None:
        name = worker.machine or worker.name
        box = self.boxes.get(name)
        if box is None:
            if worker.machine is not None and not worker.static:
                return  # its machine is gone: it is only remembered
            pool = worker.pool or ""
            box = Box(worker.name, pool, registry, worker.since or self.now)
            self.boxes[worker.name] = box
        elif box.worker is not None and box.worker.state is not WorkerState.ENROLLED:
            return
        box.registry, box.worker, box.draining = registry, worker, worker.draining
        box.is_registered = worker.state is not WorkerState.ENROLLED
        box.takes_work = worker.state not in _OFF
        box.since = worker.since or self.now
        box.uses, box.running = worker.uses, worker.running
        if worker.running is not None:
            box.began = (worker.work.started_at if worker.work else None) or box.since

    def end_unexplained(self) -> None:
        """End work without a known job that runs at the start, after an hour."""
        for box in self.boxes.values():
            if box.running is not None and box.job is None and box.takes_work:
                job = Job(box.running, "", _NO_REQUEST, self.now, seconds=USUAL)
                box.job = job
                self._at(self.now + timedelta(seconds=USUAL), "end", box, job)


_NO_REQUEST = Request(id="unknown")
_ADDRESS = "192.0.2.1"
"""An address reserved for documentation: a cloud machine has an address once it runs."""
