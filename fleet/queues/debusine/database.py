"""Read a whole Debusine server over SQL: its waiting requests and its workers.

One read-only transaction reads one snapshot. Unreadable parts are Unknown, with advice. Demand and
workers fail independently.

A worker with a request is busy, even if it has not started the request. The status page of the
server calls such a worker idle.

The list of the server's own worker pools, by its admin command or over SQL, is in the format of
`debusine-admin worker_pool list --yaml`. SQL adds architectures, tags, and the scopes that may use
a pool. SQL never reads db_asset, which has the names of provider accounts but also their
credentials.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from fleet.errors import SourceUnreachable
from fleet.model.facts import Demand, QueueReading, Request, Unknown, Work, Worker, WorkerState
from fleet.model.values import first_mistake, moment_or_none
from fleet.planner.durations import Made, by_type
from fleet.queues.debusine import changes
from fleet.queues.debusine.connection import ask_command, explained, identify, reading
from fleet.queues.debusine.rows import groups_of, keep, package_of
from fleet.queues.debusine.waiting import (
    NAMED_PATHS,
    Seconds,
    check_scopes,
    data_at,
    looks_of,
    read_environments,
    read_groups,
    read_packages,
    read_runs,
    read_seconds,
    running_packages,
)
from fleet.schema.model import DebusineQueue, Fleet
from fleet.tagrules.debusine import WorkerRow, tags_in
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
        DatabaseWorker(
            *values[:6],
            *(each if isinstance(each, dict) else {} for each in values[6:8]),
            *values[8:],
        )
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


_Read = TypeVar("_Read")


class DebusineDatabase:
    """The queue and the workers of one Debusine server, read with a read-only database role."""

    def __init__(self, fleet: Fleet, queue: DebusineQueue, dsn: str, made: Made = tuple) -> None:
        self._fleet = fleet
        self._scopes = tuple(dict.fromkeys(queue.scopes))
        self._dsn = dsn
        self._made = made

    def read(self, now: datetime) -> QueueReading:
        """Return all workers, and the waiting requests grouped by fields that fleet.yaml uses."""
        try:
            with reading(self._dsn) as connection:
                identify(connection)
                return self._reading(connection, now)
        except SourceUnreachable as error:
            unknown = Unknown.of(error)
            return QueueReading(demand=unknown, workers=unknown)

    def _reading(self, connection: "Connection", now: datetime) -> QueueReading:
        rows = _attempt(connection, read_rows)
        known = () if isinstance(rows, Unknown) else rows
        found = _attempt(connection, lambda c: self._demand(c, now, known))
        seconds = Seconds() if isinstance(found, Unknown) else found[1]
        registry = (
            rows
            if isinstance(rows, Unknown)
            else _attempt(
                connection,
                lambda c: (
                    read_workers(c, rows, self._fleet.fleet, seconds),
                    launching_pools(c),
                ),
            )
        )
        demand = found if isinstance(found, Unknown) else found[0]
        if isinstance(registry, Unknown):
            return QueueReading(demand=demand, workers=registry)
        return QueueReading(demand=demand, workers=registry[0], rivals=registry[1])

    def _demand(
        self, connection: "Connection", now: datetime, workers: tuple[DatabaseWorker, ...]
    ) -> tuple[Demand, Seconds]:
        check_scopes(connection, self._scopes)
        looks = looks_of(self._fleet, (tag for row in workers for tag in row.tags.requires))
        packages = read_packages(connection, self._scopes, looks, of=(self._fleet, now.date()))
        groups = read_groups(connection, self._scopes, looks, packages)
        separate = packages.alone | (running_packages(connection) if looks.named else frozenset())
        seconds = read_seconds(connection, separate)
        runs = read_runs(connection, separate, self._fleet.fleet)
        environments = read_environments(connection, self._scopes) if looks.environments else {}
        named = {request.package for request in groups}
        demand = Demand(
            read_at=now,
            requests=tuple(map(seconds.expecting, groups)),
            stored=True,
            history=tuple(each for each in packages.history if each.package in named),
            runs=by_type(runs, self._made()) if runs else (),
            environments=environments,
        )
        return demand, seconds


def _attempt(connection: "Connection", read: "Callable[[Connection], _Read]") -> _Read | Unknown:
    """Return the result, or Unknown with the reason. The connection stays usable.

    If the connection is broken, raise the error.
    """
    import psycopg

    try:
        with connection.transaction():
            return read(connection)
    except SourceUnreachable as error:
        return Unknown.of(error)
    except psycopg.Error as error:
        if connection.broken:
            raise
        return Unknown.of(explained(error))
    except ValidationError as error:
        wrong = first_mistake(error, "a row")
        return Unknown(unknown=f"unexpected data in the database: {wrong}")


LIST = ("worker_pool", "list", "--yaml")
_MOST_POOLS = 5000
_POOLS = """\
SELECT p.name, p.enabled, p.limits, p.specifications, p.provider_account_id, p.architectures,
       p.static_metadata,
       (SELECT w.dynamic_metadata FROM db_worker w
         WHERE w.worker_pool_id = p.id AND w.dynamic_metadata ? 'provided_tags'
         ORDER BY w.connected_at DESC NULLS LAST, w.id DESC LIMIT 1),
       ARRAY(SELECT s.name FROM db_scope s
              WHERE p.instance_wide OR EXISTS (SELECT FROM db_scopeworkerpool l
                     WHERE l.scope_id = s.id AND l.worker_pool_id = p.id)
              ORDER BY s.name COLLATE "C")
  FROM db_workerpool p ORDER BY p.name COLLATE "C" LIMIT %s"""
_LAUNCHING = """\
SELECT p.name FROM db_workerpool p
 WHERE p.enabled AND (p.instance_wide OR EXISTS (
       SELECT FROM db_scopeworkerpool l WHERE l.worker_pool_id = p.id))
 ORDER BY p.name COLLATE "C"
"""


def list_by_command(admin: Sequence[str], *, limit: int, seconds: float = 60) -> bytes:
    """Return the output of the server's admin command; raises SourceUnreachable."""
    command = [*admin, *LIST]
    content = ask_command(command, seconds=seconds, limit=limit)
    if not content.strip():
        raise SourceUnreachable(f"{shlex.join(command)} printed nothing; expected a list")
    return content


def list_by_sql(dsn: str, *, limit: int) -> bytes:
    """Return the worker pools in a server's database as YAML, by reading only."""
    with reading(dsn) as connection:
        rows = connection.execute(_POOLS, (_MOST_POOLS + 1,)).fetchall()
    if len(rows) > _MOST_POOLS:
        raise SourceUnreachable(f"the database has more than {_MOST_POOLS} worker pools")
    # JSON is also YAML; each pool has one line, so that line numbers are useful.
    listing = (
        b"".join(b"- " + json.dumps(_entry(*row)).encode() + b"\n" for row in rows) or b"[]\n"
    )
    if len(listing) > limit:
        raise SourceUnreachable(f"the worker pools take more than {limit} bytes to list")
    return listing


def launching_pools(connection: "Connection") -> tuple[str, ...]:
    """Return the pools for which the server itself launches machines, sorted.

    These pools are enabled, and are open to all scopes or linked to a scope.
    """
    return tuple(name for (name,) in connection.execute(_LAUNCHING).fetchall())


def _entry(  # noqa: PLR0913, PLR0917 - the columns of one statement
    name: str,
    enabled: bool,  # noqa: FBT001 - the columns of one statement
    limits: object,
    specifications: object,
    account: int,
    architectures: object,
    written: object,
    reported: object,
    scopes: list[str],
) -> dict[str, object]:
    kind = specifications.get("provider_type") if isinstance(specifications, dict) else None
    return {
        "name": name,
        "enabled": enabled,
        "limits": limits,
        "specifications": specifications,
        "provider_account": f"{kind}-{account}",
        "architectures": architectures,
        "provided_tags": tags_in(written, "provided_tags"),
        "required_tags": tags_in(written, "required_tags"),
        "reported_tags": tags_in(reported, "provided_tags"),
        "scopes": scopes,
    }
