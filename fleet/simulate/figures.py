"""The results of a simulation: waits, cost, machine hours, guards, and slower requests.

`Totals` counts events of one side as they occur. Waits are rounded to three digits, so that memory
use does not grow with the history's length.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from heapq import heappop, heappush
from itertools import accumulate
from typing import Literal

from pydantic import Field

from fleet.explain.tallies import ORDINARY, POWERFUL
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.model.price_lists import with_price_lists
from fleet.model.prices import tariff_of_machine
from fleet.model.values import Bill, Moment, Value, later
from fleet.planner.ledger import cost_of_span
from fleet.schema.model import Fleet
from fleet.schema.units import write_count, write_duration
from fleet.simulate.queueing import Box
from fleet.simulate.recorded_demand import PastRequest

_MOST_OWNERS = 10
_MOST_WORSE = 20
_MOST_POINTS = 400
_DIGITS = 3
_DAY = timedelta(days=1)
OTHERS = "all others"
_NO_OWNER = "no owner"
_LEAST_DELETE_SECONDS = 1
"""Assumed duration of a deletion without measurements."""
Waited = Callable[[str, int | None], None]
"""Callback with the key of a job and its wait in seconds; None if the job never started."""


class WaitFigures(Value):
    """Waiting times of the requests of a class or an owner, in seconds."""

    name: str
    requests: int = Field(description="Requests that started.")
    half: int | None = Field(None, description="p50; None: none started.")
    most: int | None = Field(None, description="p95.")
    longest: int | None = None
    never: int = Field(
        0, description="Requests that got no machine before their withdrawal or the end."
    )
    shares: tuple[int, ...] = Field(
        (), description="Percentiles 1 to 100 of the waits of started requests."
    )


class PoolFigures(Value, frozen=False):
    """The results for the machines of one pool."""

    pool: str
    money: Bill | None = Field(description="None: the price of a machine is unknown.")
    seconds: int = Field(description="Machine time.")
    busy_seconds: int
    most: int = Field(description="Maximum number of machines at the same time.")
    created: int = 0
    refused: int = Field(0, description="Number of creations that its provider refused.")
    taken: int = Field(0, description="Number of spot interruptions.")

    @property
    def idle_share(self) -> float | None:
        """Return boot and idle time as percentage of machine time; None without machine time."""
        return 100 * (1 - self.busy_seconds / self.seconds) if self.seconds else None


class GuardFigures(Value, frozen=False):
    """The number of simulated runs in which a guard withheld changes."""

    guard: str
    pool: str | None
    result: Literal["throttled", "refused"]
    runs: int
    most: int = Field(description="Maximum number of machines that it withheld in one run.")
    because: str = later("", "Its reason in the run in which it withheld most machines.")


class Point(Value):
    """Highest numbers of machines and waiting requests until the time of the next point."""

    at: Moment
    waiting: int = Field(description="Maximum number of waiting requests at the same time.")
    machines: int = Field(description="Maximum number at the same time.")
    rate: Bill = Field(description="Maximum money per hour.")


class Side(Value):
    """The results of one fleet.yaml in a simulation."""

    config: str = Field(description="Digest of the configuration.")
    waits: WaitFigures
    classes: tuple[WaitFigures, ...] = ()
    owners: tuple[WaitFigures, ...] = Field((), description="Owners with most requests.")
    pools: tuple[PoolFigures, ...] = ()
    money: Bill | None
    seconds: int
    busy_seconds: int
    most: int = Field(description="Maximum number of machines at the same time.")
    guards: tuple[GuardFigures, ...] = ()
    runs: int = Field(description="Runs of fleet that were simulated.")
    points: tuple[Point, ...] = ()
    assumed: int = Field(0, description="Jobs of unknown duration, counted as an hour.")
    scaled: int = Field(0, description="Jobs whose duration was computed for another machine.")
    unscaled: int = Field(0, description="Jobs counted with the same duration on another machine.")

    @property
    def idle_share(self) -> float | None:
        """Return boot and idle time as percentage of machine time; None without machine time."""
        return 100 * (1 - self.busy_seconds / self.seconds) if self.seconds else None


class Worse(Value):
    """A request that waits longer after the change than before it."""

    request: str
    before: int | None = Field(description="Seconds; None: it never started.")
    after: int | None


class Simulation(Value):
    """The results of recorded demand under one fleet.yaml, or before and after a change."""

    format: Literal["fleet-simulation-1"] = "fleet-simulation-1"
    fleet: str
    start: Moment
    end: Moment
    cadence: int = Field(description="Seconds between two runs of fleet.")
    currency: str
    seed: int
    requests: int = Field(description="Requests, with those waiting at the start.")
    withdrawn: int = Field(
        0, description="Requests among them that no worker served in the history."
    )
    unseen: int = Field(
        0, description="Requests that came and ended between two moments, not counted."
    )
    worlds: int = Field(description="Recorded moments that were read.")
    lost: int = Field(0, description="Spot interruptions of busy machines in the history.")
    lost_of: int = Field(0, description="Machine seconds of spot machines in the history.")
    against: str = Field("", description="The compared fleet.yaml; empty: no comparison.")
    changed: tuple[str, ...] = Field((), description="Values of keys set by `--set`.")
    before: Side | None = None
    after: Side
    worse: tuple[Worse, ...] = Field((), description="Largest additional waits first.")
    worse_count: int = 0
    better_count: int = 0
    unknown: tuple[str, ...] = Field((), description="Limits of this simulation.")

    @property
    def is_short(self) -> bool:
        """Return whether the time is too short (less than a day) for a daily pattern of demand."""
        return self.end - self.start < _DAY


def list_limits(simulation: Simulation) -> Iterator[str]:
    """Yield the limits of accuracy of any simulation, and the assumptions of this one."""
    if simulation.is_short:
        length = write_duration(simulation.end - simulation.start)
        yield (
            f"Only {length} were replayed: demand repeats by day, and in a shorter time a boot or "
            "a paid hour outweighs a change; choose an earlier --from, or record for longer"
        )
    yield "Work that users did not submit because waits were long is in no history"
    yield "Workers of static pools and of other provisioners stay those of the first moment"
    if simulation.unseen:
        yield (
            f"{write_count(simulation.unseen, 'request')} came and ended between two recorded "
            "moments and are in no figure: record more often"
        )
    if simulation.withdrawn:
        yield (
            f"{write_count(simulation.withdrawn, 'request')} left the queue without a recorded "
            "run: withdrawn, or shorter than the time between two records"
        )
    after = simulation.after
    if after.assumed:
        yield f"{write_count(after.assumed, 'job')} of unknown duration ran for 1h"
    if after.scaled:
        yield (
            f"{write_count(after.scaled, 'job')} ran on another machine type than recorded, with "
            "a duration computed from history, speeds or cores"
        )
    if after.unscaled:
        yield (
            f"{write_count(after.unscaled, 'job')} ran on another machine type than recorded and "
            "took as long, because its speed is unknown"
        )
    if simulation.lost:
        yield (
            f"{write_count(simulation.lost, 'spot machine')} were interrupted in "
            f"{simulation.lost_of / 3600:,.1f} machine hours of the history, and "
            f"{sum(pool.taken for pool in after.pools):,} in the simulation, chosen by --seed "
            f"{simulation.seed}"
        )
    elif simulation.lost_of:
        yield "No spot machine was interrupted in the history, so the simulation interrupts none"


@dataclass
class WaitCounter:
    """A histogram of waiting times, which are rounded to three digits."""

    counts: Counter[int] = field(default_factory=Counter)
    never: int = 0

    def add(self, seconds: int | None) -> None:
        """Count a wait in seconds; None for a request that never started."""
        if seconds is None:
            self.never += 1
        else:
            unit: int = 10 ** max(0, len(str(seconds)) - _DIGITS)
            self.counts[seconds // unit * unit] += 1

    def figures(self, name: str, *, with_shares: bool = False) -> WaitFigures:
        """Return the distribution of the counted waits."""
        places = sorted(self.counts)
        passed = list(accumulate(map(self.counts.__getitem__, places)))
        ranks = (-(-passed[-1] * percent // 100) for percent in range(1, 101) if passed)
        shares = [places[bisect_left(passed, rank)] for rank in ranks]
        return WaitFigures(
            name=name,
            requests=self.counts.total(),
            half=shares[49] if shares else None,
            most=shares[94] if shares else None,
            longest=places[-1] if places else None,
            never=self.never,
            shares=tuple(shares) if with_shares else (),
        )


def owner_rows(counters: dict[str, WaitCounter]) -> tuple[WaitFigures, ...]:
    """Return a row for each owner with many requests, and one row for all other owners."""

    def weight(name: str) -> tuple[int, str]:
        return -(counters[name].counts.total() + counters[name].never), name

    names = sorted(counters, key=weight)
    rows = [counters[name].figures(name) for name in names[:_MOST_OWNERS]]
    if names[_MOST_OWNERS:]:
        rest = WaitCounter()
        for name in names[_MOST_OWNERS:]:
            rest.counts += counters[name].counts
            rest.never += counters[name].never
        rows.append(rest.figures(OTHERS))
    return tuple(rows)


class Series:
    """Points over a time of unknown length; neighbours are merged if there are too many points."""

    def __init__(self, start: datetime, length: timedelta) -> None:
        self._start = start
        self._length = length
        self._points: list[list[int | Decimal]] = []
        self._last: list[int | Decimal] = [0, 0, Decimal(0)]

    def add(self, at: datetime, *figures: int | Decimal) -> None:
        """Record counts that are valid from this time on."""
        nth = self._extend_to(at)
        self._points[nth] = [max(each) for each in zip(self._points[nth], figures, strict=True)]
        self._last = [*figures]

    def points(self, end: datetime) -> tuple[Point, ...]:
        """Return all points until the end."""
        self._extend_to(end)
        names = ("waiting", "machines", "rate")
        return tuple(
            Point.model_validate(
                {"at": self._start + nth * self._length} | dict(zip(names, figures, strict=True))
            )
            for nth, figures in enumerate(self._points)
        )

    def _extend_to(self, at: datetime) -> int:
        """Fill the points up to a time with the last counts; return the index at that time."""
        nth = int((at - self._start) / self._length)
        while nth >= _MOST_POINTS:
            pairs = zip(self._points[::2], [*self._points[1::2], []], strict=False)
            self._points = [list(map(max, a, b)) if b else a for a, b in pairs]
            self._length *= 2
            nth //= 2
        while len(self._points) <= nth:
            self._points.append(self._last)
        return nth


class Pairs:
    """Waits of the same requests before and after a change; a completed pair is not stored."""

    def __init__(self) -> None:
        self._open: tuple[dict[str, int | None], dict[str, int | None]] = ({}, {})
        self._worst: list[tuple[float, str, int | None, int | None]] = []
        self.worse = self.better = 0

    def add(self, side: int, key: str, wait: int | None) -> None:
        """Record a wait of one side (0: before, 1: after); None if the request never started."""
        other = self._open[1 - side]
        if key not in other:
            self._open[side][key] = wait
            return
        both = (wait, other.pop(key))
        before, after = both if side == 0 else both[::-1]
        gain = _length(after) - _length(before) if before != after else 0.0
        if gain > 0:
            self.worse += 1
            heappush(self._worst, (gain, key, before, after))
            if len(self._worst) > _MOST_WORSE:
                heappop(self._worst)
        elif gain < 0:
            self.better += 1

    def worst(self) -> tuple[Worse, ...]:
        """Return the requests whose wait increased most, the largest increase first."""
        entries: Iterable[tuple[float, str, int | None, int | None]] = sorted(
            self._worst, key=lambda entry: (-entry[0], entry[1])
        )
        return tuple(Worse(request=k, before=b, after=a) for _, k, b, a in entries)


def _length(wait: int | None) -> float:
    return float("inf") if wait is None else wait


class Totals:
    """Sums and maxima of one side over the replayed time, which grow with each event."""

    def __init__(self, fleet: Fleet, first: World, waited: Waited) -> None:
        self._fleet, self._start = with_price_lists(fleet, first), first.time
        self._compute_tariff = cache(partial(tariff_of_machine, self._fleet))
        self._waited = waited
        self._powerful = {tag for rule in fleet.powerful for tag in rule.ask}
        self._all = WaitCounter()
        self._classes = {POWERFUL: WaitCounter(), ORDINARY: WaitCounter()}
        self._owners: defaultdict[str, WaitCounter] = defaultdict(WaitCounter)
        self._pools: dict[str, PoolFigures] = {}
        self._most = 0
        self._guards: dict[tuple[str, str | None, str], GuardFigures] = {}
        self._deleting = timedelta()
        """Duration of a deletion, during which the machine is still billed."""
        self._series = Series(first.time, timedelta(seconds=fleet.cadence))
        self.runs = 0
        self.assumed = 0
        """Number of jobs that were assumed to run for an hour."""
        self.scaled = 0
        """Number of jobs whose duration was computed for another machine type."""
        self.unscaled = 0
        """Number of jobs that were assumed to be equally long on another machine type."""

    def add_wait(self, job: PastRequest, start: datetime | None) -> None:
        """Count the wait of a job until its first start; None if it never starts."""
        since = job.since or job.at
        wait = None if start is None else max(0, int((start - since).total_seconds()))
        kind = POWERFUL if self._powerful & {*job.request.required} else ORDINARY
        owner = job.request.owner or _NO_OWNER
        for counter in (self._all, self._classes[kind], self._owners[owner]):
            counter.add(wait)
        self._waited(job.key, wait)

    def add_run(self, world: World, plan: Plan, boxes: Iterable[Box], waiting: int) -> None:
        """Record the decisions of a run."""
        self.runs += 1
        # Do not use `deleting_seconds`, whose margin is for decisions and not for bills.
        self._deleting = timedelta(seconds=world.delete_seconds or _LEAST_DELETE_SECONDS)
        for result in plan.guards:
            if result.result != "passed" and result.withheld:
                whose = {"guard": result.guard, "pool": result.pool, "result": result.result}
                key = (result.guard, result.pool, result.result)
                known = self._guards.setdefault(key, GuardFigures(**whose, runs=0, most=0))
                known.runs += 1
                if result.withheld > known.most:
                    known.most, known.because = result.withheld, result.because
        self._series.add(world.time, waiting, self.count_machines(boxes), plan.cost_after)

    def count_machines(self, boxes: Iterable[Box]) -> int:
        """Return the number of machines, and record the maxima."""
        there = Counter(box.pool for box in boxes if box.machine is not None)
        for pool, count in there.items():
            self.of(pool).most = max(self.of(pool).most, count)
        self._most = max(self._most, there.total())
        return there.total()

    def of(self, pool: str) -> PoolFigures:
        """Return the figures of a pool, which are changed in place."""
        if pool not in self._pools:
            self._pools[pool] = PoolFigures(
                pool=pool, money=Decimal(0), seconds=0, busy_seconds=0, most=0
            )
        return self._pools[pool]

    def add_machine(self, box: Box, end: datetime, *, is_deleted: bool = False) -> None:
        """Add a machine's time and cost since the start of the simulation."""
        if box.machine is None:
            return
        created, end = box.machine.created_at or self._start, end + self._deleting * is_deleted
        since, figures = max(created, self._start), self.of(box.pool)
        figures.seconds += int((end - since).total_seconds())
        figures.busy_seconds += box.busy_seconds
        tariff = self._compute_tariff(box.pool, box.provider, box.type, box.market)
        if tariff is None or figures.money is None:
            figures.money = None
        else:
            figures.money += cost_of_span(self._fleet, tariff, created, (since, end))

    def side(self, config: str, end: datetime) -> Side:
        """Return the results until the end, after all machines were added."""
        names = sorted({*self._pools, *self._fleet.dynamic_pools})
        pools = [
            each.altered(busy_seconds=min(each.busy_seconds, each.seconds))
            for each in map(self.of, names)
        ]
        money = [pool.money for pool in pools if pool.money is not None]
        return Side(
            config=config,
            waits=self._all.figures("", with_shares=True),
            classes=tuple(each.figures(name) for name, each in self._classes.items()),
            owners=owner_rows(self._owners),
            pools=tuple(pools),
            money=sum(money, Decimal(0)) if len(money) == len(pools) else None,
            seconds=sum(pool.seconds for pool in pools),
            busy_seconds=sum(pool.busy_seconds for pool in pools),
            most=self._most,
            guards=tuple(self._guards[key] for key in sorted(self._guards, key=repr)),
            runs=self.runs,
            points=self._series.points(end),
            assumed=self.assumed,
            scaled=self.scaled,
            unscaled=self.unscaled,
        )
