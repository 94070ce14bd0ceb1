"""Estimate the duration of a request per machine type, from `durations` and finished runs.

The name of a machine identifies the machine type of a run. Names are reused: the latest machine
that was created with the name before the run started counts. Runs on a machine without a creation
record are ignored.

A machine type is fitted if it has enough runs of a task and package. The fitted duration is their
median, so that a single hung or aborted run has little effect. At least two types must be fitted,
because one type does not show the speed of another type.

If `durations` states no time for a fitted machine type, the fitted duration applies. Otherwise the
expectation of the queue comes first, then `durations`. Both refer to the reference machine that
`durations` names. On another machine, the first known source counts: the stated duration, the
fitted duration, the ratio of the stated speeds, or the ratio of cores by Amdahl's law. Without a
named reference, its speed is 100 percent. A machine without a stated speed takes equally long.

An entry for all packages states no duration of a package that an earlier entry names: a build of
24 hours on one machine type does not take the usual 30 minutes on another.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from fleet.model.facts import Attempt, Request, TaskRuns, Worker, World
from fleet.model.prices import find_type, types_named
from fleet.model.values import MOST
from fleet.planner.units import Unit
from fleet.schema.model import CoprQueue, DebusineQueue, Duration, Fleet, Pool, WorldQueue
from fleet.tagrules.allow import BadPattern, compile_pattern
from fleet.tagrules.names import names_of

Made = Callable[[], Iterable[Attempt]]
"""A function that returns the recorded attempts to create machines, with any result."""
_CREATED_RESULTS = ("starting", "registered", "gone", "failed")
"""Results of attempts that created a machine."""
_MAX_RUNS = 1000
"""Maximum runs per package and machine type; only the latest runs are kept."""


class FinishedRun(NamedTuple):
    """A finished run on a named machine."""

    task: str
    package: str
    machine: str
    began: datetime
    seconds: int


def by_type(runs: Iterable[FinishedRun], attempts: Iterable[Attempt]) -> tuple[TaskRuns, ...]:
    """Group the durations of runs by task, package and machine type."""
    made: defaultdict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for attempt in attempts:
        if attempt.result in _CREATED_RESULTS:
            made[attempt.worker].append((attempt.at, attempt.type))
    for each in made.values():
        each.sort()
    found: defaultdict[tuple[str, str, str], list[tuple[datetime, int]]] = defaultdict(list)
    for run in runs:
        number = bisect_right(made.get(run.machine, ()), run.began, key=itemgetter(0))
        if number:
            _, kind = made[run.machine][number - 1]
            found[run.task, run.package, kind].append((run.began, run.seconds))
    return tuple(
        TaskRuns(
            task=task,
            package=package,
            machine=kind,
            seconds=tuple(seconds for _, seconds in sorted(took)[-_MAX_RUNS:]),
        )
        for (task, package, kind), took in sorted(found.items())
    )


MIN_RUNS = 3
"""Minimum runs of a machine type for a fitted duration."""
MIN_TYPES = 2


class Fitted(NamedTuple):
    """The duration of a package on one machine type, estimated from finished runs."""

    type: str
    seconds: int
    """Median duration of the runs."""
    runs: int


Fits = Mapping[tuple[str, str], tuple[Fitted, ...]]
"""(Task, package) to the fitted durations of at least two machine types, most runs first."""


def fit(world: World) -> Fits:
    """Return the durations per task and package, fitted from the runs that the queues report."""
    runs: defaultdict[tuple[str, str], defaultdict[str, list[int]]]
    runs = defaultdict(lambda: defaultdict(list))
    for _, demand in world.demands():
        for run in demand.runs:
            runs[run.task, run.package][run.machine] += run.seconds
    fits = {
        about: [
            Fitted(name, max(1, round(median(seconds))), len(seconds))
            for name, seconds in types.items()
            if len(seconds) >= MIN_RUNS
        ]
        for about, types in runs.items()
    }
    return {
        about: tuple(sorted(fitted, key=lambda each: (-each.runs, each.type)))
        for about, fitted in fits.items()
        if len(fitted) >= MIN_TYPES
    }


USUAL_SPEED = 100
"""Speed of the reference machine in percent, if `durations` names no reference machine."""
USUAL = 3600
"""Assumed seconds of work of unknown duration, if a figure is required."""
ANY = "any"
"""The key of `durations` for tasks that have no key."""
PARALLEL = 90
"""Percent of the work that runs in parallel, unless `durations` states this percentage."""


class MachineKind(NamedTuple):
    """The properties of a machine that durations depend on."""

    type: str
    cores: int
    """Number of cores; 0: unknown."""
    speed: int = 0
    """Percent of the usual speed; 0: not stated."""


NO_KIND = MachineKind("", 0)
"""The kind of a machine of unknown type."""


@dataclass(frozen=True)
class Timing:
    """The deadline of a request, and how its duration depends on the machine."""

    stated: tuple[tuple[str, int], ...] = ()
    """(Machine type, seconds) pairs that `durations` states."""
    measured: int | None = None
    """Stated seconds on the reference machine; None: not stated."""
    cores: int = 0
    """Cores of the reference machine; 0: unknown."""
    parallel: int = PARALLEL
    deadline: int | None = None
    """Seconds after which the queue aborts a run; None: no deadline."""
    speed: int = 0
    """Speed of the reference machine in percent of the usual speed; 0: not stated."""
    fitted: tuple[Fitted, ...] = ()
    """Fitted durations by machine type."""
    own_deadline: bool = False
    """The request sets the deadline, not its queue."""

    @property
    def identity(self) -> list[object]:
        """Return the fields that distinguish requests; empty if the machine does not matter."""
        fields: list[object] = [f"deadline {self.deadline}"] if self.own_deadline else []
        fields += [f"speed {self.speed}"] if self.speed else []
        if not (self.stated or self.cores or self.fitted):
            return fields
        return [*self.stated, self.measured, self.cores, self.parallel, *self.fitted, *fields]

    def on(self, kind: MachineKind, expected: int | None) -> int | None:
        """Convert expected seconds on the reference machine to seconds on another machine.

        The result is at most `MOST`, so that a sum with a moment does not overflow.
        """
        return None if expected is None else min(MOST, self._convert(kind, expected))

    def _convert(self, kind: MachineKind, expected: int) -> int:
        stated = self._stated_on(kind)
        if stated is not None:
            return -(-expected * stated // self.measured) if self.measured else stated
        fitted = next((each.seconds for each in self.fitted if each.type == kind.type), None)
        if fitted is not None:
            return fitted
        if self.speed and kind.speed:
            return -(-expected * self.speed // kind.speed)
        if not (self.cores and kind.cores):
            return expected
        serial = 100 - self.parallel
        before = kind.cores * (serial * self.cores + self.parallel)
        after = self.cores * (serial * kind.cores + self.parallel)
        return -(-expected * after // before)

    def source_on(self, kind: MachineKind) -> str:
        """Return the source of the duration on a machine; empty if stated or not converted."""
        if self._stated_on(kind) is not None:
            return ""
        if any(each.type == kind.type for each in self.fitted):
            first, *others = self.fitted
            parts = [f"{first.runs} runs on {first.type}"]
            parts += (f"{each.runs} on {each.type}" for each in others)
            return f"fitted from {', '.join(parts[:-1])} and {parts[-1]}"
        if self.speed and kind.speed and self.speed != kind.speed:
            return f"by its speed, {kind.speed}% to {self.speed}%"
        if self.cores and kind.cores and self.cores != kind.cores:
            return f"by its cores, {kind.cores} to {self.cores}, which share {self.parallel}%"
        return ""

    def slowest(self, kinds: Iterable[MachineKind], expected: int | None) -> int | None:
        """Return the duration in seconds on the slowest of these kinds; None if unknown."""
        if expected is None:
            return None
        return max((self.on(kind, expected) or 0 for kind in kinds), default=expected)

    def is_late(self, kinds: Iterable[MachineKind], expected: int | None) -> bool:
        """Return True if a request would miss its deadline on these machines; False if unknown."""
        takes = self.slowest(kinds, expected)
        return self.deadline is not None and takes is not None and takes > self.deadline

    def _stated_on(self, kind: MachineKind) -> int | None:
        return next((seconds for name, seconds in self.stated if name == kind.type), None)


Expected = tuple[int | None, Timing | None]
"""Expected seconds on the reference machine (None: unknown), and the Timing.

The Timing is None if every machine takes equally long and there is no deadline.
"""


class _Known(NamedTuple):
    """The expected duration of requests with equal task, package and deadline."""

    stated: int | None
    timing: Timing | None
    fitted: int | None
    """Fitted seconds on the reference machine; None if `durations` states its time."""

    def expected(self, history: int | None) -> int | None:
        """Return the expected seconds. `history` is the expectation of the queue, or None."""
        if self.fitted is not None:
            return self.fitted
        return self.stated if history is None else history


class Durations:
    """Expected durations of requests and running work, from history, `durations` and deadlines."""

    def __init__(self, fleet: Fleet, world: World, *, assumed: int | None = None) -> None:
        self._fleet = fleet
        self._assumed = assumed
        """Assumed total seconds of running work of unknown duration; None: no assumption."""
        runs = tuple(demand.runs for _, demand in world.demands())
        self._fits = fleet.cached("fits of runs", runs, lambda: fit(world))
        self._deadlines = {
            name: queue.deadline
            for name, queue in fleet.queues.items()
            if isinstance(queue, CoprQueue | DebusineQueue | WorldQueue)
        }
        self._named = not all(isinstance(each, int) for each in fleet.durations.values())
        """True if stated durations depend on the package."""
        sold = (each for p in fleet.providers.values() for each in p.own_types.values())
        named = (pool.machine for pool in fleet.dynamic_pools.values())
        types = (*sold, *(each for each in named if not isinstance(each, str)))
        self._usual = USUAL_SPEED if any(each.speed for each in types) else 0
        self._known: dict[tuple[object, ...], _Known] = {}

    def of(self, queue: str, request: Request) -> Expected:
        """Return a request's expected duration on the reference machine, and its Timing."""
        names: tuple[str, ...] = ()
        if self._named:
            names = names_of(request)
        own = request.deadline_seconds
        deadline = self._deadlines.get(queue) if own is None else own
        about = (request.task, request.package)
        known = self._look_up(about, names, deadline, is_own=own is not None)
        return known.expected(request.expected_seconds), known.timing

    def remaining(self, worker: Worker, now: datetime, kind: MachineKind = NO_KIND) -> int | None:
        """Return the remaining seconds of a busy worker's work, rounded up; None if unknown."""
        left = self.left(worker, now, kind)
        return None if left is None else -(-left // timedelta(seconds=1))

    def left(self, worker: Worker, now: datetime, kind: MachineKind = NO_KIND) -> timedelta | None:
        """Return the remaining time of a busy worker's work; None if unknown.

        If the duration is unknown, use `assumed`. Work that has exceeded its expected duration is
        expected to take half of its elapsed time more, because it may not end immediately.
        """
        assumed = None if self._assumed is None else timedelta(seconds=self._assumed)
        work = worker.work
        if work is None:
            return assumed
        known = self._look_up((work.task, work.package), work.names if self._named else (), None)
        expected = known.expected(work.expected_seconds)
        if known.timing is not None:
            expected = known.timing.on(kind, expected)
        started = work.started_at or worker.since
        takes = assumed if expected is None else timedelta(seconds=expected)
        if takes is None or started is None:
            return assumed
        elapsed = max(timedelta(), now - started)
        if elapsed < takes:
            return takes - elapsed
        return timedelta(seconds=max(60, elapsed // timedelta(seconds=2)))

    def _look_up(
        self,
        about: tuple[str, str | None],
        names: tuple[str, ...],
        deadline: int | None,
        *,
        is_own: bool = False,
    ) -> _Known:
        task, package = about
        if self._named and package:
            names = (*names, package)
        fitted = self._fits.get((task, package or ""), ()) if self._fits else ()
        key = (task, names, fitted, deadline, is_own)
        known = self._known.get(key)
        if known is None:
            timed = self._combine_entries(_entries(self._fleet, task, names), fitted)
            stated, timing, measured = timed
            if deadline is not None:
                timing = replace(timing or Timing(), deadline=deadline, own_deadline=is_own)
            known = self._known[key] = _Known(stated, timing, measured)
        return known

    def _combine_entries(self, entries: Sequence[Duration], fitted: tuple[Fitted, ...]) -> _Known:
        """Combine stated and fitted durations. The first entry that states a property counts."""
        takes = next((entry.takes for entry in entries if entry.takes is not None), None)
        first = next((entry for entry in entries if entry.machine or entry.cores), None)
        if first is None and not fitted:
            return _Known(takes, Timing(speed=self._usual) if self._usual else None, None)
        first = first or Duration.model_construct(machine=fitted[0].type)
        stated: dict[str, int] = {}
        is_named = False
        for entry in entries:
            # Once the package has its own time, entries for all packages do not count.
            if entry.match is None and is_named:
                continue
            is_named |= entry.match is not None and entry.takes is not None
            if entry.machine is not None and entry.takes is not None:
                stated.setdefault(entry.machine, entry.takes)
        named = [*types_named(self._fleet, first.machine)] if first.machine else []
        shares = (entry.parallel for entry in entries if entry.parallel is not None)
        timing = Timing(
            stated=tuple(stated.items()),
            measured=stated.get(first.machine) if first.machine else None,
            cores=first.cores or next((each.cores for each in named if each.cores), 0),
            parallel=next(shares, PARALLEL),
            speed=next((each.speed for each in named if each.speed), 0),
            fitted=fitted,
        )
        unstated = (each for each in fitted if each.type not in stated)
        measured = (each.seconds for each in unstated if each.type == first.machine)
        return _Known(takes, timing, next(measured, None))


def _entries(fleet: Fleet, task: str, names: tuple[str, ...]) -> list[Duration]:
    """Return the entries of `durations` for a task and package names, highest precedence first."""
    found: list[Duration] = []
    for key in dict.fromkeys((task, ANY)):
        stated = fleet.durations.get(key)
        if isinstance(stated, int):
            found.append(Duration.model_construct(takes=stated))
        elif stated is not None:
            found += [each for each in stated if is_about(each.match, names)]
    return found


def patterns_of(fleet: Fleet) -> tuple[str, ...]:
    """Return the distinct package patterns of `durations`."""
    stated = (each for each in fleet.durations.values() if isinstance(each, list))
    found = (each.match for entries in stated for each in entries if each.match is not None)
    return tuple(dict.fromkeys(found))


def is_about(pattern: str | None, names: Iterable[str]) -> bool:
    """Return True if a pattern matches one of these names, or if there is no pattern."""
    if pattern is None:
        return True
    try:
        return any(compile_pattern(pattern).takes(name) for name in names)
    except BadPattern:
        return False


def kind_at(fleet: Fleet, pool: str, name: str | None) -> MachineKind:
    """Return the kind of a pool's machine type; `NO_KIND` if the pool or type is unknown."""
    declared = fleet.pools.get(pool)
    if not name or not isinstance(declared, Pool):
        return NO_KIND
    known = find_type(fleet, declared, name)
    return MachineKind(name, known.cores, known.speed) if known else MachineKind(name, 0)


def kind_of(fleet: Fleet, pool: str, unit: Unit) -> MachineKind:
    """Return the kind of a unit's machine, from the recorded inputs if no provider lists it."""
    made = unit.machine or unit.inputs
    return kind_at(fleet, pool, made.type if made else None)
