"""Read past runs from Debusine's database, and find the packages that affect decisions.

Only the latest requests are read, because the table of a server grows without limit. Only ids are
roughly in the order in which runs ended.

The required tags, task and priority of a request are always read, since they decide on its
workers, its duration and its order. Debusine does not report who requested a tag, so `asked_by` is
not evaluated here. The allow-list and histories use a request's name, but only by its effects: see
`packages`.

A queue has tens of thousands of packages. Few packages affect a decision; the others need not be
distinguished. Packages with the same effects are one class, whatever their names.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from fleet.model.facts import Request, TaskHistory
from fleet.planner.durations import FinishedRun, is_about, patterns_of
from fleet.queues.debusine import changes
from fleet.queues.debusine.rows import GROUP_TAG, PACKAGE_TAG, package_of
from fleet.schema.model import Fleet
from fleet.tagrules.allow import AllowList
from fleet.tagrules.derive import ENVIRONMENTS, QueueContext, needed_by_history
from fleet.tagrules.names import ANY_ARCHITECTURE, SOURCE_ARCHITECTURE, names_of

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection


_MAX_REQUESTS_READ = 200_000
"""Number of the latest requests that are read, whatever their result."""
_MOST_RUNS = 1000
_SECONDS = """\
SELECT r.task_name, r.scheduler_tags_required,
       CASE WHEN %(separate)s THEN ARRAY(
            SELECT t FROM unnest(r.scheduler_tags_provided) t WHERE t = ANY(%(tags)s::text[]))
       END,
       count(*), sum(extract(epoch FROM r.completed_at - r.started_at))::float8
  FROM db_workrequest r
 WHERE r.id > (SELECT max(id) FROM db_workrequest) - %(looked_at)s AND r.status = 'completed'
   AND r.result = 'success' AND r.task_type = 'Worker' AND r.completed_at >= r.started_at
   AND r.completed_at <= r.started_at + interval '10000 days'
 GROUP BY 1, 2, 3"""
_RUNS = """\
SELECT u.task_name, u.tag, u.machine, u.started_at, u.seconds
  FROM (SELECT r.task_name, t AS tag, w.static_metadata ->> %(machine)s AS machine,
               r.started_at, extract(epoch FROM r.completed_at - r.started_at)::int AS seconds,
               row_number() OVER (PARTITION BY r.task_name, t ORDER BY r.id DESC) AS nth
          FROM db_workrequest r JOIN db_worker w ON w.id = r.worker_id
               CROSS JOIN LATERAL unnest(r.scheduler_tags_provided) t
         WHERE r.id > (SELECT max(id) FROM db_workrequest) - %(looked_at)s
           AND r.status = 'completed' AND r.result = 'success' AND r.task_type = 'Worker'
           AND r.completed_at >= r.started_at
           AND r.completed_at <= r.started_at + interval '10000 days' AND t = ANY(%(tags)s::text[])
           AND w.static_metadata ->> %(mark)s = %(fleet)s) u
 WHERE u.nth <= %(most)s AND u.machine IS NOT NULL"""
_RUNNING = """\
SELECT DISTINCT t
  FROM db_workrequest r CROSS JOIN LATERAL unnest(r.scheduler_tags_provided) t
 WHERE r.worker_id IS NOT NULL AND r.status = 'running' AND r.task_type = 'Worker'
   AND starts_with(t, %(prefix)s)"""
_MIB = 1_048_576
_PEAKS = """\
SELECT u.task_name, u.tag, array_agg(u.memory) FILTER (WHERE u.memory >= 0),
       array_agg(u.disk) FILTER (WHERE u.disk >= 0)
  FROM (SELECT r.task_name, t AS tag,
               CASE WHEN jsonb_typeof(s.used -> 'memory') = 'number'
                    THEN (s.used ->> 'memory')::numeric END AS memory,
               CASE WHEN jsonb_typeof(s.used -> 'disk_space') = 'number'
                    THEN (s.used ->> 'disk_space')::numeric END AS disk,
               row_number() OVER (PARTITION BY r.task_name, t ORDER BY r.id DESC) AS nth
          FROM db_workrequest r
               CROSS JOIN LATERAL (SELECT r.output_data -> 'runtime_statistics') s(used)
               CROSS JOIN LATERAL unnest(r.scheduler_tags_provided) t
         WHERE r.id > (SELECT max(id) FROM db_workrequest) - %(looked_at)s
           AND r.status = 'completed' AND r.result = 'success' AND r.task_type = 'Worker'
           AND t = ANY(%(tags)s::text[])) u
 WHERE u.nth <= %(most)s GROUP BY 1, 2"""

_About = tuple[str, tuple[str, ...], str | None]
"""Task, required tags and package of runs. None instead of a package means any package."""


@dataclass(frozen=True)
class Seconds:
    """Average durations of runs in seconds, by task and required tags, for one or all packages."""

    of: Mapping[_About, float] = field(default_factory=dict)

    def expected(self, task: str, required: tuple[str, ...], package: str | None) -> int | None:
        """Return the expected seconds of a request; None if no such run is known."""
        found = self.of.get((task, required, package), self.of.get((task, required, None)))
        return None if found is None else round(found)

    def expecting(self, request: Request) -> Request:
        """Add the expected duration to a request, if it is known."""
        found = self.expected(request.task, request.required, request.package)
        return request if found is None else request.altered(expected_seconds=found)


def read_seconds(connection: "Connection", packages: Collection[str]) -> Seconds:
    """Return average durations of the latest runs, and separate averages for these packages."""
    values = {
        "looked_at": _MAX_REQUESTS_READ,
        "tags": _tags(packages),
        "separate": bool(packages),
    }
    runs: Counter[_About] = Counter()
    seconds: defaultdict[_About, float] = defaultdict(float)
    for task, required, tags, count, total in connection.execute(_SECONDS, values):
        kind = (task, tuple(sorted(set(required))))
        for package in {package_of(tags or ()), None}:
            runs[*kind, package] += count
            seconds[*kind, package] += total
    return Seconds({about: seconds[about] / runs[about] for about in runs})


def read_runs(
    connection: "Connection", packages: Collection[str], fleet: str
) -> tuple[FinishedRun, ...]:
    """Return the latest successful runs of these packages on machines of this fleet."""
    if not packages:
        return ()
    values = {
        "looked_at": _MAX_REQUESTS_READ,
        "tags": _tags(packages),
        "most": _MOST_RUNS,
        "mark": changes.FLEET,
        "fleet": fleet,
        "machine": changes.MACHINE,
    }
    rows = connection.execute(_RUNS, values).fetchall()
    return tuple(
        FinishedRun(task, tag.removeprefix(PACKAGE_TAG), *ran) for task, tag, *ran in rows
    )


def running_packages(connection: "Connection") -> frozenset[str]:
    """Return the packages that workers are processing."""
    rows = connection.execute(_RUNNING, {"prefix": PACKAGE_TAG})
    return frozenset(tag.removeprefix(PACKAGE_TAG) for (tag,) in rows)


def read_peaks(connection: "Connection", packages: Collection[str]) -> tuple[TaskHistory, ...]:
    """Return the peak memory and disk (MiB) of the latest runs, per task and package."""
    values = {"looked_at": _MAX_REQUESTS_READ, "tags": _tags(packages), "most": _MOST_RUNS}
    rows = connection.execute(_PEAKS, values).fetchall()
    return tuple(
        TaskHistory(
            task=task,
            package=tag.removeprefix(PACKAGE_TAG),
            memory_mib=_sizes(memory),
            disk_mib=_sizes(disk),
        )
        for task, tag, memory, disk in sorted(rows, key=lambda row: row[:2])
    )


def _tags(packages: Iterable[str]) -> list[str]:
    return [PACKAGE_TAG + package for package in sorted(packages)]


def _sizes(found: Iterable[Decimal] | None) -> tuple[int, ...]:
    return tuple(-(-int(size) // _MIB) for size in found or () if size < _MIB * 10**9)


_SOURCE_BUILD = "build_components"
ARCHITECTURE_FIELDS = ("build_architecture", "host_architecture")
NAMED_PATHS = (*ARCHITECTURE_FIELDS, _SOURCE_BUILD)
"""Paths in task data that can be part of the name of a request, sorted."""


@dataclass(frozen=True)
class Looks:
    """The fields of requests that can affect a decision. Other fields are not read."""

    provided: Collection[str] = frozenset()
    """Tags that a worker or pool requires of requests. Other provided tags have no effect."""
    paths: tuple[str, ...] = ()
    """Paths in task data that rules use, sorted."""
    scope: bool = False
    workspace: bool = False
    submitter: bool = False
    environments: bool = False
    named: bool = False
    history: bool = False


def looks_of(fleet: Fleet, required_by_workers: Iterable[str] = ()) -> Looks:
    """Return the fields of requests that affect decisions, by fleet.yaml and workers' tags."""
    by_pools = {tag for pool in fleet.dynamic_pools.values() for tag in pool.requires}
    teams = fleet.teams.values()
    by_pools |= {GROUP_TAG + group for team in teams for group in team.groups}
    paths = {rule.from_ for rule in fleet.derive if rule.from_ is not None}
    if any(rule.source_build is not None for rule in fleet.derive):
        paths.add(_SOURCE_BUILD)
    per = {
        field
        for rule in fleet.tags.values()
        for field, most in rule.limits.per
        if most is not None
    }
    return Looks(
        provided=frozenset(by_pools | set(required_by_workers)),
        paths=tuple(sorted(paths)),
        scope="scope" in per
        or any(b.scope is not None for b in fleet.budgets.values())
        or any(team.scopes or team.workspaces for team in teams),
        workspace=any(team.workspaces for team in teams),
        submitter="submitter" in per or any(team.users or team.groups for team in teams),
        environments=any(rule.lookup == ENVIRONMENTS for rule in fleet.derive),
        named=bool(fleet.powerful or patterns_of(fleet)),
        history=any(rule.history is not None for rule in fleet.derive),
    )


_BUILD_ARCH = "worker:build-arch:"
_WAITING = """
 WHERE r.status = 'pending' AND r.worker_id IS NULL AND r.task_type = 'Worker'
   AND s.name = ANY(%(scopes)s::text[])"""
_IN_SCOPE = """
  FROM db_workrequest r JOIN db_workspace v ON v.id = r.workspace_id
                        JOIN db_scope s ON s.id = v.scope_id"""
_SOURCE_PACKAGES = (
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


class SourcePackage(NamedTuple):
    """A source package in a workspace, with the workspace's id in the database."""

    workspace_id: int
    scope: str
    workspace: str
    package: str


class _Decided(NamedTuple):
    """The possible effects of a package on decisions."""

    taken: tuple[tuple[int, ...], ...]
    """Matching rules per possible architecture. Negative numbers are patterns of `durations`."""
    asked: tuple[tuple[str, tuple[object, ...]], ...]
    """Pairs of a task and its requirements that follow from the package's history."""


class PackageEvaluator:
    """Finds which rules, durations and derived requirements apply to the builds of a package."""

    def __init__(self, fleet: Fleet, today: date, history: Iterable[TaskHistory] = ()) -> None:
        self._rules = [rule for rule in fleet.derive if rule.history is not None]
        self._context = QueueContext(
            history={(each.task, each.package): (each,) for each in history}
        )
        self._tasks: defaultdict[str, set[str]] = defaultdict(set)
        for task, package in self._context.history:
            self._tasks[package].add(task)
        self._allowed = AllowList(fleet, today) if fleet.powerful else None
        self._timed = patterns_of(fleet)

    def of_package(self, of: SourcePackage, architectures: Iterable[str]) -> _Decided | None:
        """Return the possible effects of a package on its requests; None without effects."""
        names = (f"{of.scope}/{of.workspace}/{each}/{of.package}" for each in architectures)
        tasks = sorted(self._tasks.get(of.package, ()))
        found = _Decided(
            tuple(map(self._find_matching_rules, names)),
            tuple((task, self._derive_minimums(task, of.package)) for task in tasks),
        )
        return found if any(found.taken) or any(any(asked) for _, asked in found.asked) else None

    def of_request(self, request: Request) -> Hashable | None:
        """Return the effects of the name of a request; None without effects."""
        rules = self._allowed.rules_for(request) if self._allowed else ()
        names = (*names_of(request), request.package or "")
        taken = (*(rule.index for rule in rules), *self._lasting(names))
        asked = self._derive_minimums(request.task, request.package)
        return (taken, asked) if taken or any(asked) else None

    def _find_matching_rules(self, name: str) -> tuple[int, ...]:
        rules = self._allowed.rules_for_name(name) if self._allowed else ()
        names = (name, name.rpartition("/")[2])
        return (*(rule.index for rule in rules), *self._lasting(names))

    def _lasting(self, names: tuple[str, ...]) -> Iterator[int]:
        """Yield matching patterns of `durations`: -1 for the first pattern, -2 for the second."""
        for number, pattern in enumerate(self._timed):
            if is_about(pattern, names):
                yield -1 - number

    def _derive_minimums(self, task: str, package: str | None) -> tuple[object, ...]:
        request = Request(id="any", task=task, package=package)
        return tuple(needed_by_history(rule, request, self._context, ()) for rule in self._rules)


@dataclass(frozen=True)
class Packages:
    """The waiting packages that affect a decision. Packages with equal effects have one class."""

    decider: PackageEvaluator
    classes: Mapping[SourcePackage, int] = field(default_factory=dict)
    history: tuple[TaskHistory, ...] = ()
    by_architecture: bool = False
    """Whether the matching rules of some package depend on the architecture."""

    @property
    def alone(self) -> frozenset[str]:
        """Return the packages that are alone in their class."""
        of_class: defaultdict[int, set[str]] = defaultdict(set)
        for source, number in self.classes.items():
            of_class[number].add(source.package)
        return frozenset(min(names) for names in of_class.values() if len(names) == 1)


def read_packages(
    connection: "Connection", scopes: Sequence[str], looks: Looks, *, of: tuple[Fleet, date]
) -> Packages:
    """Read the waiting packages and return their classes; empty if fleet.yaml uses no packages."""
    if not (looks.named or looks.history):
        return Packages(PackageEvaluator(*of))
    values: dict[str, object] = {"scopes": list(scopes), "prefix": PACKAGE_TAG}
    rows = connection.execute(_SOURCE_PACKAGES, values).fetchall()
    sources = [
        SourcePackage(number, scope, workspace, tag.removeprefix(PACKAGE_TAG))
        for number, scope, workspace, tag in rows
    ]
    history: tuple[TaskHistory, ...] = ()
    if looks.history:
        history = read_peaks(connection, {source.package for source in sources})
    decider = PackageEvaluator(*of, history)
    architectures = _architectures(connection, values) if looks.named else ()
    numbers: dict[_Decided, int] = {}
    classes: dict[SourcePackage, int] = {}
    for source in sources:
        decided = decider.of_package(source, architectures)
        if decided is not None:
            classes[source] = numbers.setdefault(decided, len(numbers))
    by_architecture = any(len(set(decided.taken)) > 1 for decided in numbers)
    return Packages(decider, classes, history, by_architecture)


def _architectures(connection: "Connection", values: dict[str, object]) -> tuple[str, ...]:
    """Return all architectures that the name of a waiting request may contain."""
    found = {ANY_ARCHITECTURE, SOURCE_ARCHITECTURE}
    for (required,) in connection.execute(_REQUIRED, values):
        found |= {tag[len(_BUILD_ARCH) :] for tag in required if tag.startswith(_BUILD_ARCH)}
    for name in ARCHITECTURE_FIELDS:
        rows = connection.execute(_WRITTEN, values | {"field": name})
        found |= {written for (written,) in rows if written}
    return tuple(sorted(found))
