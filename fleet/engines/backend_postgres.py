"""This module reaches a Pulumi backend in PostgreSQL: one table, a row for each key.

The CLI puts the name of the database before each key, as it does with a folder of a bucket.
What its URL does not say comes from libpq's variables (PGPASSWORD, PGPASSFILE, …), as it does
for the CLI; no message shows it.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fleet.engines.objects import place_of
from fleet.errors import StoreFailed

if TYPE_CHECKING:
    import psycopg

_TABLE = "pulumi_state"


class PostgresObjects:
    """The rows of one table."""

    def __init__(self, backend: str) -> None:
        parts = urlsplit(backend)
        options = dict(parse_qsl(parts.query))
        self.place = place_of(backend)
        self._table = options.pop("table", _TABLE)
        self._settings = options
        folder = parts.path.strip("/")
        self._before = f"{folder}/" if folder else ""
        self._address = parts._replace(query="").geturl()

    def read(self, key: str) -> bytes | None:
        """Return what a row holds; None when there is no such row."""
        rows = self._ask("SELECT data::text FROM {} WHERE key = %s", self._before + key)
        return base64.b64decode(json.loads(rows[0][0])["data"]) if rows else None

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so."""
        rows = self._ask("SELECT key FROM {} WHERE starts_with(key, %s)", self._before + prefix)
        return tuple(sorted(str(row[0]).removeprefix(self._before) for row in rows))

    def create(self, key: str, content: bytes) -> None:
        """Insert a row, and the table where this is its first."""
        data = json.dumps({"data": base64.b64encode(content).decode()})
        self._ask(
            "CREATE TABLE IF NOT EXISTS {} (key text PRIMARY KEY, data json NOT NULL,"
            " updated_at timestamptz NOT NULL DEFAULT now())"
        )
        self._ask("INSERT INTO {} (key, data) VALUES (%s, %s)", self._before + key, data)

    def remove(self, key: str) -> None:
        """Delete a row."""
        self._ask("DELETE FROM {} WHERE key = %s", self._before + key)

    def _ask(self, statement: str, *values: str) -> Sequence[tuple[Any, ...]]:
        with self._connected() as connection:
            import psycopg
            from psycopg import sql

            table = sql.Identifier(*self._table.split("."))
            try:
                # The statement is one of the constants above.
                cursor = connection.execute(
                    sql.SQL(statement).format(table),
                    values or None,
                )
                return cursor.fetchall() if cursor.description else ()
            except psycopg.errors.UndefinedTable:
                return ()

    @contextmanager
    def _connected(self) -> Iterator["psycopg.Connection[tuple[Any, ...]]"]:
        try:
            import psycopg
        except ModuleNotFoundError as error:
            raise StoreFailed(
                f"{self.place} needs {error.name}, which is not installed: "
                "install fleet with its extra `postgres`"
            ) from error
        try:
            with psycopg.connect(self._dsn(), autocommit=True) as connection:
                yield connection
        except (psycopg.Error, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StoreFailed(f"{self.place} does not answer: {reason}") from error

    def _dsn(self) -> str:
        """Return the address as libpq wants it: what it does not know is a setting of the server.

        The CLI's driver takes both in one place.
        """
        from psycopg.pq import Conninfo

        known = {option.keyword.decode() for option in Conninfo.get_defaults()}
        said = {name: value for name, value in self._settings.items() if name in known}
        others = [
            f"-c {name}={value}" for name, value in self._settings.items() if name not in known
        ]
        options = " ".join(filter(None, [said.get("options", ""), *others]))
        said |= {"options": options} if options else {}
        return f"{self._address}?{urlencode(said, quote_via=quote)}" if said else self._address
