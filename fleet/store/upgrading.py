"""This module gives a store that an older fleet made the tables and columns of this one.

Of several processes that find such a store at once, on a server, one does it and the others wait.
"""

from collections.abc import Collection, Iterator

import sqlalchemy as sa

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
