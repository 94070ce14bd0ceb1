"""Simulate the systems that execute a plan: machines boot, a queue assigns work, work ends.

Only systems outside of fleet are simulated. `planner/transitions.py` changes the facts; this
module decides when each event occurs, according to the history. Facts that did not change since
the last observation are the same objects, so that an observation costs time only for changes.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from heapq import heappop, heappush
from itertools import count
from math import log
from operator import attrgetter

from fleet.model.facts import (
    Attempt,
    AttemptResult,
    Demand,
    Ledger,
    Listing,
    Machine,
    QueueReading,
    Request,
    Stack,
    Unknown,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
    market_of,
)
from fleet.model.plan import Create, Delete, Drain, Plan
from fleet.model.pool_limits import boot_of
from fleet.planner.durations import USUAL, Durations, kind_at
from fleet.planner.inventory import departures_after
from fleet.planner.transitions import (
    boot,
    change_stack,
    create_machine,
    end_work,
    register,
    set_draining,
    start_work,
    work_on,
)
from fleet.planner.units import is_busy
from fleet.schema.model import Fleet, Pool
from fleet.simulate.figures import Totals, Waited
from fleet.simulate.queueing import Box, Queueing
from fleet.simulate.recorded_demand import BootDuration, Event, Facts, Lost, PastRequest, Refused
from fleet.tagrules.names import names_of

_LATEST_TRIES = 20
_LATEST_RUNS = 5
_LATEST_BOOTS = 50
_NO_STOCK_FOR = timedelta(minutes=30)
"""Assumed duration of a shortage after a provider refused a creation."""
_SECOND = timedelta(seconds=1)
_NO_REQUEST = Request(id="unknown")
_ADDRESS = "192.0.2.1"
"""Documentation address (RFC 5737) of simulated machines: a running machine has an address."""


class Farm:
    """The simulation of all systems outside of fleet, from the first recorded state on."""

    def __init__(self, fleet: Fleet, world: World, seed: int, waited: Waited) -> None:
        self.fleet = fleet
        self.now = self._start = world.time
        self.totals = Totals(fleet, world, waited)
        self.boxes: dict[str, Box] = {}
        self.changed = True
        """Whether a fact changed since the last observation."""
        self._seed = seed
        self._boots: defaultdict[tuple[str, str], deque[int]] = defaultdict(
            lambda: deque(maxlen=_LATEST_BOOTS)
        )
        self._booted: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._out: dict[tuple[str, str, str], datetime | None] = {}
        """Provider, type and market of machines that are out of stock, with the assumed end."""
        self._spot_seconds = self._spot_lost = 0
        self._queues = Queueing(fleet)
        self._heap: list[tuple[datetime, int, Callable[[], None]]] = []
        self._turns = count()
        self._again: set[str] = set()
        """Requests that wait or run again after their machine was taken back."""
        self._attempts: dict[tuple[str, str, str], deque[Attempt]] = {}
        self._stacks: dict[str, Stack] = {}
        self._made = 0
        self._approved = dict(world.approved) if isinstance(world.approved, dict) else {}
        self._departures = world.departures
        self._runs = list(() if isinstance(world.runs, Unknown) else world.runs)
        self._find_kind = cache(partial(kind_at, fleet))
        self.learn(world)
        self._take_over(world)

    # Events that fleet does not cause.

    def learn(self, facts: World) -> None:
        """Apply recorded facts that fleet does not decide, such as prices and images."""
        self._facts = facts
        self._durations = Durations(self.fleet, facts)
        self._queues.learn(facts)
        for box in self.boxes.values():
            self._queues.classify(box)
        self._queues.queue_again(self.now)
        for box in [*self._queues.free]:
            self._give(box)
        self.changed = True

    def take(self, event: Event) -> None:
        """Apply a recorded event that fleet does not cause."""
        match event:
            case PastRequest():
                self._arrive(event)
            case Facts():
                if event.at > self._start:
                    self.learn(event.world)
            case BootDuration():
                # Later simulated machines repeat this boot time.
                self._boots[event.pool, event.type].append(event.seconds)
            case Refused():
                until = None if event.is_over else event.at + _NO_STOCK_FOR
                self._out[self._provider_of(event.pool), event.type, event.market] = until
            case Lost():
                self._spot_seconds += event.seconds
                self._spot_lost += event.lost

    def _arrive(self, job: PastRequest) -> None:
        """Queue a job; if a worker ran it when the recording started, continue it."""
        self.changed = True
        box = self.boxes.get(job.worker) if job.started and job.started <= self.now else None
        if box is not None and box.job is None and box.running is not None:
            ends = self._began(box) + timedelta(seconds=self._seconds_on(job, box))
            self._end_at(box, job, max(self.now + _SECOND, ends))
        elif job.queue not in self.fleet.queues:
            self.totals.add_wait(job, None)
        else:
            if job.withdrawn is not None:
                self._schedule_event(job.withdrawn, partial(self._withdraw, job))
            self._enter(job)

    def end_unexplained(self) -> None:
        """Schedule the end of running work without a recorded job, one hour from now."""
        for box in self.boxes.values():
            if box.worker and is_busy(box.worker) and box.job is None and box.takes_work:
                job = PastRequest(box.running or "", "", _NO_REQUEST, self.now)
                self._end_at(box, job, self.now + timedelta(seconds=USUAL))

    def _enter(self, job: PastRequest) -> None:
        """Queue a job, or start it if a free worker fits."""
        self.changed = True
        box = self._queues.enter(job, self.now)
        if box is not None:
            self._begin(box, job)

    def advance(self, until: datetime) -> None:
        """Advance the time, and execute all events until then."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, occur = heappop(self._heap)
            occur()
        self.now = until

    def end_all(self) -> None:
        """Add the machines that still exist, and the jobs that never started, to the totals."""
        for jobs in self._queues.waiting.values():
            for key, job in jobs.items():
                if key not in self._again:
                    self.totals.add_wait(job, None)
        for box in self.boxes.values():
            box.busy_seconds = self._busy_since_start(box)
            self.totals.add_machine(box, self.now)

    @property
    def waits(self) -> int:
        """Return the number of waiting requests."""
        return sum(map(len, self._queues.waiting.values()))

    # Durations.

    def _boot_seconds(self, box: Box) -> int:
        """Return the next recorded boot time of this pool and type, or the expected one."""
        recorded = self._boots.get((box.pool, box.type))
        if not recorded:
            pool = self.fleet.pools.get(box.pool)
            return boot_of(pool).expected if isinstance(pool, Pool) else 0
        turn = self._booted[box.pool, box.type]
        self._booted[box.pool, box.type] += 1
        return recorded[turn % len(recorded)]

    def _seconds_on(self, job: PastRequest, box: Box) -> int:
        """Return the duration of a job on a machine in seconds, scaled to the machine's type."""
        expected, timing = self._durations.of(job.queue, job.request)
        kind = self._find_kind(box.pool, box.type)
        if job.seconds is None:
            if timing is not None:
                expected = timing.on(kind, expected)
            if expected is None:
                self.totals.assumed += 1
                expected = USUAL
            seconds = max(expected, job.least)
        else:
            seconds = job.seconds
            if job.type and box.type and job.type != box.type:
                there = timing.on(kind, seconds) if timing else None
                recorded = self._find_kind(job.pool, job.type)
                here = timing.on(recorded, seconds) if timing else None
                if there and here and there != here:
                    self.totals.scaled += 1
                    seconds = max(1, -(-seconds * there // here))
                else:
                    self.totals.unscaled += 1
        if timing is not None and timing.deadline is not None:
            seconds = min(seconds, timing.deadline)
        return max(1, seconds)

    # Observations by fleet.

    def observe(self, ledger: Ledger | Unknown) -> World:
        """Return the facts that fleet would observe now."""
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
            queues={n: self._reading(n, tuple(by_registry[n])) for n in self._queues.waiting},
            providers={
                name: Listing.model_construct(
                    read_at=now,
                    machines=tuple(by_provider[name]),
                    workers=tuple(by_registry[name]) if name in self._own_registries else None,
                )
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

    def _reading(self, name: str, workers: tuple[Worker, ...]) -> QueueReading:
        known = self._facts.queues.get(name)
        requests = tuple(map(attrgetter("request"), self._queues.waiting[name].values()))
        if known is None or isinstance(known.demand, Unknown):
            demand = Demand.model_construct(read_at=self.now, requests=requests)
            return QueueReading.model_construct(demand=demand, workers=workers)
        has_registry = bool(workers) or name in self._registries or name in self._queues.desks
        demand = known.demand.altered(read_at=self.now, requests=requests)
        return known.altered(demand=demand, workers=workers if has_registry else None)

    # Actions of fleet.

    def carry_out(self, plan: Plan) -> None:
        """Execute a plan, as far as the simulated providers permit."""
        departures = departures_after(self._departures, plan)
        for action in plan.actions:
            match action:
                case Create():
                    self._create(action)
                case Drain():
                    self._set_draining(action.worker, draining=True)
                case Delete():
                    self._remove(action.worker, is_deleted=True)
        for release in plan.releases:
            self._remove(release.worker, is_deleted=True)
        for each in plan.resumes:
            self._set_draining(each.worker, draining=False)
        self._departures = tuple(each for each in departures if each.worker in self.boxes)
        for approval in plan.approvals:
            if approval.passes:
                used = self._approved.get(approval.digest, 0)
                self._approved[approval.digest] = used + len(approval.passes)
        if self._queues.desks:
            self._assign_tickets(plan)
        self.totals.count_machines(self.boxes.values())
        self.note_run()

    def note_run(self) -> None:
        """Record a run, even if the simulation skipped it."""
        self._runs = [*self._runs[-_LATEST_RUNS + 1 :], self.now]

    def _assign_tickets(self, plan: Plan) -> None:
        """Start tickets on the machines of the plan, because fleet itself assigns tickets."""
        for signature in plan.signatures:
            if signature.queue not in self._queues.desks:
                continue
            for key, worker in signature.by_worker.items():
                job = self._queues.waiting[signature.queue].get(key)
                box = self.boxes.get(worker)
                if job is not None and box is not None and box.is_free:
                    without = {*signature.dropped} - {*self._queues.tags_of(box)}
                    self._begin(box, job, without=without)

    def _create(self, action: Create) -> None:
        inputs, market = action.inputs, market_of(action.inputs)
        provider = self._provider_of(action.pool)
        registry = action.registry or provider
        box = Box(action.worker, action.pool, registry, provider, inputs.type, market, inputs)
        until = self._out.get((provider, inputs.type, market))
        is_out = until is not None and self.now < until
        result: AttemptResult = "out-of-stock" if is_out else "starting"
        key = (action.pool, inputs.type, market)
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
            self.totals.of(action.pool).refused += 1
            return
        self._made += 1
        box.machine = create_machine(
            inputs, action.pool, f"simulated-{self._made}", self.now, address=_ADDRESS
        )
        if action.registry:
            box.worker = register(box.machine, self.now).altered(
                state=WorkerState.ENROLLED, uses=None, since=None, connected_since=None
            )
        self.boxes[box.name] = box
        declared = self.fleet.providers.get(provider)
        engine = declared.engine if declared else "embedded"
        stack = self._stacks.get(box.pool) or Stack(engine=engine, provider=provider, serial=0)
        self._stacks[box.pool] = change_stack(stack, created=[(inputs, box.machine.id)])
        self.totals.of(action.pool).created += 1
        boots = timedelta(seconds=self._boot_seconds(box))
        self._schedule_event(self.now + boots, partial(self._register, box))
        if market == "spot" and self._spot_lost:
            said = f"{self._seed} {box.name} {self.now.isoformat()}".encode()
            share = (int.from_bytes(sha256(said).digest()[:8]) + 1) / (2**64 + 1)
            mean = self._spot_seconds / self._spot_lost
            lost = self.now + timedelta(seconds=int(-log(share) * mean) + 1)
            self._schedule_event(lost, partial(self._lose, box))

    def _set_draining(self, name: str, *, draining: bool) -> None:
        box = self.boxes.get(name)
        if box is not None and box.worker is not None and box.worker.draining != draining:
            self._queues.remove_free(box)
            box.worker = set_draining(box.worker, self.now, draining=draining)
            self.changed = True
            if not draining:
                self._queues.classify(box)

    def _remove(self, name: str, *, is_deleted: bool) -> None:
        """Remove a machine that fleet deletes or its provider takes back."""
        if box := self.boxes.pop(name, None):
            self.changed = True
            self._queues.remove_free(box)
            if stack := self._stacks.get(box.pool):
                self._stacks[box.pool] = change_stack(stack, gone=[name])
            self.totals.add_machine(box, self.now, is_deleted=is_deleted)

    # Machines and work over time.

    def _schedule_event(self, at: datetime, occur: Callable[[], None]) -> None:
        heappush(self._heap, (at, next(self._turns), occur))

    def _end_at(self, box: Box, job: PastRequest, at: datetime) -> None:
        """Start a job on a worker, and schedule the end of the job."""
        box.job = job
        self._schedule_event(at, partial(self._end, box, job))

    def _register(self, box: Box) -> None:
        if self.boxes.get(box.name) is not box or box.machine is None:
            return
        is_draining = box.worker is not None and box.worker.draining
        box.machine = boot(box.machine)
        box.worker = register(box.machine, self.now).altered(draining=is_draining)
        tries = self._attempts.get((box.pool, box.type, box.market), deque[Attempt]())
        for nth, each in enumerate(tries):
            if each.worker == box.name and each.result == "starting":
                tries[nth] = each.altered(result="registered")
        self.changed = True
        self._queues.classify(box)
        self._give(box)

    def _give(self, box: Box) -> None:
        """Assign the first fitting request of its queues to a worker; else mark it as free."""
        if not box.is_free:
            return
        job = self._queues.first_for(box)
        if job is None:
            self._queues.add_free(box)
        else:
            self._begin(box, job)

    def _begin(self, box: Box, job: PastRequest, without: Collection[str] = ()) -> None:
        self._queues.remove_free(box)
        self._queues.leave(job)
        required = [tag for tag in job.request.required if tag not in without]
        names = names_of(job.request) if self.fleet.durations else ()
        work = work_on(job.request, required, self.now, names=names)
        if box.worker is not None:
            box.worker = start_work(box.worker, job.request.id, work, self.now)
        self.changed = True
        self._end_at(box, job, self.now + timedelta(seconds=self._seconds_on(job, box)))
        if job.key not in self._again:
            self.totals.add_wait(job, self.now)

    def _end(self, box: Box, job: PastRequest) -> None:
        if box.job is not job:
            return
        self._again.discard(job.key)
        self._stop(box)
        self.changed = True
        self._give(box)

    def _stop(self, box: Box) -> None:
        box.busy_seconds = self._busy_since_start(box)
        box.job = None
        if box.worker is not None:
            box.worker = end_work(box.worker, self.now)

    def _began(self, box: Box) -> datetime:
        """Return the start time of a worker's current work; the current time if it is idle."""
        worker = box.worker
        if worker is None or not is_busy(worker):
            return self.now
        return (worker.work.started_at if worker.work else None) or worker.since or self._start

    def _busy_since_start(self, box: Box) -> int:
        """Return the busy seconds of a worker from the start of the simulation until now."""
        since = max(self._began(box), self._start)
        return box.busy_seconds + int((self.now - since).total_seconds())

    def _lose(self, box: Box) -> None:
        """Take back a spot machine; its job waits again and restarts from the beginning."""
        if self.boxes.get(box.name) is not box:
            return
        job = box.job
        self._stop(box)
        self._remove(box.name, is_deleted=False)
        self.totals.of(box.pool).taken += 1
        if job is not None and job.queue:
            self._again.add(job.key)
            self._enter(job)

    def _withdraw(self, job: PastRequest) -> None:
        if self._queues.leave(job):
            self.changed = True
            if job.key not in self._again:
                self.totals.add_wait(job, None)

    # The first world.

    def _provider_of(self, pool: str) -> str:
        """Return the provider of a pool or of its stack; empty if both are missing."""
        declared = self.fleet.pools.get(pool)
        if isinstance(declared, Pool):
            return declared.provider
        stack = self._stacks.get(pool)
        return stack.provider if stack else ""

    def _take_over(self, world: World) -> None:
        """Create the machines and workers of the first recorded state."""
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
        self._stacks = dict(world.known_stacks)
        inputs: dict[str, WorkerInputs] = {
            each.name: each for stack in self._stacks.values() for each in stack.workers
        }
        for attempt in world.attempts:
            key = (attempt.pool, attempt.type, attempt.market)
            self._attempts.setdefault(key, deque(maxlen=_LATEST_TRIES)).append(attempt)
        for provider, machine in world.machines():
            made = inputs.get(machine.name)
            box = Box(
                *(machine.name, machine.pool, "", provider, machine.type, market_of(made), made),
                machine=machine.altered(expires=None),
            )
            self.boxes[box.name] = box
        for registry, worker in world.registered():
            self._take_over_worker(registry, worker)
        for box in self.boxes.values():
            if box.machine is not None and not box.is_registered and box.inputs is not None:
                known = (each.registry for each in self.boxes.values() if each.pool == box.pool)
                box.registry = box.registry or next(filter(None, known), box.provider)
                boots = timedelta(seconds=self._boot_seconds(box))
                ready = max(self.now, (box.machine.created_at or self.now) + boots)
                self._schedule_event(ready, partial(self._register, box))
            self._queues.classify(box)

    def _take_over_worker(self, registry: str, worker: Worker) -> None:
        box = self.boxes.get(worker.machine or worker.name)
        if box is None:
            if worker.machine is not None and not worker.static:
                return  # its machine is deleted
            box = self.boxes[worker.name] = Box(worker.name, worker.pool or "", registry)
        elif box.is_registered:
            return
        box.registry, box.worker = registry, worker
