"""How long a request is expected to run on a machine type, from `durations` and from history.

On which type a run was follows from the name of its machine. A name may be given again long after
its machine is gone: what was made last under it, before a run began, is what that ran on. A run
on a machine without a record of its creation is left out.

Of each type that has run a task for a package often enough the median run counts: a build that
hung or broke off early does not move it. One type alone says nothing of how fast another is.

Where history has runs of a package on two machine types or more, it says of each that `durations`
does not name how long that takes. Else what a queue's history tells of a request comes first,
then `durations`. Both are of the machine that `durations` names as the one they were measured on:
on another, work takes what is stated for that one, else what was fitted, else what the stated
speeds of both make of it, else their cores by Amdahl's law. Where no machine is named, they are
of one of the usual speed, and a machine without a stated speed takes as long.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple

from fleet.model.facts import Attempt, Demand, Request, TaskRuns, Worker, World
from fleet.model.prices import find_type, types_named
from fleet.planner.units import Unit
from fleet.schema.model import CoprQueue, DebusineQueue, Duration, Fleet, Pool, WorldQueue
from fleet.schema.remembered import remembered
from fleet.tagrules.allow import BadPattern, compile_pattern
from fleet.tagrules.names import names_of

Made = Callable[[], Iterable[Attempt]]
"""Returns the tries to make machines that are remembered, whatever became of them."""
_MADE = ("starting", "registered", "gone", "failed")
"""What a try ends as that made a machine."""
_MOST = 1000
"""Of more runs of a package on a machine type the latest count."""


class Run(NamedTuple):
    """A run that ended, on a machine that is known by its name."""

    task: str
    package: str
    machine: str
    began: datetime
    seconds: int


def by_type(runs: Iterable[Run], attempts: Iterable[Attempt]) -> tuple[TaskRuns, ...]:
    """Return how long runs took, by task, package and machine type."""
    made: defaultdict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for attempt in attempts:
        if attempt.result in _MADE:
            made[attempt.worker].append((attempt.at, attempt.type))
    for each in made.values():
        each.sort()
    found: defaultdict[tuple[str, str, str], list[tuple[datetime, int]]] = defaultdict(list)
    for run in runs:
        number = bisect_right(made.get(run.machine, ()), run.began, key=_moment)
        if number:
            _, kind = made[run.machine][number - 1]
            found[run.task, run.package, kind].append((run.began, run.seconds))
    return tuple(
        TaskRuns(
            task=task,
            package=package,
            machine=kind,
            seconds=tuple(seconds for _, seconds in sorted(took)[-_MOST:]),
        )
        for (task, package, kind), took in sorted(found.items())
    )


def _moment(made: tuple[datetime, str]) -> datetime:
    return made[0]


LEAST_RUNS = 3
"""Fewer runs on a machine type are no sample."""
LEAST_TYPES = 2


class Fitted(NamedTuple):
    """What history says of a package on one machine type."""

    type: str
    seconds: int
    """The median run."""
    runs: int


Fits = Mapping[tuple[str, str], tuple[Fitted, ...]]
"""Task and package to what is known of two machine types or more, that with most runs first."""


def fit(world: World) -> Fits:
    """Return what the runs that queues tell of say of each package."""
    runs: defaultdict[tuple[str, str], defaultdict[str, list[int]]]
    runs = defaultdict(lambda: defaultdict(list))
    for reading in world.queues.values():
        for each in reading.demand.runs if isinstance(reading.demand, Demand) else ():
            runs[each.task, each.package][each.machine] += each.seconds
    fits = {about: _of_types(types) for about, types in runs.items()}
    return {about: fitted for about, fitted in fits.items() if len(fitted) >= LEAST_TYPES}


def _fits_of(fleet: Fleet, world: World) -> Fits:
    """Return the same fits for worlds whose queues tell the same objects, as in a simulation."""
    runs = tuple(demand.runs for _, demand in world.demands())
    return remembered(fleet, "fits of runs", runs, lambda: fit(world))


def describe_fit(fitted: tuple[Fitted, ...]) -> str:
    """Return what a fit rests on, as `fitted from 7 runs on ccx33 and 5 on ccx63`."""
    first, *others = fitted
    said = [f"{first.runs} runs on {first.type}", *(f"{x.runs} on {x.type}" for x in others)]
    return f"fitted from {', '.join(said[:-1])} and {said[-1]}"


def _of_types(types: Mapping[str, list[int]]) -> tuple[Fitted, ...]:
    known = (
        Fitted(name, max(1, round(median(seconds))), len(seconds))
        for name, seconds in types.items()
        if len(seconds) >= LEAST_RUNS
    )
    return tuple(sorted(known, key=lambda each: (-each.runs, each.type)))


USUAL_SPEED = 100
"""Percent; of a machine that what names no machine was measured on."""
USUAL = 3600
"""Seconds that work is taken to run for where nothing says how long, and one figure is needed."""
ANY = "any"
"""The key of `durations` that stands for every task without one of its own."""
PARALLEL = 90
"""Percent of the work that more cores share, where `durations` does not say."""


class Kind(NamedTuple):
    """A machine, as far as the time that work takes depends on it."""

    type: str
    cores: int
    """0: unknown."""
    speed: int = 0
    """Percent of the usual speed; 0: not stated."""


NO_KIND = Kind("", 0)
"""A machine of an unknown type."""


@dataclass(frozen=True)
class Timing:
    """How the time of requests depends on their machine, and how long they may run."""

    stated: tuple[tuple[str, int], ...] = ()
    """Machine type to the seconds that are stated for it."""
    measured: int | None = None
    """Of these the seconds on the machine that expected times were measured on."""
    cores: int = 0
    """The cores of that machine; 0: unknown."""
    parallel: int = PARALLEL
    deadline: int | None = None
    """Seconds after which the queue ends what runs."""
    speed: int = 0
    """Percent of the usual speed of the machine measured on; 0: not stated, or no speed is."""
    fitted: tuple[Fitted, ...] = ()
    """What history says of machine types."""
    own_deadline: bool = False
    """The deadline is the request's own, and not that of its queue."""

    @property
    def said(self) -> list[object]:
        """Return what tells it from another of its queue; nothing where machines are alike."""
        said: list[object] = [f"deadline {self.deadline}"] if self.own_deadline else []
        said += [f"speed {self.speed}"] if self.speed else []
        if not (self.stated or self.cores or self.fitted):
            return said
        return [*self.stated, self.measured, self.cores, self.parallel, *self.fitted, *said]

    def on(self, kind: Kind, expected: int | None) -> int | None:
        """Return how long what is expected to take so long runs on a machine."""
        if expected is None:
            return None
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

    def source_on(self, kind: Kind) -> str:
        """Return what its time there comes from; nothing where it is stated, or as elsewhere."""
        if self._stated_on(kind) is not None:
            return ""
        if any(each.type == kind.type for each in self.fitted):
            return describe_fit(self.fitted)
        if self.speed and kind.speed and self.speed != kind.speed:
            return f"by its speed, {kind.speed}% to {self.speed}%"
        if self.cores and kind.cores and self.cores != kind.cores:
            return f"by its cores, {kind.cores} to {self.cores}, which share {self.parallel}%"
        return ""

    def slowest(self, kinds: Iterable[Kind], expected: int | None) -> int | None:
        """Return how long it runs on the slowest of some machines."""
        if expected is None:
            return None
        return max((self.on(kind, expected) or 0 for kind in kinds), default=expected)

    def is_late(self, kinds: Iterable[Kind], expected: int | None) -> bool:
        """Say whether it cannot end in time there; an unknown duration may."""
        takes = self.slowest(kinds, expected)
        return self.deadline is not None and takes is not None and takes > self.deadline

    def _stated_on(self, kind: Kind) -> int | None:
        return next((seconds for name, seconds in self.stated if name == kind.type), None)


Expected = tuple[int | None, Timing | None]
"""How long a request is expected to run on the machine that was measured (None: nothing says so),
and what that depends on (None: every machine takes as long, for as long as it likes)."""


class _Known(NamedTuple):
    """What is known of requests that are alike."""

    stated: int | None
    timing: Timing | None
    fitted: int | None
    """The seconds that history says of the machine measured on, where none are stated of it."""

    def expected(self, history: int | None) -> int | None:
        """Return how long one is expected to run, of which its queue's history says this."""
        if self.fitted is not None:
            return self.fitted
        return self.stated if history is None else history


class Durations:
    """What history, `durations` and deadlines say of work that waits or runs."""

    def __init__(self, fleet: Fleet, world: World, *, assumed: int | None = None) -> None:
        self._fleet = fleet
        self._assumed = assumed
        """Seconds that a busy worker works in all where nothing says so; None: unknown."""
        self._fits = _fits_of(fleet, world)
        self._deadlines = {name: deadline_of(fleet, name) for name in fleet.queues}
        self._named = not all(isinstance(each, int) for each in fleet.durations.values())
        """What is stated depends on the package."""
        self._usual = USUAL_SPEED if any(_speeds(fleet)) else 0
        self._known: dict[tuple[object, ...], _Known] = {}

    def of(self, queue: str, request: Request) -> Expected:
        """Return how long a waiting request is expected to run."""
        names: tuple[str, ...] = ()
        if self._named:
            names = names_of(request)
        own = request.deadline_seconds
        deadline = self._deadlines.get(queue) if own is None else own
        about = (request.task, request.package)
        known = self._of(about, names, deadline, is_own=own is not None)
        return known.expected(request.expected_seconds), known.timing

    def remaining(self, worker: Worker, now: datetime, kind: Kind = NO_KIND) -> int | None:
        """Return how many seconds a busy worker is expected to stay so; None: nothing says so."""
        left = self.left(worker, now, kind)
        return None if left is None else -(-left // timedelta(seconds=1))

    def left(self, worker: Worker, now: datetime, kind: Kind = NO_KIND) -> timedelta | None:
        """Return how long a busy worker is expected to stay so; None when nothing says so.

        None is `assumed` where that is given. Work that has outlived its expectation is expected
        to take as long again as it has taken, halved: its end is unknown, and not in this very
        second.
        """
        assumed = None if self._assumed is None else timedelta(seconds=self._assumed)
        work = worker.work
        if work is None:
            return assumed
        known = self._of((work.task, work.package), work.names if self._named else (), None)
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

    def _of(
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
            timed = self._timed(_entries(self._fleet, task, names), fitted)
            stated, timing, measured = timed
            if deadline is not None:
                timing = replace(timing or Timing(), deadline=deadline, own_deadline=is_own)
            known = self._known[key] = _Known(stated, timing, measured)
        return known

    def _timed(self, entries: Sequence[Duration], fitted: tuple[Fitted, ...]) -> _Known:
        """Return what is stated and fitted of requests."""
        takes = next((each.takes for each in entries if each.takes is not None), None)
        first = next((each for each in entries if each.machine or each.cores), None)
        if first is None and not fitted:
            return _Known(takes, Timing(speed=self._usual) if self._usual else None, None)
        first = first or Duration.model_construct(machine=fitted[0].type)
        stated: dict[str, int] = {}
        for each in entries:
            if each.machine is not None and each.takes is not None:
                stated.setdefault(each.machine, each.takes)
        named = [*types_named(self._fleet, first.machine)] if first.machine else []
        shares = (each.parallel for each in entries if each.parallel is not None)
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


def deadline_of(fleet: Fleet, queue: str) -> int | None:
    """Return how long what waits in a queue may run; None: for as long as it likes."""
    declared = fleet.queues.get(queue)
    if isinstance(declared, CoprQueue | DebusineQueue | WorldQueue):
        return declared.deadline
    return None


def _entries(fleet: Fleet, task: str, names: tuple[str, ...]) -> list[Duration]:
    """Return what is stated of a task and of requests with these names, the first counts first."""
    found: list[Duration] = []
    for key in dict.fromkeys((task, ANY)):
        stated = fleet.durations.get(key)
        if isinstance(stated, int):
            found.append(Duration.model_construct(takes=stated))
        elif stated is not None:
            found += [each for each in stated if is_about(each.match, names)]
    return found


def patterns_of(fleet: Fleet) -> tuple[str, ...]:
    """Return the patterns of packages in `durations`, each once."""
    stated = (each for each in fleet.durations.values() if isinstance(each, list))
    found = (each.match for entries in stated for each in entries if each.match is not None)
    return tuple(dict.fromkeys(found))


def is_about(pattern: str | None, names: Iterable[str]) -> bool:
    """Say whether a pattern takes one of these names; no pattern takes all."""
    if pattern is None:
        return True
    try:
        return any(compile_pattern(pattern).takes(name) for name in names)
    except BadPattern:
        return False


def _speeds(fleet: Fleet) -> Iterator[int]:
    """Yield the speeds that are stated of machine types."""
    for provider in fleet.providers.values():
        yield from (sold.speed for sold in provider.own_types.values() if sold.speed)
    for pool in fleet.dynamic_pools.values():
        if not isinstance(pool.machine, str) and pool.machine.speed:
            yield pool.machine.speed


def kind_at(fleet: Fleet, pool: str, name: str | None) -> Kind:
    """Return what a machine of this type is in a pool."""
    declared = fleet.pools.get(pool)
    if not name or not isinstance(declared, Pool):
        return NO_KIND
    known = find_type(fleet, declared, name)
    return Kind(name, known.cores, known.speed) if known else Kind(name, 0)


def kind_of(fleet: Fleet, pool: str, unit: Unit) -> Kind:
    """Return what a unit's machine is; of an unlisted one, what it was made from."""
    made = unit.machine or unit.inputs
    return kind_at(fleet, pool, made.type if made else None)
