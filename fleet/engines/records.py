"""This module keeps the embedded engine's stacks in SQLite, each step in its own transaction."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa

from fleet.errors import StoreFailed
from fleet.facts.values import Value
from fleet.ports import StackRef
from fleet.store.files import make_private
from fleet.store.places import sqlite_url

_DAMAGE = ("file is not a database", "database disk image is malformed")
_WAY_OUT = (
    "; restore a backup, or move the file away and give up its stacks, one by one, with "
    "`fleet state init --forget-stack` (docs/how-to/restore-lost-state.md)"
)
_METADATA = sa.MetaData()
_STACKS = sa.Table(
    "embedded_stacks",
    _METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("project", sa.Text, nullable=False),
    sa.Column("provider", sa.Text, nullable=False),
    sa.Column("engine", sa.Text, nullable=False),
    sa.Column("serial", sa.Integer, nullable=False),
)
_RESOURCES = sa.Table(
    "embedded_resources",
    _METADATA,
    sa.Column("stack", sa.Text, sa.ForeignKey("embedded_stacks.name"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("inputs", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("id", sa.Text),
)


class Row(Value):
    """One recorded resource; `making` and `deleting` are intents of an unfinished step."""

    name: str
    type: str
    inputs: dict[str, Any]
    state: Literal["making", "made", "deleting"]
    id: str | None = None


class StackRows(Value):
    """One recorded stack."""

    project: str
    provider: str
    engine: Literal["embedded", "pulumi"]
    serial: int
    rows: dict[str, Row]


class Records:
    """The embedded engine's tables; reading never creates them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = threading.Lock()

    def read(self, name: str) -> StackRows | None:
        """Return a stack as recorded; None when it never existed."""
        if not self.path.exists():
            return None
        with self._transaction() as connection:
            if not sa.inspect(connection).has_table(_STACKS.name):
                return None
            stack = connection.execute(sa.select(_STACKS).where(_STACKS.c.name == name)).first()
            if stack is None:
                return None
            found = connection.execute(
                sa.select(_RESOURCES).where(_RESOURCES.c.stack == name).order_by("name")
            )
            rows = [
                Row(
                    name=each.name,
                    type=each.type,
                    inputs=json.loads(each.inputs),
                    state=each.state,
                    id=each.id,
                )
                for each in found
            ]
            return StackRows(
                project=stack.project,
                provider=stack.provider,
                engine=stack.engine,
                serial=stack.serial,
                rows={row.name: row for row in rows},
            )

    def fill(self, stacks: Mapping[str, StackRows]) -> None:
        """Record whole stacks, all of them or none; those that are there already stay."""
        new = {name: each for name, each in stacks.items() if self.read(name) is None}
        if not new:
            return
        with self._transaction() as connection:
            _METADATA.create_all(connection)
            for name, each in new.items():
                said = each.model_dump(include={"project", "provider", "engine", "serial"})
                connection.execute(sa.insert(_STACKS).values(name=name, **said))
                for row in each.rows.values():
                    values = _values(row)
                    connection.execute(
                        sa.insert(_RESOURCES).values(stack=name, name=row.name, **values)
                    )

    def begin(self, ref: StackRef) -> None:
        """Record that a stack exists, and whose it is."""
        with self._transaction() as connection:
            _METADATA.create_all(connection)
            connection.execute(
                sa.insert(_STACKS).values(
                    name=ref.name,
                    project=ref.project,
                    provider=ref.provider,
                    engine="embedded",
                    serial=1,
                )
            )

    def move(self, ref: StackRef) -> None:
        """Record that an emptied stack is at another provider from now on."""
        with self._transaction() as connection:
            connection.execute(
                sa.update(_STACKS)
                .where(_STACKS.c.name == ref.name)
                .values(project=ref.project, provider=ref.provider)
            )
            _grow(connection, ref.name)

    def put(self, stack: str, row: Row) -> None:
        """Record a resource, or what is about to become of it."""
        values = _values(row)
        with self._transaction() as connection:
            connection.execute(_this(sa.delete(_RESOURCES), stack, row.name))
            connection.execute(sa.insert(_RESOURCES).values(stack=stack, name=row.name, **values))
            _grow(connection, stack)

    def drop(self, stack: str, name: str) -> None:
        """Forget a resource that does not exist any more."""
        with self._transaction() as connection:
            connection.execute(_this(sa.delete(_RESOURCES), stack, name))
            _grow(connection, stack)

    @cached_property
    def _engine(self) -> sa.Engine:
        # It keeps no connection, but each statement as it was compiled.
        return sa.create_engine(sqlite_url(self.path), poolclass=sa.NullPool)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            make_private(self.path)
            # Steps that are done at once note it one after the other.
            with self._turn, self._engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            cause = str(getattr(error, "orig", None) or type(error).__name__)
            cause += _WAY_OUT if cause in _DAMAGE else ""
            raise StoreFailed(f"{self.path}: the embedded engine's state: {cause}") from error
        except OSError as error:
            raise StoreFailed(
                f"{self.path}: the embedded engine's state: {error.strerror or error}"
            ) from error


def _values(row: Row) -> Mapping[str, Any]:
    return {
        "type": row.type,
        "inputs": json.dumps(row.inputs, sort_keys=True),
        "state": row.state,
        "id": row.id,
    }


def _this(statement: sa.Delete, stack: str, name: str) -> sa.Delete:
    return statement.where(_RESOURCES.c.stack == stack, _RESOURCES.c.name == name)


def _grow(connection: sa.Connection, stack: str) -> None:
    connection.execute(
        sa.update(_STACKS).where(_STACKS.c.name == stack).values(serial=_STACKS.c.serial + 1)
    )
