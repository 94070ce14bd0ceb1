"""This module says how what a Pulumi backend holds is reached without the CLI: by key.

Of every kind of backend the keys are the same: `.pulumi/stacks/PROJECT/STACK.json` and
`.pulumi/locks/…`.

A backend of another kind is reached by the CLI only.

The CLI puts the name of the database before each key, as it does with a folder of a bucket.
What its URL does not say comes from libpq's variables (PGPASSWORD, PGPASSFILE, …), as it does
for the CLI; no message shows it.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fleet.errors import StoreFailed
from fleet.state.s3 import S3Prefix

if TYPE_CHECKING:
    import psycopg


class Objects(Protocol):
    """What one backend holds, by key; each raises StoreFailed where it does not answer."""

    place: str
    """Where it is, without credentials."""

    def read(self, key: str) -> bytes | None:
        """Return what a key holds; None when there is nothing."""

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, sorted."""

    def create(self, key: str, content: bytes) -> None:
        """Write what is not there yet; StoreFailed where it is."""

    def remove(self, key: str) -> None:
        """Remove what a key holds; nothing is fine."""


def file_root(backend: str) -> Path | None:
    """Return the folder of a file backend; None for any other."""
    if not backend.startswith("file://"):
        return None
    folder = unquote(backend.removeprefix("file://").split("?")[0])
    return Path(folder).expanduser() / ".pulumi"


def place_of(backend: str) -> str:
    """Return a backend's URL without what may be a secret: its password, its parameters."""
    parts = urlsplit(backend)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


_NOTES = ".attrs"
"""Beside each file of its own the CLI keeps another one, which says what kind it is."""


def drop_cut_notes(root: Path, project: str) -> None:
    """Remove the empty notes of who was killed at writing them: the CLI reads past none.

    It would say "failed to load checkpoint: EOF" for ever, and without a note does the same as
    with one. Its program for people still writes them; see `Home.environment`.
    """
    for note in (*root.glob(f"*{_NOTES}"), *root.glob(f"stacks/{project}/*{_NOTES}")):
        try:
            if not note.stat().st_size:
                note.unlink()
        except FileNotFoundError:
            # Whoever else works here has removed it.
            continue


class FileObjects:
    """A folder, with a file for each key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place = f"file://{folder}"

    def read(self, key: str) -> bytes | None:
        """Return a file's content; None when there is no such file."""
        try:
            return (self._folder / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failure(key, error) from error

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys of the files whose path begins so."""
        folder = self._folder / prefix.rpartition("/")[0]
        found = (path for path in folder.rglob("*") if path.suffix != _NOTES and path.is_file())
        names = (path.relative_to(self._folder).as_posix() for path in found)
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def create(self, key: str, content: bytes) -> None:
        """Write a file that is not there yet, whole or not at all."""
        path = self._folder / key
        new = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                new.write_bytes(content)
                path.hardlink_to(new)
            finally:
                new.unlink(missing_ok=True)
        except OSError as error:
            raise self._failure(key, error) from error

    def remove(self, key: str) -> None:
        """Remove a file."""
        try:
            (self._folder / key).unlink(missing_ok=True)
            (self._folder / f"{key}{_NOTES}").unlink(missing_ok=True)
        except OSError as error:
            raise self._failure(key, error) from error

    def _failure(self, key: str, error: OSError) -> StoreFailed:
        return StoreFailed(f"{self._folder / key}: {error.strerror or error}")


def open_objects(backend: str) -> Objects | None:
    """Return what a backend holds, not asked for anything yet; None where only the CLI can."""
    root = file_root(backend)
    if root:
        return FileObjects(root.parent)
    if backend.startswith("s3://"):
        return S3Objects(backend)
    if backend.startswith("postgres://"):
        return PostgresObjects(backend)
    return None


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


_SECONDS = 10
_TRIES = 3


class S3Objects:
    """A bucket, or what is under one prefix of it."""

    def __init__(self, backend: str) -> None:
        self._s3 = S3Prefix(
            backend,
            StoreFailed,
            connect_timeout=_SECONDS,
            read_timeout=_SECONDS,
            retries={"total_max_attempts": _TRIES},
        )
        self.place = self._s3.place

    def read(self, key: str) -> bytes | None:
        """Return an object's content; None when there is no such object."""
        found = self._s3.get(key)
        with self._s3.asked():
            return None if found is None else bytes(found.read())

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, however many there are."""
        return self._s3.keys(prefix)

    def create(self, key: str, content: bytes) -> None:
        """Write an object on the condition that there is none."""
        with self._s3.asked():
            self._s3.client.put_object(Body=content, IfNoneMatch="*", **self._s3.at(key))

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._s3.remove(key)
