"""Check a Debusine server: its time, its user, its counts, its database and rights of roles.

Rights are granted by column, so that a role that reads demand cannot read token digests.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fleet.clock import utc_now
from fleet.model.doctor import CheckResult, Machinery, Summary, judge_clock
from fleet.model.values import Count, Line
from fleet.queues.debusine.connection import identify, reading
from fleet.queues.debusine.rest import STATUS, RestSession, counts_by_scope
from fleet.queues.http import QueueReply, Reader, read_date
from fleet.schema.model import DebusineQueue

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection


EVERY = "*"
"""Placeholder for all columns of a table."""

READ: Mapping[str, tuple[str, ...]] = {
    "db_scope": ("id", "name"),
    "db_scopeworkerpool": ("scope_id", "worker_pool_id"),
    "db_token": ("id", "enabled", "expire_at", "last_seen_at"),
    "db_worker": (
        *("id", "name", "worker_type", "registered_at", "connected_at", "worker_pool_id"),
        *("static_metadata", "dynamic_metadata", "dynamic_metadata_updated_at"),
        *("token_id", "activation_token_id"),
    ),
    "db_workerpool": (
        *("id", "name", "enabled", "instance_wide", "limits", "specifications"),
        *("provider_account_id", "architectures", "static_metadata"),
    ),
    "db_workrequest": (
        *("id", "workspace_id", "status", "result", "worker_id", "task_type", "task_name"),
        *("created_at", "started_at", "completed_at", "created_by_id"),
        *("priority_base", "priority_adjustment"),
        *("scheduler_tags_required", "scheduler_tags_provided"),
        *("task_data", "dynamic_task_data", "output_data"),
    ),
    "db_workspace": ("id", "name", "scope_id"),
}
"""Map of each table to the columns that fleet reads."""


@dataclass(frozen=True, order=True)
class Right:
    """A right of a database role on a column of a table."""

    table: str
    privilege: str
    column: str


@dataclass(frozen=True)
class GrantDifference:
    """The missing rights and the excess rights of a database role."""

    role: str
    missing: tuple[str, ...]
    excess: tuple[str, ...]


# A writing role changes rows of workers and tokens, and requeues requests. Debusine's triggers run
# with its rights; they read whole tokens and track their owners.
_CHANGE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "db_token",
        "INSERT",
        (
            *("token_type", "hash", "comment", "created_at", "expire_at", "enabled"),
            *("external_username", "explicit_grants_only"),
        ),
    ),
    ("db_token", "UPDATE", ("enabled", "worker_id", "activating_worker_id")),
    ("db_token", "DELETE", (EVERY,)),
    (
        "db_worker",
        "INSERT",
        (
            *("name", "registered_at", "activation_token_id", "static_metadata"),
            *("dynamic_metadata", "worker_type", "concurrency"),
        ),
    ),
    (
        "db_worker",
        "UPDATE",
        (
            *("registered_at", "activation_token_id", "token_id", "static_metadata"),
            *("dynamic_metadata", "dynamic_metadata_updated_at", "connected_at"),
        ),
    ),
    ("db_workrequest", "UPDATE", ("status", "worker_id", "started_at")),
)
_READ_WHOLE = ("db_token",)
_HELD = """\
SELECT c.relname, p.privilege, a.attname
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
       JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
       CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS p(privilege)
 WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
   AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
   AND has_column_privilege(c.oid, a.attnum, p.privilege)
UNION ALL
SELECT c.relname, p.privilege, '*'
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
       CROSS JOIN unnest(ARRAY['DELETE', 'TRUNCATE', 'TRIGGER']) AS p(privilege)
 WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
   AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND has_table_privilege(c.oid, p.privilege)"""
_COLUMNS = """\
SELECT c.relname, array_agg(a.attname::text)
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE a.attnum > 0 AND NOT a.attisdropped AND c.oid = ANY(
       SELECT to_regclass(t) FROM unnest(%s::text[]) t)
 GROUP BY 1"""
_ROLE = """\
SELECT current_user, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls,
       has_schema_privilege(coalesce(current_schema(), 'public'), 'USAGE'),
       has_schema_privilege(coalesce(current_schema(), 'public'), 'CREATE')
  FROM pg_roles WHERE rolname = current_user"""
_POWERS = ("SUPERUSER", "CREATEROLE", "CREATEDB", "REPLICATION", "BYPASSRLS")


def rights(*, admin: bool = False) -> tuple[Right, ...]:
    """Return the sorted rights that a reading role needs, or (`admin`) a writing role."""
    needed = {Right(table, "SELECT", name) for table, names in READ.items() for name in names}
    if admin:
        needed = {right for right in needed if right.table not in _READ_WHOLE}
        needed |= {Right(table, "SELECT", EVERY) for table in _READ_WHOLE}
        needed |= {Right(table, what, name) for table, what, names in _CHANGE for name in names}
    return tuple(sorted(needed))


def write_grants(role: str, *, admin: bool = False) -> str:
    """Return SQL that creates a role with exactly the required rights."""
    name = '"' + role.replace('"', '""') + '"'
    lines = [
        f"CREATE ROLE {name} LOGIN;",
        f"GRANT USAGE ON SCHEMA public TO {name};",
    ]
    for table, privilege, columns in _group_by_table(rights(admin=admin)):
        lines.append(f"GRANT {privilege}{columns} ON {table} TO {name};")
    return "\n".join(lines) + "\n"


def compare(connection: "Connection", *, admin: bool = False) -> GrantDifference:
    """Return the missing and excess rights of the connection's role, by reading only."""
    role, *powers, uses, creates = connection.execute(_ROLE).fetchall()[0]
    columns: dict[str, list[str]] = dict(connection.execute(_COLUMNS, (list(READ),)).fetchall())
    held = {Right(*row) for row in connection.execute(_HELD).fetchall()}
    needed = set(_expand_columns(rights(admin=admin), columns))
    missing = [] if uses else ["USAGE on the schema"]
    excess = [power for power, has in zip(_POWERS, powers, strict=True) if has]
    excess += ["CREATE on the schema"] if creates else []
    return GrantDifference(
        role=role,
        missing=(*missing, *_summarize(needed - held)),
        # A superuser has all rights, so its other excess rights are not listed.
        excess=tuple(excess) if powers[0] else (*excess, *_summarize(held - needed)),
    )


def _expand_columns(needed: Iterable[Right], columns: Mapping[str, list[str]]) -> Iterable[Right]:
    """Yield a right per column in place of each SELECT on all columns."""
    for right in needed:
        if right.column == EVERY and right.privilege == "SELECT":
            yield from (Right(right.table, "SELECT", name) for name in columns[right.table])
        else:
            yield right


def _summarize(held: Iterable[Right]) -> tuple[str, ...]:
    """Return a line for each table and kind of right, with the columns."""
    found = _group_by_table(sorted(held))
    return tuple(f"{privilege} on {table}{columns}" for table, privilege, columns in found)


def _group_by_table(found: Iterable[Right]) -> Iterator[tuple[str, str, str]]:
    """Yield table, kind of right, and its columns in brackets; an empty text for all columns."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for right in found:
        grouped.setdefault((right.table, right.privilege), []).append(right.column)
    for (table, privilege), columns in grouped.items():
        yield table, privilege, "" if columns == [EVERY] else f" ({', '.join(columns)})"


_WHO = "/api/1.0/whoami/"
_NO_ARCHITECTURE = "None"
ANY = "any"


class _Workers(QueueReply):
    registered: Count
    connected: Count
    busy: Count


class _TaskCounts(QueueReply):
    pending: Count
    running: Count


class _Status(QueueReply):
    external_workers_arch: dict[Line, _Workers]
    worker_tasks_arch: dict[Line, _TaskCounts]


class _Who(QueueReply):
    user: Line
    auth: bool


class DebusineServer:
    """A Debusine server, queried with the token of a viewer."""

    def __init__(
        self, queue: DebusineQueue, token: str | None, *, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._queue = queue
        self._token = token
        self._now = now

    def summary(self) -> Summary:
        """Return the server's time, workers and work, which need no token."""
        with self._asking() as asking:
            reply = asking.get(STATUS)
            asked_at = self._now()
        status = reply.parse(_Status)
        names = status.external_workers_arch.keys() | status.worker_tasks_arch.keys()
        return Summary(
            server_time=read_date(reply.date),
            asked_at=asked_at,
            architectures={
                ANY if name == _NO_ARCHITECTURE else name: _machinery(status, name)
                for name in sorted(names)
            },
        )

    def user(self) -> str:
        """Return the user name of the token; empty if the server does not accept the token."""
        with self._asking() as asking:
            who = asking.get(_WHO, self._queue.scopes[0]).parse(_Who)
        return who.user if who.auth else ""

    def counts(self) -> Mapping[str, int]:
        """Map each scope to its number of pending requests for workers. No token is needed."""
        with self._asking() as asking:
            counted = counts_by_scope(asking)
        return {scope: counted[scope] for scope in self._queue.scopes if scope in counted}

    @contextmanager
    def _asking(self) -> Iterator[RestSession]:
        with Reader(self._queue.url) as reader:
            yield RestSession(reader, self._token)


def _machinery(status: _Status, name: str) -> Machinery:
    workers, tasks = status.external_workers_arch.get(name), status.worker_tasks_arch.get(name)
    return Machinery(
        **(workers.model_dump() if workers else {}), **(tasks.model_dump() if tasks else {})
    )


def check_database(
    about: str, dsn: str, *, admin: bool = False, now: Callable[[], datetime] = utc_now
) -> tuple[CheckResult, ...]:
    """Return findings on a database's version, clock and role; raises SourceUnreachable."""
    with reading(dsn) as connection:
        version = identify(connection)
        standing = compare(connection, admin=admin)
        ours, (theirs,) = now(), connection.execute("SELECT clock_timestamp()").fetchall()[0]
    fix = f"fleet debusine grants{' --admin' if admin else ''} --check"
    tables = f"its tables are those of Debusine {version}"
    findings = [
        CheckResult(about=f"{about}, version", result="ok", said=tables),
        judge_clock(f"{about}, clock", theirs=theirs, ours=ours),
    ]
    for result, verb, rights in (
        ("wrong", "lacks", standing.missing),
        ("notice", "has rights that it does not need", standing.excess),
    ):
        if rights:
            said = f"role {standing.role} {verb}: {'; '.join(rights)}"
            rest = {"about": f"{about}, rights", "result": result, "said": said, "fix": fix}
            findings.append(CheckResult.model_validate(rest))
    if not (standing.missing or standing.excess):
        said = f"role {standing.role} has exactly the rights it needs"
        findings.append(CheckResult(about=f"{about}, rights", result="ok", said=said))
    return tuple(findings)
