"""This module reads what waits from Debusine's database, grouped there by what is looked at.

The queue's own order is by priority, then by creation: a group counts as old as its oldest
request, whose id it bears.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fleet.errors import SourceUnreachable
from fleet.facts import Request
from fleet.queues.debusine.earlier import Seconds
from fleet.queues.debusine.looks import Looks
from fleet.queues.debusine.rows import PACKAGE_TAG, environment_of, keep, package_of

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCOPES = 'SELECT s.name FROM db_scope s ORDER BY s.name COLLATE "C"'
# What is not looked at is a constant, and so divides no group. The smallest pair of age and id is
# that of the oldest.
_GROUPS = """\
SELECT r.task_name, r.scheduler_tags_required, r.priority_base + r.priority_adjustment,
       CASE WHEN %(tags)s THEN ARRAY(
            SELECT t FROM unnest(r.scheduler_tags_provided) t
             WHERE t = ANY(%(provided)s::text[]) OR (%(package)s AND starts_with(t, %(prefix)s)))
       END,
       CASE WHEN %(scope)s THEN s.name END,
       CASE WHEN %(workspace)s THEN v.name END,
       CASE WHEN %(submitter)s THEN r.created_by_id END,
       CASE WHEN %(data)s THEN (
            SELECT jsonb_agg((CASE WHEN jsonb_typeof(r.dynamic_task_data) = 'object'
                                   THEN r.dynamic_task_data ELSE '{}' END || r.task_data)
                             #> string_to_array(p, '.') ORDER BY p COLLATE "C")
              FROM unnest(%(paths)s::text[]) p)
       END,
       count(*),
       min(ARRAY[(extract(epoch FROM r.created_at) * 1000000)::bigint, r.id])
  FROM db_workrequest r JOIN db_workspace v ON v.id = r.workspace_id
                        JOIN db_scope s ON s.id = v.scope_id
 WHERE r.status = 'pending' AND r.worker_id IS NULL AND r.task_type = 'Worker'
   AND s.name = ANY(%(scopes)s::text[])
 GROUP BY 1, 2, 3, 4, 5, 6, 7, 8"""
_ENVIRONMENTS = """\
SELECT DISTINCT jsonb_build_object('environment_id', r.dynamic_task_data -> 'environment_id',
       'task_input_fields', jsonb_build_object('environment',
            r.dynamic_task_data #> '{task_input_fields,environment}'))
  FROM db_workrequest r JOIN db_workspace v ON v.id = r.workspace_id
                        JOIN db_scope s ON s.id = v.scope_id
 WHERE r.status = 'pending' AND r.task_type = 'Worker' AND s.name = ANY(%(scopes)s::text[])
   AND r.dynamic_task_data ? 'environment_id'"""


@dataclass(frozen=True)
class Group:
    """Requests that are alike in all that is looked at."""

    task: str
    required: tuple[str, ...]
    priority: int
    provided: tuple[str, ...]
    package: str | None
    scope: str | None
    workspace: str | None
    submitter: int | None
    data: Mapping[str, Any]
    count: int
    oldest: tuple[int, int]
    """When it was created, in microseconds since 1970, and its id."""

    @property
    def alike(self) -> object:
        """Return all that makes requests one group."""
        tags = (self.required, self.provided)
        whose = (self.scope, self.workspace, self.submitter)
        return (self.task, self.priority, *tags, *whose, repr(self.data))

    def to_request(self, seconds: Seconds) -> Request:
        """Return them as one request, which counts for all."""
        since, number = self.oldest
        return Request(
            id=str(number),
            count=self.count,
            task=self.task,
            required=self.required,
            provided=self.provided,
            priority=self.priority,
            pending_since=_EPOCH + timedelta(microseconds=since),
            expected_seconds=seconds.expected(self.task, self.required, self.package),
            requester=None if self.submitter is None else str(self.submitter),
            scope=self.scope,
            workspace=self.workspace,
            package=self.package,
            task_data=dict(self.data),
        )


def check_scopes(connection: "Connection", scopes: Iterable[str]) -> None:
    """Raise SourceUnreachable where a scope is none of the server's: it would seem empty."""
    there = [name for (name,) in connection.execute(_SCOPES).fetchall()]
    missing = sorted(set(scopes) - set(there))
    if missing:
        raise SourceUnreachable(
            f"the database has no scope {missing[0]}; it has {', '.join(there) or 'none'}: "
            "compare the spelling of `scopes` in fleet.yaml"
        )


def read_groups(
    connection: "Connection", scopes: Sequence[str], looks: Looks
) -> tuple[Group, ...]:
    """Return what waits without a worker, in the order in which Debusine serves it."""
    values = {
        "tags": bool(looks.provided) or looks.package,
        "provided": sorted(looks.provided),
        "package": looks.package,
        "prefix": PACKAGE_TAG,
        "scope": looks.scope,
        "workspace": looks.workspace,
        "submitter": looks.submitter,
        "data": bool(looks.paths),
        "paths": list(looks.paths),
        "scopes": list(scopes),
    }
    groups: dict[object, Group] = {}
    for row in connection.execute(_GROUPS, values):
        group = _group(row, looks)
        # What is not kept of task data, and how tags are ordered, may have divided them.
        known = groups.get(group.alike)
        groups[group.alike] = group if known is None else _joined(known, group)
    return tuple(sorted(groups.values(), key=lambda group: (-group.priority, *group.oldest)))


def read_environments(
    connection: "Connection", scopes: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return the environments that the server has looked up; one it tells two ways is left out."""
    found: dict[str, list[dict[str, str]]] = {}
    for (data,) in connection.execute(_ENVIRONMENTS, {"scopes": list(scopes)}):
        told = environment_of(data)
        if told is not None and told[1] not in found.setdefault(told[0], []):
            found[told[0]].append(told[1])
    return {number: records[0] for number, records in found.items() if len(records) == 1}


def _group(row: tuple[Any, ...], looks: Looks) -> Group:
    task, required, priority, provided, scope, workspace, submitter, data, count, oldest = row
    return Group(
        task=task,
        required=tuple(sorted(set(required))),
        priority=priority,
        provided=tuple(sorted(set(provided or ()))),
        package=package_of(provided) if looks.package else None,
        scope=scope,
        workspace=workspace,
        submitter=submitter,
        data=keep(dict(zip(looks.paths, data, strict=True))) if data else {},
        count=count,
        oldest=(oldest[0], oldest[1]),
    )


def _joined(one: Group, other: Group) -> Group:
    return replace(one, count=one.count + other.count, oldest=min(one.oldest, other.oldest))
