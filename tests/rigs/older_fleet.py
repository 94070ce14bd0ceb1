"""Keep a fleet as a release left it, and bring it back: files, stacks, store, machines.

A database is kept as the statements that make it: a review reads them, whatever the version of
the program that wrote its file.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.rigs import postgres

_LEFT_OUT = shutil.ignore_patterns(
    *("*.lock", "*.db", "*.log", "*.bak"), *("pulumi", "history", "backups", "locks")
)
"""Files of one computer, or written by each run; databases, which are kept as statements."""
_STATE = ".fleet"
_KEPT = "state"
"""The name of the folder of state in a fixture: one that begins with a dot is overlooked."""
_POSTGRES = "postgresql.sql"


def keep(folder: Path, into: Path, url: str | None = None) -> None:
    """Write the fleet of a folder into a fixture; `url` is its store in PostgreSQL."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(folder, into, ignore=_LEFT_OUT)
    (into / _STATE).rename(into / _KEPT)
    for stack in (into / _KEPT).glob(".pulumi/stacks/*/*.json*"):
        state = _without_places(json.loads(stack.read_bytes()))
        stack.write_text(f"{json.dumps(state, indent=1)}\n", encoding="utf-8")
    for database in sorted((folder / _STATE).glob("*.db")):
        with closing(sqlite3.connect(database)) as connection:
            statements = "\n".join(connection.iterdump())
        (into / _KEPT / f"{database.stem}.sql").write_text(f"{statements}\n", encoding="utf-8")
    if url is not None:
        (into / _KEPT / _POSTGRES).write_text(postgres.dump(url), encoding="utf-8")


def _without_places(stack: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the state of a Pulumi stack without the files of this computer that made it."""
    match stack:
        case dict():
            return {
                key: _without_places(part)
                for key, part in stack.items()
                if key not in ("sourcePosition", "stackTrace")
            }
        case list():
            return [_without_places(part) for part in stack]
    return stack


def restore(fixture: Path, into: Path, url: str | None = None) -> None:
    """Bring a fleet back into an empty folder; `url` is an empty database for its store."""
    shutil.copytree(fixture, into, dirs_exist_ok=True)
    if not (into / _KEPT).is_dir():
        return
    state = (into / _KEPT).rename(into / _STATE)
    for written in sorted(state.glob("*.sql")):
        statements = written.read_text(encoding="utf-8")
        if written.name == _POSTGRES:
            assert url is not None
            postgres.load(url, statements)
        else:
            with closing(sqlite3.connect(written.with_suffix(".db"))) as connection:
                connection.executescript(statements)
        written.unlink()


def rows(folder: Path, table: str, url: str | None = None) -> list[dict[str, object]]:
    """Return the rows of a table of a store, each by its columns, in an order of their own."""
    if url is None:
        with closing(sqlite3.connect(folder / _STATE / "store.db")) as connection:
            found = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 - a table's name
            names = [column[0] for column in found.description]
            read = [dict(zip(names, row, strict=True)) for row in found]
    else:
        read = postgres.rows(url, table)
    return sorted(read, key=repr)
