"""Read workers from Debusine's database, with their tags, running requests, and times.

A worker with a request is busy, even if it has not started the request. The status page of the
server calls such a worker idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fleet.model.facts import Request, Work, Worker, WorkerState
from fleet.model.values import moment_or_none
from fleet.queues.debusine import changes
from fleet.queues.debusine.packages import NAMED_PATHS, Seconds
from fleet.queues.debusine.rows import groups_of, keep, package_of
from fleet.queues.debusine.waiting import data_at
from fleet.tagrules.debusine import WorkerRow
from fleet.tagrules.names import names_of

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection

# A server queries its workers' capabilities each hour, and ignores older replies.
_WORKERS = """\
SELECT w.id, w.name, w.worker_type, w.registered_at, w.connected_at,
       coalesce(w.dynamic_metadata_updated_at >= now() - interval '65 minutes', false),
       w.static_metadata, w.dynamic_metadata,
       coalesce(t.enabled AND coalesce(t.expire_at > now(), true), false), t.last_seen_at,
       coalesce(a.enabled, false), a.expire_at
  FROM db_worker w LEFT JOIN db_token t ON t.id = w.token_id
                   LEFT JOIN db_token a ON a.id = w.activation_token_id
 WHERE w.worker_type = 'external' ORDER BY w.name COLLATE "C", w.id"""
_WORK = """\
SELECT DISTINCT ON (r.worker_id) r.worker_id, r.id, r.task_name, r.scheduler_tags_required,
       r.scheduler_tags_provided, r.started_at, r.created_by_id, s.name, v.name, {data}
  FROM db_workrequest r JOIN db_workspace v ON v.id = r.workspace_id
                        JOIN db_scope s ON s.id = v.scope_id
 WHERE r.worker_id IS NOT NULL AND r.status IN ('pending', 'running')
 ORDER BY r.worker_id, r.status = 'running' DESC, r.id"""
# A row may be used for several machines in turn, so only the time since its enrolment counts.
_SERVED = """\
SELECT w.id, count(*), max(r.completed_at)
  FROM db_worker w JOIN db_workrequest r ON r.worker_id = w.id
 WHERE w.static_metadata ->> %(mark)s = %(fleet)s AND r.completed_at >= w.registered_at
 GROUP BY w.id"""


@dataclass(frozen=True)
class DatabaseWorker:
    """A worker's row in the database, without its requests."""

    id: int
    name: str
    worker_type: str
    registered_at: datetime
    connected_at: datetime | None
    heard: bool
    """Whether the worker has recently reported its capabilities."""
    static: Mapping[str, Any]
    dynamic: Mapping[str, Any]
    enabled: bool
    """Whether the worker has a valid token."""
    last_seen: datetime | None
    awaited: bool
    """Whether an activation token waits for its first use, even if it has expired."""
    expires: datetime | None

    @property
    def tags(self) -> WorkerRow:
        """Return the fields that decide which work the worker can get."""
        return WorkerRow(self.worker_type, self.static, self.dynamic)

    @property
    def has_reported(self) -> bool:
        """Return whether the worker has ever reported its capabilities."""
        return changes.PROVIDED_TAGS in self.dynamic

    def mark(self, key: str) -> str | None:
        """Return the text under a key in the static metadata; None if empty or no text."""
        found = self.static.get(key)
        return found if isinstance(found, str) and found else None


def read_rows(connection: "Connection") -> tuple[DatabaseWorker, ...]:
    """Return all workers that run outside the server, sorted by name."""
    return tuple(
        DatabaseWorker(*values[:6], *map(_mapping, values[6:8]), *values[8:])
        for values in connection.execute(_WORKERS)
    )


def read_workers(
    connection: "Connection", rows: tuple[DatabaseWorker, ...], fleet: str, seconds: Seconds
) -> tuple[Worker, ...]:
    """Return the workers. A worker of another owner is static: fleet never changes it."""
    data, places = data_at(NAMED_PATHS)
    running = connection.execute(_WORK.format(data=data).encode(), places)
    work = {row[0]: row for row in running}
    values = {"mark": changes.FLEET, "fleet": fleet}
    served = {row[0]: (row[1], row[2]) for row in connection.execute(_SERVED, values)}
    return tuple(
        _worker(row, fleet, _work(work.get(row.id), seconds), served.get(row.id, (0, None)))
        for row in rows
    )


def _worker(
    row: DatabaseWorker,
    fleet: str,
    running: tuple[str, Work] | None,
    served: tuple[int, datetime | None],
) -> Worker:
    is_ours = row.mark(changes.FLEET) == fleet
    uses, last_end = served
    state = _state(row, busy=running is not None)
    return Worker(
        name=row.name,
        machine=row.mark(changes.MACHINE) if is_ours else None,
        pool=row.mark(changes.POOL) if is_ours else None,
        static=not is_ours,
        state=state,
        draining=row.static.get(changes.TASKS_ALLOWLIST) == [],
        running=running[0] if running else None,
        work=running[1] if running else None,
        uses=uses if is_ours else None,
        # A worker has the tags of its pool until it has reported its tags.
        provides=tuple(row.tags.provides) if row.has_reported else (),
        requires=tuple(row.tags.requires) if row.has_reported else (),
        since=moment_or_none(_since(row, state, running[1] if running else None, last_end)),
        last_seen=moment_or_none(row.last_seen),
        connected_since=moment_or_none(row.connected_at) if row.enabled else None,
        away=state is WorkerState.BUSY and row.connected_at is None,
        stranded=state is WorkerState.DISABLED and running is not None,
        token_expires=moment_or_none(row.expires) if state is WorkerState.ENROLLED else None,
    )


def _state(row: DatabaseWorker, *, busy: bool) -> WorkerState:
    if not row.enabled and not row.awaited:
        return WorkerState.DISABLED
    if busy:
        return WorkerState.BUSY
    if not row.enabled:
        return WorkerState.ENROLLED
    if row.connected_at is None:
        return WorkerState.DISCONNECTED
    return WorkerState.IDLE if row.heard else WorkerState.DEAF


def _since(
    row: DatabaseWorker, state: WorkerState, work: Work | None, last_end: datetime | None
) -> datetime | None:
    """Return the time at which a worker entered its state; None if unknown."""
    match state:
        case WorkerState.BUSY:
            return work.started_at if work else None
        case WorkerState.IDLE:
            # A reconnection does not restart the idle time.
            return last_end or row.connected_at
        case WorkerState.DEAF:
            return row.connected_at
        case WorkerState.DISCONNECTED:
            return row.last_seen or row.registered_at
        case WorkerState.ENROLLED:
            return row.registered_at
        case _:
            return None


def _work(row: tuple[Any, ...] | None, seconds: Seconds) -> tuple[str, Work] | None:
    if row is None:
        return None
    _, number, task, required, provided, started, submitter, scope, workspace, data = row
    tags = tuple(sorted(set(required)))
    # Created without validation, since a server has thousands and only names are read.
    request = Request.model_construct(
        id=str(number),
        task=task,
        required=tags,
        scope=scope,
        workspace=workspace,
        package=package_of(provided),
        task_data=keep(dict(zip(NAMED_PATHS, data, strict=True))),
    )
    return str(number), Work(
        task=task,
        required=tags,
        started_at=moment_or_none(started),
        expected_seconds=seconds.expected(task, tags, request.package),
        requester=str(submitter),
        package=request.package,
        names=names_of(request),
        scope=scope,
        workspace=workspace,
        groups=groups_of(provided),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
