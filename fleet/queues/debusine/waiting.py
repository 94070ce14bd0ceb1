"""Read Debusine's waiting requests from its database, grouped by fields of fleet.yaml.

The order of the queue is by priority, then by creation. A group has the age and id of its oldest
request.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from fleet.errors import SourceUnreachable
from fleet.model.facts import MAX_COUNT, Request
from fleet.model.values import MOST, moment_or_none
from fleet.queues.debusine.packages import NAMED_PATHS, Looks, Packages
from fleet.queues.debusine.rows import (
    LONGEST,
    PACKAGE_TAG,
    TIMED_TASK,
    environment_of,
    groups_of,
    keep,
    package_of,
)
from fleet.tagrules.derive import at_path

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection

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
    values |= _classes(packages) | {"timed": TIMED_TASK, "longest": LONGEST}
    values |= {"most": MOST, "first": _FIRST, "last": _LAST}
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
        plain = _without_name(request, looks) if is_classed else request
        kept = plain if decided is None else request
        # Groups may differ only in the order of tags, or in task data that is not kept.
        alike = (decided, _build_identity(plain))
        known = found.get(alike)
        found[alike] = kept if known is None else _join_requests(known, kept)
    return tuple(sorted(found.values(), key=_order))


def read_environments(
    connection: "Connection", scopes: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Map ids to environments that the server has looked up. Omit ids with contradictory data."""
    found: dict[str, list[dict[str, str]]] = {}
    for (data,) in connection.execute(_ENVIRONMENTS, {"scopes": list(scopes)}):
        environment = environment_of(data)
        if environment is not None:
            number, record = environment
            if record not in found.setdefault(number, []):
                found[number].append(record)
    return {number: records[0] for number, records in found.items() if len(records) == 1}


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
    parts = {
        "join": _JOIN if is_classed else "",
        "klass": "c.class" if is_classed else "NULL::int",
        "provided": _bits_of(len(brought)),
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


def _bits_of(count: int) -> str:
    """Return SQL for a bit set of the used tags that a request provides."""
    bits = [_BIT.format(number=number, bit=1 << number % _BITS) for number in range(count)]
    words = [" | ".join(bits[start : start + _BITS]) for start in range(0, count, _BITS)]
    return words[0] if len(words) == 1 else f"ARRAY[{', '.join(words)}]::bigint[]"


def _tags_of(found: int | Sequence[int], brought: Sequence[str]) -> tuple[str, ...]:
    """Convert a bit set to the tags in it. Bits count positions in `brought`."""
    words = [found] if isinstance(found, int) else found
    return tuple(
        tag for number, tag in enumerate(brought) if words[number // _BITS] >> number % _BITS & 1
    )


def _classes(packages: Packages) -> dict[str, object]:
    sources = list(packages.classes)
    return {
        "workspaces": [source.workspace_id for source in sources],
        "tags": [PACKAGE_TAG + source.package for source in sources],
        "numbers": list(packages.classes.values()),
    }


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
    tags = _tags_of(provided, brought)
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


def _without_name(request: Request, looks: Looks) -> Request:
    """Return a group without the parts of its name, because the name has no effects."""
    return request.altered(
        scope=request.scope if looks.scope else None,
        workspace=request.workspace if looks.workspace else None,
        package=None,
        task_data=keep({path: at_path(request.task_data, path) for path in looks.paths}),
    )


def _build_identity(request: Request) -> Hashable:
    tags = (request.required, request.provided)
    whose = (request.scope, request.workspace, request.requester)
    about = (request.task, request.priority, request.deadline_seconds)
    return (*about, *tags, *whose, repr(request.task_data))


def _join_requests(one: Request, other: Request) -> Request:
    older = min(one, other, key=_order)
    return older.altered(count=min(one.count + other.count, MAX_COUNT))


def _order(request: Request) -> tuple[int, datetime, int]:
    """Return the sort key of Debusine's scheduler: highest priority first, then oldest."""
    return (-request.priority, request.pending_since or _LAST, int(request.id))
