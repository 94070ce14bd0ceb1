"""This module connects to a Debusine server's database to read it, and says what went wrong.

Nothing can be written by such a connection, every statement ends in time, and all that is read
within it is of one moment. No error repeats a password.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fleet.errors import SourceUnreachable

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

STATEMENT_SECONDS = 30
# Groups are few, but PostgreSQL guesses that they are many: with little memory it would sort, and
# it would find them too dear to be handed over by a second process that counts beside the first.
_SETTINGS = (
    f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'; SET LOCAL work_mem = '128MB'; "
    "SET LOCAL enable_mergejoin = off; SET LOCAL parallel_tuple_cost = 0.001"
)
_GRANTS = "`fleet debusine grants` prints what it needs, `--check` what it lacks"


@contextmanager
def reading(dsn: str) -> "Iterator[Connection]":
    """Connect, read only; raises SourceUnreachable for whatever the database refuses.

    All of it is one transaction with settings of its own: a pooler such as pgbouncer refuses
    settings at the start of a connection, and gives each transaction another one.
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
    """Connect so that a pooler may stand between: nothing is prepared under a name."""
    import psycopg

    return psycopg.connect(dsn, connect_timeout=10, prepare_threshold=None, autocommit=autocommit)


def explained(error: "psycopg.Error", password: str = "") -> SourceUnreachable:
    """Return what a person should know of an error, and what to do."""
    from psycopg import errors

    said = first_line(error)
    said = said.replace(password, "…") if password else said
    match error:
        case errors.InsufficientPrivilege():
            return SourceUnreachable(f"the database refuses: {said}; {_GRANTS}")
        case errors.UndefinedTable() | errors.UndefinedColumn():
            return SourceUnreachable(
                "the database is not that of a supported Debusine (0.16), or its role may not "
                f"use the schema: {said}"
            )
        case errors.QueryCanceled():
            return SourceUnreachable(
                f"the database did not answer within {STATEMENT_SECONDS} s; is it busy, or have "
                "its tables not been analyzed (VACUUM ANALYZE)?"
            )
        case _:
            return SourceUnreachable(
                f"the database does not answer: {said}; compare host, port, user and password of "
                "the DSN"
            )


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, which later lines only explain."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def password_of(dsn: str) -> str:
    """Return the password of a DSN; raises SourceUnreachable where the text is none."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ModuleNotFoundError as error:
        raise SourceUnreachable(
            "SQL needs psycopg, which is not installed: install fleet with its extra `postgres`"
        ) from error
    try:
        known = conninfo_to_dict(dsn)
    except ProgrammingError:
        # The driver's own words would repeat the password.
        raise SourceUnreachable(
            "this is no DSN of PostgreSQL; write it like postgresql://fleet_ro@host/debusine"
        ) from None
    if "@" in str(known.get("host", "")):
        raise SourceUnreachable("the DSN holds a second @; within a password write it as %40")
    return str(known.get("password") or "")
