"""This module names the tables of the store; `ended` is empty in a run that has not ended.

A row of the ledger is one hour of one payer (JSON: currency, pool, scope, team, owner, tags);
money is counted in billionths, so that the database adds it up exactly. Of tickets, an empty
time and a lease of 0 stand for none; two tickets are never ready with one machine.

Of several processes that find such a store at once, on a server, one does it and the others wait.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from fleet.errors import StoreFailed

METADATA = sa.MetaData()
ABOUT = sa.Table(
    "fleet_about",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
STACKS = sa.Table(
    "fleet_stacks",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("provider", sa.Text, nullable=False),
    sa.Column("project", sa.Text, nullable=False),
    sa.Column("engine", sa.Text, nullable=False),
    sa.Column("serial", sa.BigInteger, nullable=False),
)
RUNS = sa.Table(
    "fleet_runs",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("started", sa.Text, nullable=False),
    sa.Column("ended", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
)
LEDGER = sa.Table(
    "fleet_ledger",
    METADATA,
    sa.Column("hour", sa.Text, primary_key=True),
    sa.Column("payer", sa.Text, primary_key=True),
    sa.Column("seconds", sa.BigInteger, nullable=False),
    sa.Column("nanos", sa.BigInteger, nullable=False),
)
ATTEMPTS = sa.Table(
    "fleet_attempts",
    METADATA,
    sa.Column("worker", sa.Text, primary_key=True),
    sa.Column("at", sa.Text, primary_key=True),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("market", sa.Text, nullable=False),
    sa.Column("image", sa.Text, nullable=False),
    sa.Column("result", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)
SPENT = sa.Table(
    "fleet_spent",
    METADATA,
    sa.Column("approval", sa.Text, primary_key=True),
    sa.Column("machine", sa.Text, primary_key=True),
)
IMAGES = sa.Table(
    "fleet_images",
    METADATA,
    sa.Column("image", sa.Text, primary_key=True),
    sa.Column("version", sa.Text, primary_key=True),
    sa.Column("record", sa.Text, nullable=False),
)
MANIFESTS = sa.Table(
    "fleet_manifests",
    METADATA,
    sa.Column("image", sa.Text, primary_key=True),
    sa.Column("version", sa.Text, primary_key=True),
    sa.Column("manifest", sa.Text, nullable=False),
)
LOCK = sa.Table(
    "fleet_lock",
    METADATA,
    sa.Column("one", sa.Integer, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("since", sa.Text, nullable=False),
)
TICKETS = sa.Table(
    "fleet_tickets",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("tags", sa.Text, nullable=False),
    sa.Column("opened_at", sa.Text, nullable=False),
    sa.Column("heard_at", sa.Text, nullable=False),
    sa.Column("submitter", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("team", sa.Text, nullable=False),
    sa.Column("sandbox", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("background", sa.Integer, nullable=False),
    sa.Column("lease", sa.Integer, nullable=False),
    sa.Column("machine", sa.Text, nullable=False),
    sa.Column("answer", sa.Text, nullable=False),
    sa.Column("because", sa.Text, nullable=False),
    sa.Column("ended_at", sa.Text, nullable=False),
    sa.Column("client", sa.Text, nullable=False, server_default=""),
    sa.Column("project", sa.Text, nullable=False, server_default=""),
    sa.Column("chroot", sa.Text, nullable=False, server_default=""),
    sa.Column("package", sa.Text, nullable=False, server_default=""),
    sa.Column("granted", sa.Text, nullable=False, server_default="null"),
    sa.Column("note", sa.Text, nullable=False, server_default=""),
    sa.Column("ready_at", sa.Text, nullable=False, server_default=""),
    sa.Column("built", sa.Integer, nullable=False, server_default="0"),
)
sa.Index("fleet_tickets_open", TICKETS.c.queue, TICKETS.c.state, TICKETS.c.submitter)
sa.event.listen(
    TICKETS,
    "after_create",
    # A `sa.Index` with a WHERE loads every database's dialect: each start would pay for it.
    sa.DDL(  # type: ignore[no-untyped-call] # it has no types
        "CREATE UNIQUE INDEX fleet_tickets_machine ON fleet_tickets (machine) "
        "WHERE state = 'ready'"
    ),
)
TENANCIES = sa.Table(
    "fleet_tenancies",
    METADATA,
    sa.Column("machine", sa.Text, primary_key=True),
    sa.Column("since", sa.Text, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("sandbox", sa.Text, nullable=False),
    sa.Column("uses", sa.Integer, nullable=False),
    sa.Column("first_used", sa.Text, nullable=False),
    sa.Column("draining", sa.Integer, nullable=False),
    sa.Column("disabled", sa.Integer, nullable=False),
    sa.Column("dirty", sa.Integer, nullable=False, server_default="0"),
)


@contextmanager
def rows_of(table: sa.Table) -> Iterator[None]:
    """Read rows of a table; StoreFailed names it where a value is none that fleet writes."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[:3])
        raise StoreFailed(
            f"table {table.name} of the store holds a row that cannot be read: {reason}. Somebody "
            "else wrote it, or the disk lost it: restore a backup, or take the row out by hand "
            "(docs/how-to/restore-lost-state.md)"
        ) from error


_LOCK = 0x666C656574
"""The number of the server's lock for this: any that nobody else is likely to take."""


def make_tables(connection: sa.Connection, tables: Collection[sa.Table]) -> None:
    """Make the tables that are not there, and add the columns that an older fleet's lack."""
    if connection.dialect.name == "postgresql" and any(_lacking(connection, tables)):
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    for table, columns in _lacking(connection, tables):
        table.create(connection, checkfirst=True)
        for column in columns:
            written = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {written}"))


def _lacking(
    connection: sa.Connection, tables: Collection[sa.Table]
) -> Iterator[tuple[sa.Table, list[sa.Column[object]]]]:
    """Yield the tables that lack something; no columns: the whole table."""
    for table in tables:
        seen = sa.inspect(connection)
        if not seen.has_table(table.name):
            yield table, []
            continue
        there = {column["name"] for column in seen.get_columns(table.name)}
        if columns := [column for column in table.columns if column.name not in there]:
            yield table, columns
