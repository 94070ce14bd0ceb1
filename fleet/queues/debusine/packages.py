"""This module says what a source package decides: which rules take it, what its history asks for.

A queue holds tens of thousands of packages, and few of them decide anything: the others need not
be told apart. Those for which the same follows are one class, whatever they are called.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from fleet.demand.durations import is_about, patterns_of
from fleet.facts import Request, TaskHistory
from fleet.queues.debusine.earlier import read_peaks
from fleet.queues.debusine.looks import ARCHITECTURE_FIELDS, Looks
from fleet.queues.debusine.rows import PACKAGE_TAG
from fleet.schema.model import Fleet
from fleet.tagrules.history import needed
from fleet.tagrules.names import ANY_ARCHITECTURE, SOURCE_ARCHITECTURE, names_of
from fleet.tagrules.told import Told

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection
    from fleet.tagrules.allow import AllowList

_BUILD_ARCH = "worker:build-arch:"
_WAITING = """
 WHERE r.status = 'pending' AND r.worker_id IS NULL AND r.task_type = 'Worker'
   AND s.name = ANY(%(scopes)s::text[])"""
_IN_SCOPE = """
  FROM db_workrequest r JOIN db_workspace v ON v.id = r.workspace_id
                        JOIN db_scope s ON s.id = v.scope_id"""
_PLACES = (
    "SELECT DISTINCT v.id, s.name, v.name, t"
    + _IN_SCOPE
    + " CROSS JOIN LATERAL unnest(r.scheduler_tags_provided) t"
    + _WAITING
    + " AND starts_with(t, %(prefix)s)"
)
_REQUIRED = "SELECT DISTINCT r.scheduler_tags_required" + _IN_SCOPE + _WAITING
_WRITTEN = (
    "SELECT DISTINCT coalesce(r.task_data ->> %(field)s, r.dynamic_task_data ->> %(field)s)"
    + _IN_SCOPE
    + _WAITING
)


class Place(NamedTuple):
    """A source package in a workspace, whose own id comes first."""

    workspace_id: int
    scope: str
    workspace: str
    package: str


class _Decided(NamedTuple):
    """What may follow from a package."""

    taken: tuple[tuple[int, ...], ...]
    """The rules that take it, for each architecture that may stand in a name; below 0 those of
    `durations`."""
    asked: tuple[tuple[str, tuple[object, ...]], ...]
    """What its history asks for, for each task."""


class Decider:
    """Says what follows from a package, by this fleet.yaml and by what earlier runs used."""

    def __init__(self, fleet: Fleet, today: date, history: Iterable[TaskHistory] = ()) -> None:
        self._rules = [rule for rule in fleet.derive if rule.history is not None]
        self._told = Told(history={(each.task, each.package): (each,) for each in history})
        self._tasks: defaultdict[str, set[str]] = defaultdict(set)
        for task, package in self._told.history:
            self._tasks[package].add(task)
        self._allowed = _compile(fleet, today) if fleet.powerful else None
        self._timed = patterns_of(fleet)

    def of_place(self, place: Place, architectures: Iterable[str]) -> _Decided | None:
        """Return what may follow from a package for any request about it; None: nothing does."""
        _, scope, workspace, package = place
        names = (f"{scope}/{workspace}/{each}/{package}" for each in architectures)
        tasks = sorted(self._tasks.get(package, ()))
        found = _Decided(
            tuple(map(self._taken, names)),
            tuple((task, self._asked(task, package)) for task in tasks),
        )
        return found if any(found.taken) or any(any(asked) for _, asked in found.asked) else None

    def of_request(self, request: Request) -> Hashable | None:
        """Return what follows from the name of one request; None where nothing does."""
        rules = self._allowed.rules_for(request) if self._allowed else ()
        names = (*names_of(request), request.package or "")
        taken = (*(rule.index for rule in rules), *self._lasting(names))
        asked = self._asked(request.task, request.package)
        return (taken, asked) if taken or any(asked) else None

    def _taken(self, name: str) -> tuple[int, ...]:
        rules = self._allowed.rules_for_name(name) if self._allowed else ()
        names = (name, name.rpartition("/")[2])
        return (*(rule.index for rule in rules), *self._lasting(names))

    def _lasting(self, names: tuple[str, ...]) -> Iterator[int]:
        """Yield the patterns of `durations` that take a name, counted from -1 down."""
        for number, pattern in enumerate(self._timed):
            if is_about(pattern, names):
                yield -1 - number

    def _asked(self, task: str, package: str | None) -> tuple[object, ...]:
        request = Request(id="any", task=task, package=package)
        return tuple(needed(rule, request, self._told, ()) for rule in self._rules)


@dataclass(frozen=True)
class Packages:
    """The packages that wait and decide something, by class."""

    decider: Decider
    classes: Mapping[Place, int] = field(default_factory=dict)
    history: tuple[TaskHistory, ...] = ()
    by_architecture: bool = False
    """For some package another rule is right for another architecture."""

    @property
    def alone(self) -> frozenset[str]:
        """Return packages that share their class with no other: their group is about them."""
        of_class: defaultdict[int, set[str]] = defaultdict(set)
        for place, number in self.classes.items():
            of_class[number].add(place.package)
        return frozenset(min(names) for names in of_class.values() if len(names) == 1)


def read_packages(
    connection: "Connection", scopes: Sequence[str], looks: Looks, *, of: tuple[Fleet, date]
) -> Packages:
    """Return the classes of packages that wait, as far as this fleet.yaml looks at any today."""
    if not (looks.named or looks.history):
        return Packages(Decider(*of))
    values: dict[str, object] = {"scopes": list(scopes), "prefix": PACKAGE_TAG}
    rows = connection.execute(_PLACES, values).fetchall()
    places = [
        Place(number, scope, workspace, tag.removeprefix(PACKAGE_TAG))
        for number, scope, workspace, tag in rows
    ]
    history: tuple[TaskHistory, ...] = ()
    if looks.history:
        history = read_peaks(connection, {place.package for place in places})
    decider = Decider(*of, history)
    architectures = _architectures(connection, values) if looks.named else ()
    numbers: dict[_Decided, int] = {}
    classes: dict[Place, int] = {}
    for place in places:
        decided = decider.of_place(place, architectures)
        if decided is not None:
            classes[place] = numbers.setdefault(decided, len(numbers))
    by_architecture = any(len(set(decided.taken)) > 1 for decided in numbers)
    return Packages(decider, classes, history, by_architecture)


def _compile(fleet: Fleet, today: date) -> "AllowList":
    # Patterns need RE2, which a file without them does not load.
    from fleet.tagrules.allow import AllowList

    return AllowList(fleet, today)


def _architectures(connection: "Connection", values: dict[str, object]) -> tuple[str, ...]:
    """Return every architecture that may stand in the name of what waits."""
    found = {ANY_ARCHITECTURE, SOURCE_ARCHITECTURE}
    for (required,) in connection.execute(_REQUIRED, values):
        found |= {tag[len(_BUILD_ARCH) :] for tag in required if tag.startswith(_BUILD_ARCH)}
    for name in ARCHITECTURE_FIELDS:
        rows = connection.execute(_WRITTEN, values | {"field": name})
        found |= {written for (written,) in rows if written}
    return tuple(sorted(found))
