"""This module carries a store as a value: all its rows, and into a place where there is none."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from fleet.state.connecting import FENCE
from fleet.state.tables import (
    ABOUT,
    ATTEMPTS,
    IMAGES,
    LEDGER,
    MANIFESTS,
    RUNS,
    SPENT,
    STACKS,
    TENANCIES,
    TICKETS,
)

Cell = str | int
Rows = Mapping[str, Sequence[Mapping[str, Cell]]]
"""Table to its rows; the lock, and what says whose store it is, are left out."""

_TABLES = {
    "stacks": STACKS,
    "runs": RUNS,
    "ledger": LEDGER,
    "attempts": ATTEMPTS,
    "spent": SPENT,
    "images": IMAGES,
    "manifests": MANIFESTS,
    "tickets": TICKETS,
    "tenancies": TENANCIES,
}
_OWN = ("format", "fleet", FENCE)


def read_rows(connection: sa.Connection) -> Rows:
    """Return every row, in an order of its own; what an older store lacks is as it was then."""
    there = set(sa.inspect(connection).get_table_names())
    rows = {
        name: _rows_of(connection, table) if table.name in there else []
        for name, table in _TABLES.items()
    }
    about = [row for row in _rows_of(connection, ABOUT) if row["key"] not in _OWN]
    return {"about": about, **rows}


def write_rows(connection: sa.Connection, rows: Rows) -> None:
    """Insert all rows into tables that are there and empty."""
    for name, table in {"about": ABOUT, **_TABLES}.items():
        if rows.get(name):
            connection.execute(sa.insert(table), [dict(row) for row in rows[name]])


def find_mistake(rows: Rows) -> str:
    """Return what is no row of a store, and where; empty where all are."""
    tables = {"about": ABOUT, **_TABLES}
    for name, found in rows.items():
        if name not in tables:
            return f"store.{name}: a store has no such table; it has {', '.join(sorted(tables))}"
        columns = _columns(tables[name])
        for number, row in enumerate(found):
            where = f"store.{name}[{number}]"
            if row.keys() != columns.keys():
                return f"{where}: expected exactly {', '.join(sorted(columns))}"
            for key, value in row.items():
                if type(value) is not columns[key]:
                    return f"{where}.{key}: expected {columns[key].__name__}"
    return ""


def complete(rows: Rows) -> dict[str, list[dict[str, Cell]]]:
    """Return rows with what those of an older fleet lack."""
    return {
        name: [(_defaults(_TABLES[name]) if name in _TABLES else {}) | dict(row) for row in found]
        for name, found in rows.items()
    }


def _rows_of(connection: sa.Connection, table: sa.Table) -> list[dict[str, Cell]]:
    there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    columns = [table.c[name] for name in _columns(table) if name in there]
    order = [*table.primary_key.columns]
    found = connection.execute(sa.select(*columns).order_by(*order)).mappings()
    own = _defaults(table)
    return [own | {str(key): value for key, value in row.items()} for row in found]


def _defaults(table: sa.Table) -> dict[str, Cell]:
    """Return the columns that an older fleet did not have, to what that stands for."""
    return {
        column.name: column.type.python_type(default.arg)
        for column in table.columns
        if isinstance(default := column.server_default, sa.DefaultClause)
    }


def _columns(table: sa.Table) -> dict[str, type]:
    """Return the columns that hold something; a journal's numbers are counted anew."""
    return {
        column.name: column.type.python_type for column in table.columns if column.name != "number"
    }
