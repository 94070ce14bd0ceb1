"""Replay recorded demand through the functions that `fleet plan` calls.

A run of fleet is simulated at each `cadence`. A run is skipped if no fact can have changed since
the last run without actions (`_Rest`), because its plan would be the same.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import NamedTuple

from fleet.explain.tallies import ORDINARY, POWERFUL
from fleet.guard import guard
from fleet.model.digests import config_digest
from fleet.model.facts import Charge, Ledger, MachinePayer, Unknown, World
from fleet.model.plan import Create, Plan, Reason, WorkerVerdict
from fleet.model.price_lists import with_price_lists
from fleet.model.prices import Tariff, tariff_of_machine
from fleet.planner.failures import FAILURE_MEMORY
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.planner.ledger import charge_all, cost_of_span, payers_of, periods
from fleet.planner.lifecycle.rule import MachineLife, life_of
from fleet.planner.lifecycle.table import idle_limit, limits_of
from fleet.reconcile import reconcile_unsealed
from fleet.schema.model import Fleet, Pool
from fleet.schema.pools import Market
from fleet.simulate.farm import Farm
from fleet.simulate.figures import (
    GuardFigures,
    Pairs,
    PoolFigures,
    Series,
    Side,
    Simulation,
    WaitCounter,
    owner_rows,
)
from fleet.simulate.queueing import Box
from fleet.simulate.recorded_demand import (
    BootDuration,
    Event,
    Facts,
    KnownHistory,
    Lost,
    PastRequest,
    Refused,
)

_LEAST_DELETE_SECONDS = 1
"""Assumed duration of a deletion without measurements."""
_NO_OWNER = "no owner"


@dataclass(frozen=True)
class SimulationInputs:
    """The inputs of one side of a simulation."""

    fleet: Fleet
    seed: int = 0
    skips: bool = True
    """Whether to skip runs without actions, to save time; the result is the same."""


Waited = Callable[[str, int | None], None]
"""Callback with the key of a job and its wait in seconds; None if the job never started."""


class Read(NamedTuple):
    """Totals of the input: moments, time of the last moment, and requests between two moments."""

    worlds: int
    end: datetime
    unseen: int


Told = World | Event | Read | Unknown


def read_events(worlds: Iterable[World]) -> Iterator[Told]:
    """Yield the first recorded state, then the later events, then the totals of the input.

    If no simulation can start, yield only the reason. `worlds` are in order of time.
    """
    past, skipped, worlds = KnownHistory(), 0, iter(worlds)
    for first in worlds:
        if _is_readable(first):
            yield first
            yield from past.events(chain((first,), worlds))
            yield Read(skipped + past.worlds, past.latest or first.time, past.unseen)
            return
        skipped += 1
    some = "no recorded moment has all its queues, providers and stacks"
    yield Unknown(unknown=some if skipped else "nothing was recorded in this time")


Decide = Callable[[Fleet, World, Mapping[str, PoolInventory]], Plan]
"""Function that returns the plan of each simulated run."""


def decide(fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]) -> Plan:
    """Return the plan like `fleet plan`, without the parts for saved or displayed plans."""
    told = with_price_lists(fleet, world)
    return guard(fleet, reconcile_unsealed(told, world, inventories, explained=False))


def simulate(
    task: SimulationInputs,
    told: Iterator[Told],
    before: SimulationInputs | None = None,
    *,
    against: str = "",
    changed: Iterable[str] = (),
) -> Simulation | Unknown:
    """Return the results of recorded demand (`read_events`), optionally compared with `before`.

    Both sides get each event before either side gets the next event. So the history is read once,
    and only unpaired waits are stored.
    """
    first = next(told)
    if isinstance(first, Unknown):
        return first
    if not isinstance(first, World):
        raise TypeError(first)
    pairs = Pairs()
    sides = [Replay(task, first, partial(pairs.add, 1) if before else _ignore)]
    sides += [Replay(before, first, partial(pairs.add, 0))] if before else []
    requests = withdrawn = lost = lost_of = 0
    read = Read(0, first.time, 0)
    for event in told:
        if isinstance(event, PastRequest):
            requests += 1
            withdrawn += event.withdrawn is not None
        elif isinstance(event, Lost):
            lost, lost_of = lost + event.lost, lost_of + event.seconds
        if isinstance(event, Read):
            read = event
        elif isinstance(event, Event):
            for side in sides:
                side.feed(event)
    after, *others = [side.finish(read.end) for side in sides]
    found = Simulation(
        fleet=task.fleet.fleet,
        start=first.time,
        end=read.end,
        cadence=task.fleet.cadence,
        currency=task.fleet.money.currency,
        seed=task.seed,
        requests=requests,
        withdrawn=withdrawn,
        unseen=read.unseen,
        lost=lost,
        lost_of=lost_of,
        worlds=read.worlds,
        after=after,
    ).with_limits()
    if not others:
        return found
    return found.altered(
        against=against,
        changed=tuple(changed),
        before=others[0],
        worse=pairs.worst(),
        worse_count=pairs.worse,
        better_count=pairs.better,
    )


def _ignore(_: str, __: int | None) -> None:
    """Do nothing with a wait, because there is no comparison."""


def _is_readable(world: World) -> bool:
    """Return whether a recording has all queues, providers and stacks."""
    if isinstance(world.stacks, Unknown):
        return False
    parts: list[object] = [*world.stacks.values(), *world.providers.values()]
    parts += [reading.demand for reading in world.queues.values()]
    parts += [reading.workers for reading in world.queues.values() if reading.workers is not None]
    return not any(isinstance(part, Unknown) for part in parts)


class Replay:
    """The replay of a history under one fleet.yaml."""

    def __init__(
        self, task: SimulationInputs, first: World, waited: Waited, decide: Decide = decide
    ) -> None:
        self._fleet = fleet = task.fleet
        self._decide = decide
        self._skips = task.skips
        self._compute_wait = waited
        self._start = self._next = first.time
        self._step = timedelta(seconds=fleet.cadence)
        self._farm = Farm(fleet, first, task.seed)
        self._begun = False
        self._ledger = _Ledger(fleet, first)
        self._rest = _Rest(fleet)
        self._sums = _ReplayTotals(with_price_lists(fleet, first), first.time)

    def feed(self, event: Event) -> None:
        """Advance to the time of an event, and apply the event."""
        self._run_until(event.at)
        self._farm.advance(event.at)
        match event:
            case PastRequest():
                self._farm.arrive(event)
            case Facts():
                if event.at > self._start:
                    self._farm.learn(event.world)
            case BootDuration():
                self._farm.boot_took(event)
            case Refused():
                self._farm.refuse(event)
            case Lost():
                self._farm.lose_spot(event)
        self._note()

    def finish(self, end: datetime) -> Side:
        """Advance to the end and return the results."""
        self._run_until(end, with_last=True)
        self._farm.advance(end)
        self._note()
        for job in self._farm.never_started:
            self._sums.wait(job, None)
            self._compute_wait(job.key, None)
        self._sums.config = config_digest(self._fleet)
        return self._sums.side(self._farm, end)

    def _run_until(self, at: datetime, *, with_last: bool = False) -> None:
        """Simulate a run at each cadence before a time; with `with_last`, also at that time."""
        while self._next < at or (with_last and self._next == at):
            if not self._begun:
                self._farm.end_unexplained()
                self._begun = True
            self._farm.advance(self._next)
            self._note()
            is_due = self._farm.changed or self._rest.is_over(self._farm.now)
            if is_due or not self._skips:
                self._run()
            else:
                self._farm.note_run()
            self._next += self._step

    def _run(self) -> None:
        farm = self._farm
        self._sums.runs += 1
        world = farm.observe(self._ledger.read(farm.now))
        inventories = take_inventory(self._fleet, world)
        self._ledger.charge(world, inventories)
        plan = self._decide(self._fleet, world, inventories)
        self._ledger.order(world, inventories, plan)
        self._sums.see(world, plan, farm)
        farm.carry_out(plan)
        self._rest.after(world, inventories, plan, farm)
        self._note()

    def _note(self) -> None:
        noted = self._farm.noted
        for start in noted.starts:
            wait = _compute_wait(start.job, start.at)
            self._sums.wait(start.job, wait)
            self._compute_wait(start.job.key, wait)
        for job in noted.withdrawn:
            self._sums.wait(job, None)
            self._compute_wait(job.key, None)
        self._sums.note(self._farm)


def _compute_wait(job: PastRequest, start: datetime) -> int:
    """Return the wait of a job in seconds, until its first start."""
    since = job.since or job.at
    return max(0, int((start - since).total_seconds()))


class _Rest:
    """The time until which an idle fleet makes no changes, if no input changes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._until: datetime | None = None
        self._is_sure = False

    def is_over(self, now: datetime) -> bool:
        """Return whether a run could make a change now."""
        return not self._is_sure or (self._until is not None and now >= self._until)

    def after(
        self, world: World, inventories: Mapping[str, PoolInventory], plan: Plan, farm: Farm
    ) -> None:
        """Compute the time again from the observations and the plan of a run."""
        self._until, self._is_sure = None, False
        loud = plan.withheld or plan.waiting_versions or plan.orders or plan.unknown
        if not plan.is_quiet or loud or farm.waits:
            return
        if plan.budgets and any(inventory.units for inventory in inventories.values()):
            return  # spending grows, and drains workers once it uses up a budget
        if any(
            each.result not in ("starting", "registered") and world.time - each.at < FAILURE_MEMORY
            for each in world.attempts
        ):
            return
        lives = {
            unit.name: life_of(self._fleet, self._fleet.dynamic_pool(name), unit)
            for name, inventory in inventories.items()
            for unit in inventory.units
        }
        ends = [
            _end_of_reason(verdict, lives.get(verdict.worker), world.time)
            for verdict in plan.workers
        ]
        if any(end is not None and end <= world.time for end in ends):
            return
        ages = [limit.until(life) for life in lives.values() for limit in limits_of(life, "age")]
        known = [end for end in (*ends, *ages) if end is not None]
        if any(verdict.outdated for verdict in plan.workers):
            return
        self._until, self._is_sure = min(known, default=None), True


def _end_of_reason(
    verdict: WorkerVerdict, life: MachineLife | None, now: datetime
) -> datetime | None:
    """Return when the reason to keep a worker ends; None if only a change can end it."""
    reason, since = verdict.reason, verdict.since
    if reason in (Reason.BUSY, Reason.STATIC):
        return None
    if life is None or since is None:
        return now
    if reason in (Reason.IDLE_RECENTLY, Reason.KEPT_FOR_MIN, Reason.KEPT_SPARE):
        end = idle_limit(life).until(life._replace(idle_since=since)) or now
        # If a worker is kept despite a long idle time, the reason is the size of its pool.
        return end if end > now or reason is Reason.IDLE_RECENTLY else None
    if reason is Reason.STARTING:
        ends = (limit.until(life._replace(boots_since=since)) for limit in limits_of(life, "boot"))
        return min((end for end in ends if end), default=now)
    return now


_Account = tuple[str, str | None, str | None, str | None, tuple[str, ...]]


class _Ledger:
    """The spending per payer in the current periods; empty if no budget exists."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        pools = [pool for pool in fleet.pools.values() if isinstance(pool, Pool)]
        self._is_kept = bool(fleet.budgets) or any(pool.budget for pool in pools)
        self._fleet = fleet
        self._until = world.time
        self._periods = periods(fleet, world.time)
        self._sums: dict[_Account, tuple[list[int], list[Decimal]]] = {}
        ledger = world.ledger
        self._payers: dict[str, MachinePayer] = {}
        if isinstance(ledger, Ledger):
            self._payers = {each.machine: each for each in ledger.payers}
        for each in ledger.charges if isinstance(ledger, Ledger) else ():
            key = (each.pool, each.scope, each.team, each.owner, each.tags)
            self._sums[key] = (list(each.seconds), list(each.money))

    def read(self, now: datetime) -> Ledger:
        """Return the spending in the current periods."""
        if not self._is_kept:
            return Ledger.model_construct(charged_until=now, charges=(), payers=())
        current = periods(self._fleet, now)
        for nth, (new, old) in enumerate(zip(current, self._periods, strict=True)):
            if new.start != old.start:
                for seconds, money in self._sums.values():
                    seconds[nth], money[nth] = 0, Decimal(0)
        self._periods = current
        self._sums = {
            key: sums for key, sums in self._sums.items() if any(sums[0]) or any(sums[1])
        }
        charges = tuple(
            Charge.model_construct(
                pool=pool,
                scope=scope,
                team=team,
                owner=owner,
                tags=tags,
                seconds=(seconds[0], seconds[1], seconds[2]),
                money=(money[0], money[1], money[2]),
            )
            for (pool, scope, team, owner, tags), (seconds, money) in self._sums.items()
        )
        return Ledger.model_construct(
            charged_until=self._until, charges=charges, payers=tuple(self._payers.values())
        )

    def charge(self, world: World, inventories: Mapping[str, PoolInventory]) -> None:
        """Add the cost of all machines since the last call."""
        if self._is_kept:
            charged = charge_all(self._fleet, world, inventories)
            self._payers = {each.machine: each for each in charged.payers}
            for entry in charged.entries:
                key = (entry.pool, entry.scope, entry.team, entry.owner, entry.tags)
                seconds, money = self._sums.setdefault(key, ([0] * 3, [Decimal(0)] * 3))
                for nth, period in enumerate(self._periods):
                    if entry.hour >= period.start:
                        seconds[nth] += entry.seconds
                        money[nth] += entry.money
        self._until = world.time

    def order(self, world: World, inventories: Mapping[str, PoolInventory], plan: Plan) -> None:
        """Record the payers of the machines that a plan creates."""
        if self._is_kept:
            creates = (each for each in plan.actions if isinstance(each, Create))
            found = payers_of(self._fleet, world, inventories, creates)
            self._payers |= {each.machine: each for each in found}


class _ReplayTotals:
    """Sums and maxima of one side over the replayed time."""

    def __init__(self, fleet: Fleet, start: datetime) -> None:
        self._fleet, self._start = fleet, start
        self._powerful = {tag for rule in fleet.powerful for tag in rule.ask}
        self._all = WaitCounter()
        self._classes = {POWERFUL: WaitCounter(), ORDINARY: WaitCounter()}
        self._owners: defaultdict[str, WaitCounter] = defaultdict(WaitCounter)
        self._money: defaultdict[str, Decimal] = defaultdict(Decimal)
        self._unpriced: set[str] = set()
        self._seconds: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()
        self._created: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._there: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self._most_of_all = 0
        self._guards: dict[tuple[str, str | None, str], GuardFigures] = {}
        self._deleting = timedelta()
        """Duration of a deletion, during which the machine is still billed."""
        self._tariffs: dict[tuple[str, str, str, Market], Tariff | None] = {}
        self._series = Series(start, timedelta(seconds=fleet.cadence))
        self.config = ""
        self.runs = 0

    def wait(self, job: PastRequest, seconds: int | None) -> None:
        """Count a wait in seconds; None if the request never started."""
        kind = POWERFUL if self._powerful & {*job.request.required} else ORDINARY
        for counter in (
            self._all,
            self._classes[kind],
            self._owners[job.request.owner or _NO_OWNER],
        ):
            counter.add(seconds)

    def see(self, world: World, plan: Plan, farm: Farm) -> None:
        """Record the decisions of a run."""
        # Do not use `deleting_seconds`, whose margin is for decisions and not for bills.
        self._deleting = timedelta(seconds=world.delete_seconds or _LEAST_DELETE_SECONDS)
        for result in plan.guards:
            if result.result != "passed" and result.withheld:
                key = (result.guard, result.pool, result.result)
                known = self._guards.get(key) or GuardFigures.of(result)
                if result.withheld > known.most:
                    known = known.altered(most=result.withheld, because=result.because)
                self._guards[key] = known.altered(runs=known.runs + 1)
        self._count(farm)
        self._series.add(farm.now, farm.waits, self._there.total(), plan.cost_after)

    def note(self, farm: Farm) -> None:
        """Count the recorded events of a farm, then clear the farm's record."""
        noted = farm.noted
        if noted.created or noted.gone:
            self._count(farm)
        for box in noted.created:
            self._created[box.pool] += 1
        for box, at, how in noted.gone:
            self._add_totals(box, at + self._deleting if how == "deleted" else at)
            self._taken[box.pool] += how == "taken"
        for pool, _ in noted.refused:
            self._refused[pool] += 1
        farm.forget()

    def side(self, farm: Farm, end: datetime) -> Side:
        """Return the results; existing machines count until the end."""
        for box in farm.boxes.values():
            box.busy_seconds = farm.busy_since_start(box)
            self._add_totals(box, end)
        known = {*self._fleet.pools, *self._seconds}
        names = [
            n
            for n in sorted(known)
            if n in self._seconds or isinstance(self._fleet.pools.get(n), Pool)
        ]
        pools = tuple(
            PoolFigures(
                pool=name,
                money=None if name in self._unpriced else self._money[name],
                seconds=self._seconds[name],
                busy_seconds=min(self._busy[name], self._seconds[name]),
                most=self._most[name],
                created=self._created[name],
                refused=self._refused[name],
                taken=self._taken[name],
            )
            for name in names
        )
        money = [pool.money for pool in pools]
        return Side(
            config=self.config,
            waits=self._all.figures("", with_shares=True),
            classes=tuple(each.figures(name) for name, each in self._classes.items()),
            owners=owner_rows(self._owners),
            pools=pools,
            money=None if None in money else sum((m for m in money if m is not None), Decimal(0)),
            seconds=self._seconds.total(),
            busy_seconds=sum(pool.busy_seconds for pool in pools),
            most=self._most_of_all,
            guards=tuple(self._guards[key] for key in sorted(self._guards, key=repr)),
            runs=self.runs,
            points=self._series.points(end),
            assumed=farm.assumed,
            scaled=farm.scaled,
            unscaled=farm.unscaled,
        )

    def _count(self, farm: Farm) -> None:
        self._there = Counter(box.pool for box in farm.boxes.values() if box.machine is not None)
        for pool, there in self._there.items():
            self._most[pool] = max(self._most[pool], there)
        self._most_of_all = max(self._most_of_all, self._there.total())

    def _add_totals(self, box: Box, end: datetime) -> None:
        """Add a machine's time and cost since the start of the simulation."""
        if box.machine is None:
            return
        created = box.machine.created_at or self._start
        since = max(created, self._start)
        self._seconds[box.pool] += int((end - since).total_seconds())
        self._busy[box.pool] += box.busy_seconds
        tariff = self._tariff(box)
        if tariff is None:
            self._unpriced.add(box.pool)
            return
        self._money[box.pool] += cost_of_span(self._fleet, tariff, created, (since, end))

    def _tariff(self, box: Box) -> Tariff | None:
        key = (box.pool, box.provider, box.type, box.market)
        if key not in self._tariffs:
            self._tariffs[key] = tariff_of_machine(self._fleet, *key)
        return self._tariffs[key]
