"""Read Debusine's waiting requests and past runs from its database, grouped by used fields.

The order of the queue is by priority, then by creation. A group has the age and id of its oldest
request. Of past runs, only the latest are read, because the table of a server grows without limit.
Only ids are roughly in the order in which runs ended.

The required tags, task and priority of a request are always read, since they decide on its
workers, its duration and its order. Debusine does not report who requested a tag, so `asked_by` is
not evaluated here. The allow-list and histories use a request's name, but only by its effects: see
`Packages`.

A queue has tens of thousands of packages. Few packages affect a decision; the others need not be
distinguished. Packages with the same effects are one class, whatever their names.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from fleet.errors import SourceUnreachable
from fleet.model.facts import MAX_COUNT, Request, TaskHistory
from fleet.model.values import MOST, moment_or_none
from fleet.planner.durations import FinishedRun, is_about, patterns_of
from fleet.queues.debusine import changes
from fleet.queues.debusine.rows import (
    GROUP_TAG,
    LONGEST,
    PACKAGE_TAG,
    TIMED_TASK,
    environment_of,
    groups_of,
    keep,
    list_environments,
    order,
    package_of,
)
from fleet.schema.model import Fleet
from fleet.tagrules.allow import AllowList
from fleet.tagrules.derive import ENVIRONMENTS, QueueContext, at_path, needed_by_history
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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The age of a request that was created outside this range is unknown.
_FIRST = datetime(1969, 12, 31, tzinfo=UTC)
_LAST = datetime(2201, 1, 1, tzinfo=UTC)
_SCOPES = 'SELECT s.name FROM db_scope s ORDER BY s.name COLLATE "C"'
# Unused fields are constants, so that they split no group. The smallest pair of age and id belongs
# to the oldest request; a double distinguishes microseconds. Values in task data precede values
# that the server derived from it. PostgreSQL plans a WITH separately. So it does not estimate one
# group per task data, and each of its processes counts its own rows instead of sending all rows to
# one process.
_GROUPS = """\
SELECT task, required, priority, provided, class, scope, workspace, submitter, data, deadline,
       count(*), min(ARRAY[since, id])
  FROM (
WITH classes AS MATERIALIZED (
    SELECT * FROM unnest(%(workspaces)s::bigint[], %(tags)s::text[], %(numbers)s::int[])
                  c(workspace_id, tag, class))
SELECT r.task_name AS task, r.scheduler_tags_required AS required,
       greatest(least(r.priority_base::bigint + r.priority_adjustment, %(most)s), -%(most)s)::int
           AS priority,
       {provided} AS provided,
       {klass} AS class,
       CASE WHEN %(scope)s THEN s.name END AS scope,
       CASE WHEN %(workspace)s THEN v.name END AS workspace,
       CASE WHEN %(submitter)s THEN r.created_by_id END AS submitter,
       {data} AS data,
       CASE WHEN r.task_name = %(timed)s
             AND jsonb_typeof(r.task_data #> '{{timeout,global}}') = 'number'
            THEN greatest(0, least((r.task_data #>> '{{timeout,global}}')::numeric,
                                   %(longest)s))::int
       END AS deadline,
       (date_part('epoch', greatest(least(r.created_at, %(last)s::timestamptz),
                                    %(first)s::timestamptz)) * 1000000)::bigint
           AS since, r.id AS id
  FROM db_workrequest r JOIN db_workspace v ON v.id = r.workspace_id
                        JOIN db_scope s ON s.id = v.scope_id
  {join}
 WHERE r.status = 'pending' AND r.worker_id IS NULL AND r.task_type = 'Worker'
   AND s.name = ANY(%(scopes)s::text[])
  ) waiting
 GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"""
# The tag is looked up once per request. In the condition of a join, the planner would expect it
# per pair, and would plan all later steps as if they had no cost.
_JOIN = """\
LEFT JOIN LATERAL (SELECT t FROM unnest(r.scheduler_tags_provided) t
                      WHERE starts_with(t, %(prefix)s) LIMIT 1) p ON true
  LEFT JOIN classes c ON c.workspace_id = r.workspace_id AND c.tag = p.t"""
# The used tags that a request provides, as bits: grouping by a number takes a third of the time of
# grouping by an array of tags.
_BIT = (
    "CASE WHEN %(tag_{number})s::varchar = ANY(r.scheduler_tags_provided)"
    " THEN {bit}::bigint ELSE 0 END"
)
_BITS = 60
_VALUE = (
    "CASE WHEN r.task_data ? {key} THEN r.task_data #> {path}"
    " ELSE r.dynamic_task_data #> {path} END"
)
_OLDEST = """\
SELECT r.id, s.name, v.name, r.scheduler_tags_provided, {data}
  FROM db_workrequest r JOIN db_workspace v ON v.id = r.workspace_id
                        JOIN db_scope s ON s.id = v.scope_id WHERE r.id = ANY(%(ids)s::bigint[])"""
_ENVIRONMENTS = """\
SELECT DISTINCT jsonb_build_object('environment_id', r.dynamic_task_data -> 'environment_id',
       'task_input_fields', jsonb_build_object('environment',
            r.dynamic_task_data #> '{task_input_fields,environment}'))
  FROM db_workrequest r JOIN db_workspace v ON v.id = r.workspace_id
                        JOIN db_scope s ON s.id = v.scope_id
 WHERE r.status = 'pending' AND r.task_type = 'Worker' AND s.name = ANY(%(scopes)s::text[])
   AND r.dynamic_task_data ? 'environment_id'"""


def check_scopes(connection: "Connection", scopes: Iterable[str]) -> None:
    """Raise SourceUnreachable if a scope is missing, since it would look like an empty scope."""
    there = [name for (name,) in connection.execute(_SCOPES).fetchall()]
    missing = sorted(set(scopes) - set(there))
    if missing:
        raise SourceUnreachable(
            f"the database has no scope {missing[0]}; it has {', '.join(there) or 'none'}: check "
            "the spelling of `scopes` in fleet.yaml"
        )


def read_groups(
    connection: "Connection", scopes: Sequence[str], looks: Looks, packages: Packages
) -> tuple[Request, ...]:
    """Return groups of requests without a worker, in the order in which Debusine serves them."""
    paths = tuple(sorted({*looks.paths, *(NAMED_PATHS if packages.by_architecture else ())}))
    brought = sorted(looks.provided)
    statement, values = _statement(looks, paths, brought, is_classed=bool(packages.classes))
    values |= {"timed": TIMED_TASK, "longest": LONGEST}
    values |= {"most": MOST, "first": _FIRST, "last": _LAST}
    values |= {
        "workspaces": [source.workspace_id for source in packages.classes],
        "tags": [PACKAGE_TAG + source.package for source in packages.classes],
        "numbers": list(packages.classes.values()),
    }
    rows = connection.execute(
        statement.encode(), values | {"scopes": list(scopes), "prefix": PACKAGE_TAG}
    ).fetchall()
    oldest = _read_oldest(connection, [row[-1][1] for row in rows if row[4] is not None])
    found: dict[Hashable, Request] = {}
    for row in rows:
        request = _request(row, paths, brought, oldest)
        # For a package without a class, the parts of its name were not read.
        is_classed = row[4] is not None
        decided = packages.decider.of_request(request) if is_classed else None
        plain = request
        if is_classed:
            # Without effects, the name distinguishes no groups.
            plain = request.altered(
                scope=request.scope if looks.scope else None,
                workspace=request.workspace if looks.workspace else None,
                package=None,
                task_data=keep({path: at_path(request.task_data, path) for path in looks.paths}),
            )
        kept = plain if decided is None else request
        # Groups may differ only in the order of tags, or in task data that is not kept.
        alike = (
            *(decided, plain.task, plain.priority, plain.deadline_seconds, plain.required),
            *(plain.provided, plain.scope, plain.workspace, plain.requester),
            repr(plain.task_data),
        )
        known = found.get(alike)
        if known is not None:
            both = min(known.count + kept.count, MAX_COUNT)
            kept = min(known, kept, key=order).altered(count=both)
        found[alike] = kept
    return tuple(sorted(found.values(), key=order))


def read_environments(
    connection: "Connection", scopes: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Map ids to environments that the server has looked up. Omit ids with contradictory data."""
    rows = connection.execute(_ENVIRONMENTS, {"scopes": list(scopes)})
    return list_environments(environment_of(data) for (data,) in rows)


def _statement(
    looks: Looks, paths: Sequence[str], brought: Sequence[str], *, is_classed: bool
) -> tuple[str, dict[str, object]]:
    """Return the SQL statement that reads the groups, and its parameters."""
    values: dict[str, object] = {
        "scope": looks.scope,
        "workspace": looks.workspace,
        "submitter": looks.submitter,
    }
    values |= {f"tag_{number}": tag for number, tag in enumerate(brought)}
    data, places = data_at(paths, unless={*paths} - {*looks.paths})
    values |= places
    bits = [_BIT.format(number=number, bit=1 << number % _BITS) for number in range(len(brought))]
    words = [" | ".join(bits[start : start + _BITS]) for start in range(0, len(bits), _BITS)]
    parts = {
        "join": _JOIN if is_classed else "",
        "klass": "c.class" if is_classed else "NULL::int",
        "provided": words[0] if len(words) == 1 else f"ARRAY[{', '.join(words)}]::bigint[]",
    }
    return _GROUPS.format(data=data, **parts), values


def data_at(
    paths: Sequence[str], *, unless: Collection[str] = ()
) -> tuple[str, dict[str, object]]:
    """Return the SQL expression for the values at these paths in task data, with parameters.

    Paths in `unless` are skipped if the package has no effects.
    """
    parts = []
    values: dict[str, object] = {}
    for number, path in enumerate(paths):
        part = _VALUE.format(key=f"%(key_{number})s", path=f"%(path_{number})s::text[]")
        parts.append(f"CASE WHEN c.class IS NOT NULL THEN {part} END" if path in unless else part)
        steps = path.split(".")
        values |= {f"key_{number}": steps[0], f"path_{number}": steps}
    return f"jsonb_build_array({', '.join(parts)})" if parts else "NULL::jsonb", values


class _NameParts(NamedTuple):
    """The parts of a request's name that are not in its required tags."""

    scope: str
    workspace: str | None = None
    tags: tuple[str, ...] = ()
    data: Sequence[object] = ()
    """Values in task data at NAMED_PATHS."""


def _read_oldest(connection: "Connection", ids: list[int]) -> dict[int, _NameParts]:
    """Map ids of requests to the parts of their names."""
    if not ids:
        return {}
    data, values = data_at(NAMED_PATHS)
    rows = connection.execute(_OLDEST.format(data=data).encode(), values | {"ids": ids})
    return {number: _NameParts(*named) for number, *named in rows}


def _request(
    row: tuple[Any, ...],
    paths: Sequence[str],
    brought: Sequence[str],
    oldest: Mapping[int, _NameParts],
) -> Request:
    """Convert a row of the statement to a request with the size of the group."""
    task, required, priority, provided, _, scope, workspace, submitter, found, *rest = row
    deadline, count, (since, number) = rest
    named = oldest.get(number, _NameParts(scope, workspace))
    data = dict(zip(paths, found or (), strict=True))
    data |= dict(zip(NAMED_PATHS, named.data, strict=False))
    # The bits count positions in `brought`.
    words = [provided] if isinstance(provided, int) else provided
    tags = tuple(
        tag for number, tag in enumerate(brought) if words[number // _BITS] >> number % _BITS & 1
    )
    return Request(
        id=str(number),
        count=min(count, MAX_COUNT),
        task=task,
        required=required,
        provided=tags,
        groups=groups_of(tags),
        priority=priority,
        pending_since=moment_or_none(_EPOCH + timedelta(microseconds=since)),
        requester=None if submitter is None else str(submitter),
        scope=named.scope,
        workspace=named.workspace,
        package=package_of(named.tags),
        task_data=keep(data),
        deadline_seconds=deadline if deadline and deadline > 0 else None,
    )
