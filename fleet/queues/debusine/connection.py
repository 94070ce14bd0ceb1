"""Connect to a Debusine server's database, or run its admin command.

A connection for reading is read-only, limits the time of each statement, and uses one snapshot. No
error message contains a password.

A database does not store the version of its server, and its migrations depend on its age. So a
version is identified by the columns that fleet uses. To support another version, check how it
changes TABLES, run the live tests with it, and add its columns to KNOWN.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.errors import SourceUnreachable, needing
from fleet.queues.debusine.changes import COLUMNS, digest_of
from fleet.state.confined import announce_connection
from fleet.state.processes import CommandFailed, Invocation, run

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

STATEMENT_SECONDS = 30
# There are few groups, but PostgreSQL estimates many. With little memory it would then sort, and
# it would not use a second process to count in parallel.
_SETTINGS = (
    f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'; SET LOCAL work_mem = '128MB'; "
    "SET LOCAL enable_mergejoin = off; SET LOCAL parallel_tuple_cost = 0.001"
)
_GRANTS = "`fleet debusine grants` prints what it needs, `--check` what it lacks"


@contextmanager
def reading(dsn: str) -> "Iterator[Connection]":
    """Yield a read-only connection; raises SourceUnreachable for all errors of the database.

    The settings belong to one transaction. A pooler such as pgbouncer refuses settings at the
    start of a connection, and may use another connection for each transaction.
    """
    password = password_of(dsn)
    import psycopg

    try:
        with connected(dsn) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute(_SETTINGS.encode())
            yield connection
    except psycopg.Error as error:
        raise explained(error, password) from None


def connected(dsn: str, *, autocommit: bool = False) -> "Connection":
    """Connect without prepared statements, so that a connection pooler can be in between."""
    import psycopg

    announce_connection("PostgreSQL")
    return psycopg.connect(dsn, connect_timeout=10, prepare_threshold=None, autocommit=autocommit)


def explained(error: "psycopg.Error", password: str = "") -> SourceUnreachable:
    """Convert the database driver's error to SourceUnreachable, with advice and no password."""
    from psycopg import errors

    text = first_line(error)
    text = text.replace(password, "…") if password else text
    match error:
        case errors.InsufficientPrivilege():
            return SourceUnreachable(
                f"the database refuses: {text}; {_GRANTS}", fix="fleet debusine grants"
            )
        case errors.UndefinedTable() | errors.UndefinedColumn():
            return SourceUnreachable(
                "the database is not that of a supported Debusine (0.16), or its role may not "
                f"use the schema: {text}"
            )
        case errors.QueryCanceled():
            return SourceUnreachable(
                f"the database did not answer within {STATEMENT_SECONDS} s; is it busy, or have "
                "its tables not been analyzed (VACUUM ANALYZE)?"
            )
        case _:
            return SourceUnreachable(
                f"the database does not answer: {text}; compare host, port, user and password of "
                "the DSN"
            )


def first_line(error: Exception) -> str:
    """Return the first line of an error message. Later lines only explain it."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def password_of(dsn: str) -> str:
    """Return the password in a DSN, or an empty text; raises SourceUnreachable if invalid."""
    with needing("postgres", "SQL", SourceUnreachable):
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    try:
        known = conninfo_to_dict(dsn)
    except ProgrammingError:
        # The message of the driver would contain the password.
        raise SourceUnreachable(
            "not a DSN of PostgreSQL; expected one like postgresql://fleet_ro@host/debusine"
        ) from None
    if "@" in str(known.get("host", "")):
        raise SourceUnreachable("the DSN has a second @; in a password write it as %40")
    return str(known.get("password") or "")


TABLES = (
    *("db_scope", "db_workspace", "db_workrequest"),
    *("db_worker", "db_token", "db_workerpool", "db_scopeworkerpool"),
)
KNOWN = {"539c41736018": "0.16.2"}
"""Map of the digest of all columns in TABLES to the version of Debusine."""

_VERSION = """\
SELECT w.dynamic_metadata ->> 'system:worker_version' FROM db_worker w
 WHERE w.worker_type = 'celery' AND w.dynamic_metadata ? 'system:worker_version' LIMIT 1"""


def identify(connection: "Connection") -> str:
    """Return the version of Debusine with these tables; raises SourceUnreachable if unknown."""
    columns = connection.execute(COLUMNS, {"tables": list(TABLES)}).fetchall()
    missing = [name for name in TABLES if name not in {table for table, *_ in columns}]
    if missing:
        raise SourceUnreachable(
            f"the database has no table {missing[0]} that its role may see: is it Debusine's, and "
            "does the role have USAGE of its schema (`fleet debusine grants`)?",
            fix="fleet debusine grants",
        )
    found = digest_of(columns)
    if found in KNOWN:
        return KNOWN[found]
    known = ", ".join(f"{version} ({digest})" for digest, version in KNOWN.items())
    raise SourceUnreachable(
        f"the database is of an unsupported Debusine: its tables are {found}, its server reports "
        f"{_reported_version(connection)}; supported: {known}. fleet does not read or write it"
    )


def _reported_version(connection: "Connection") -> str:
    """Return the version that the server's Celery worker reported, or "no version"."""
    import psycopg

    try:
        with connection.transaction():
            row = connection.execute(_VERSION).fetchone()
    except psycopg.Error:
        row = None
    return str(row[0]) if row else "no version"


_MOST_BYTES = 64 * 1024 * 1024


def ask_command(
    command: Sequence[str], text: bytes = b"", *, seconds: float = 60, limit: int = _MOST_BYTES
) -> bytes:
    """Run a command and return its output; raises SourceUnreachable if the command fails."""
    call = Invocation(
        what=shlex.join(command),
        command=command,
        folder=Path(),
        environment=os.environ,
        timeout=seconds,
        stdin=text.decode(),
        most=limit,
    )
    try:
        return run(call).encode()
    except CommandFailed as error:
        if text and not error.in_time:
            raise SourceUnreachable(f"{error}; the change may have been made") from error
        raise
