"""This module says how long work is expected to run, on which machine, and how long it may.

What a queue's history tells of a request comes first, else `durations`. Both are of the machine
that `durations` names as the one they were measured on: on another, work takes what is stated for
that one, else what its cores make of it by Amdahl's law. Where no machine is named, every machine
takes as long.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from fleet.catalogue import cores_of_type
from fleet.census.units import Unit
from fleet.facts import Request, Worker
from fleet.schema.model import CoprQueue, DebusineQueue, Duration, Fleet, Pool, WorldQueue

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
    """0: nobody knows."""


NO_KIND = Kind("", 0)
"""A machine of which nobody knows what it is."""


@dataclass(frozen=True)
class Timing:
    """How the time of requests depends on their machine, and how long they may run."""

    stated: tuple[tuple[str, int], ...] = ()
    """Machine type to the seconds that are stated for it."""
    measured: int | None = None
    """Of these the seconds on the machine that expected times were measured on."""
    cores: int = 0
    """The cores of that machine; 0: nobody knows."""
    parallel: int = PARALLEL
    deadline: int | None = None
    """Seconds after which the queue ends what runs."""

    @property
    def said(self) -> list[object]:
        """Return what tells it from another of its queue; nothing where machines are alike."""
        if not (self.stated or self.cores):
            return []
        return [*self.stated, self.measured, self.cores, self.parallel]

    def on(self, kind: Kind, expected: int | None) -> int | None:
        """Return how long what is expected to take so long runs on a machine."""
        if expected is None:
            return None
        stated = next((seconds for name, seconds in self.stated if name == kind.type), None)
        if stated is not None:
            return -(-expected * stated // self.measured) if self.measured else stated
        if not (self.cores and kind.cores):
            return expected
        serial = 100 - self.parallel
        before = kind.cores * (serial * self.cores + self.parallel)
        after = self.cores * (serial * kind.cores + self.parallel)
        return -(-expected * after // before)

    def slowest(self, kinds: Iterable[Kind], expected: int | None) -> int | None:
        """Return how long it runs on the slowest of some machines."""
        if expected is None:
            return None
        return max((self.on(kind, expected) or 0 for kind in kinds), default=expected)

    def is_late(self, kinds: Iterable[Kind], expected: int | None) -> bool:
        """Say whether it cannot end in time there; what nobody knows may."""
        takes = self.slowest(kinds, expected)
        return self.deadline is not None and takes is not None and takes > self.deadline


Expected = tuple[int | None, Timing | None]
"""How long a request is expected to run on the machine that was measured (None: nothing says so),
and what that depends on (None: every machine takes as long, for as long as it likes)."""


class Durations:
    """What `durations` and `deadline` say of waiting requests."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._deadlines = {name: deadline_of(fleet, name) for name in fleet.queues}
        self._named = not all(isinstance(each, int) for each in fleet.durations.values())
        """What is stated depends on the package."""
        self._known: dict[tuple[object, ...], Expected] = {}

    def of(self, queue: str, request: Request) -> Expected:
        """Return how long a waiting request is expected to run."""
        deadline = self._deadlines.get(queue)
        names: tuple[str, ...] = ()
        if self._named:
            from fleet.tagrules.names import names_of

            names = (*names_of(request), *([request.package] if request.package else ()))
        key = (request.task, names, deadline)
        if key not in self._known:
            self._known[key] = _stated(self._fleet, request.task, names, deadline)
        takes, timing = self._known[key]
        return takes if request.expected_seconds is None else request.expected_seconds, timing


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
    # Patterns need RE2, which a file without them does not load.
    from fleet.tagrules.allow import BadPattern, compile_pattern

    try:
        return any(compile_pattern(pattern).takes(name) for name in names)
    except BadPattern:
        return False


def _stated(fleet: Fleet, task: str, names: tuple[str, ...], deadline: int | None) -> Expected:
    """Return what is stated of a task and of requests with these names."""
    entries = _entries(fleet, task, names)
    takes = next((each.takes for each in entries if each.takes is not None), None)
    first = next((each for each in entries if each.machine or each.cores), None)
    if first is None:
        return takes, None if deadline is None else Timing(deadline=deadline)
    stated: dict[str, int] = {}
    for each in entries:
        if each.machine is not None and each.takes is not None:
            stated.setdefault(each.machine, each.takes)
    shares = (each.parallel for each in entries if each.parallel is not None)
    return takes, Timing(
        stated=tuple(stated.items()),
        measured=stated.get(first.machine) if first.machine else None,
        cores=first.cores or _cores_of(fleet, first.machine or ""),
        parallel=next(shares, PARALLEL),
        deadline=deadline,
    )


def _cores_of(fleet: Fleet, kind: str) -> int:
    """Return the cores of a machine type, wherever it is sold; 0 where nobody knows."""
    found = (cores_of_type(fleet, provider, kind) for provider in sorted(fleet.providers))
    return next((cores for cores in found if cores), 0)


def kind_at(fleet: Fleet, pool: str, name: str | None) -> Kind:
    """Return what a machine of this type is in a pool."""
    declared = fleet.pools.get(pool)
    if not name or not isinstance(declared, Pool):
        return NO_KIND
    return Kind(name, cores_of_type(fleet, declared.provider, name, declared))


def kind_of(fleet: Fleet, pool: str, unit: Unit) -> Kind:
    """Return what a unit's machine is; of one that nobody lists, what it was made from."""
    made = unit.machine or unit.inputs
    return kind_at(fleet, pool, made.type if made else None)


def remaining_seconds(
    fleet: Fleet, worker: Worker, now: datetime, kind: Kind = NO_KIND
) -> int | None:
    """Return how long a busy worker is expected to stay so; None when nothing says so.

    Work that has outlived its expectation is expected to take as long again as it has taken,
    halved: nobody knows, and it is not about to end in this second.
    """
    work = worker.work
    if work is None:
        return None
    names = (*work.names, *([work.package] if work.package else ()))
    expected, timing = _stated(fleet, work.task, names, None)
    if work.expected_seconds is not None:
        expected = work.expected_seconds
    if timing is not None:
        expected = timing.on(kind, expected)
    started = work.started_at or worker.since
    if expected is None or started is None:
        return None
    elapsed = max(0, int((now - started).total_seconds()))
    return expected - elapsed if elapsed < expected else max(60, elapsed // 2)
