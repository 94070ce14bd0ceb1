"""This module tells which Debusine a database is of, by the columns of the tables we use.

A database names no version of its server, and which migrations were applied differs with its
age: its columns are what readers and writers rely on. To support another version, look at what it
changed in TABLES, run the live tests with it, and add its columns to KNOWN.
"""

from typing import TYPE_CHECKING

from fleet.errors import SourceUnreachable
from fleet.queues.debusine.changes import COLUMNS, digest_of

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection

TABLES = (
    *("db_scope", "db_workspace", "db_workrequest"),
    *("db_worker", "db_token", "db_workerpool", "db_scopeworkerpool"),
)
KNOWN = {"539c41736018": "0.16.2"}
"""Digest of the columns of TABLES to the version that has them."""

_TOLD = """\
SELECT w.dynamic_metadata ->> 'system:worker_version' FROM db_worker w
 WHERE w.worker_type = 'celery' AND w.dynamic_metadata ? 'system:worker_version' LIMIT 1"""


def identify(connection: "Connection") -> str:
    """Return which version's tables these are; raises SourceUnreachable where none is known."""
    columns = connection.execute(COLUMNS, {"tables": list(TABLES)}).fetchall()
    missing = [name for name in TABLES if name not in {table for table, *_ in columns}]
    if missing:
        raise SourceUnreachable(
            f"the database has no table {missing[0]} that its role may look at: is it Debusine's, "
            "and has the role USAGE of its schema (`fleet debusine grants`)?"
        )
    found = digest_of(columns)
    if found in KNOWN:
        return KNOWN[found]
    known = ", ".join(f"{version} ({digest})" for digest, version in KNOWN.items())
    raise SourceUnreachable(
        f"the database is of a Debusine that fleet does not know: its tables are {found}, its "
        f"server says {_told(connection)}; known is {known}. Nothing is read from it or written "
        "to it until that version is supported"
    )


def _told(connection: "Connection") -> str:
    """Return the version that the server's own Celery worker told, as far as the role may ask."""
    import psycopg

    try:
        with connection.transaction():
            row = connection.execute(_TOLD).fetchone()
    except psycopg.Error:
        row = None
    return str(row[0]) if row else "nothing of its version"
