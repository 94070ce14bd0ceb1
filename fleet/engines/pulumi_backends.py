"""Find the Pulumi CLI, and read and write objects of a Pulumi backend without the CLI.

In folders, S3 buckets and PostgreSQL, the keys are `.pulumi/stacks/PROJECT/STACK.json` and
`.pulumi/locks/…`. Other backends need the CLI.

In PostgreSQL and in a folder of a bucket, the CLI prefixes each key, in PostgreSQL with the name
of the database. Missing parts of a URL come from libpq's variables (PGPASSWORD, PGPASSFILE, …), as
for the CLI. No message shows them.
"""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fleet.errors import EngineAbsent, StoreFailed, needing, touching
from fleet.state.confined import announce_connection
from fleet.state.s3 import S3Prefix
from fleet.state.storage import cache_folder

if TYPE_CHECKING:
    import psycopg


VERSION = "3.255.0"
"""Release of the SDK in pyproject.toml. The CLI may be newer, with the same major version."""

_VERSION_TIMEOUT_SECONDS = 20
GET_CLI = "install it from pulumi.com, or name it in FLEET_PULUMI"
_VERSION_VARIABLES = ("HOME", "LANG", "PATH", "PULUMI_HOME", "TMPDIR", "USER")
"""Environment variables that `pulumi version` gets. Others may be secret."""
_CLI_VARIABLES = ("FLEET_PULUMI", "PATH", "XDG_CACHE_HOME", "HOME")


def find_cli(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a CLI of a supported release; raises EngineAbsent with advice otherwise."""
    problems = []
    for path in _candidates(environment):
        problem = why_unfit(path)
        if problem is None:
            return path
        problems.append(problem)
    found = f" ({'; '.join(problems)})" if problems else ""
    raise EngineAbsent(
        f"the Pulumi CLI {VERSION} or newer is not installed{found}; {GET_CLI} (in a clone of "
        "fleet, `python tools/pulumi_cli.py` gets it); simulated machines work without it "
        "with `engine: embedded`"
    )


def known_cli() -> Path:
    """Return the CLI that the environment selects. The search runs once per environment."""
    return _known_cli(
        tuple((name, os.environ[name]) for name in _CLI_VARIABLES if name in os.environ)
    )


@cache
def _known_cli(environment: tuple[tuple[str, str], ...]) -> Path:
    return find_cli(dict(environment))


def why_unfit(path: Path) -> str | None:
    """Run `version` of a program; return the reason why it is no usable CLI, or None."""
    try:
        answer = subprocess.run(  # noqa: S603 - the person's own program, one fixed argument
            [path, "version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
            env={
                **{name: os.environ[name] for name in _VERSION_VARIABLES if name in os.environ},
                "PULUMI_SKIP_UPDATE_CHECK": "true",
            },
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    match = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)\S*", answer)
    if match is None:
        return f"{path} names no version"
    version = tuple(map(int, match.groups()))
    needed = tuple(map(int, VERSION.split(".")))
    if version[0] != needed[0] or version < needed:
        return f"{path} is {answer}"
    return None


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("FLEET_PULUMI"):
        yield Path(named)
    if on_path := shutil.which("pulumi", path=environment.get("PATH", "")):
        yield Path(on_path)
    yield from sorted(cache_folder(environment).glob("pulumi-*/bin/pulumi"), reverse=True)


class Objects(Protocol):
    """The objects of one backend, by key. If it is unreachable, methods raise StoreFailed."""

    address: str
    """Location of the backend, without credentials."""

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if the object does not exist."""

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that start with this prefix, sorted."""

    def create(self, key: str, content: bytes) -> None:
        """Create an object; raises StoreFailed if it exists."""

    def remove(self, key: str) -> None:
        """Remove an object. Do nothing if it does not exist."""


def file_root(backend: str) -> Path | None:
    """Return the folder of a file backend; None for other backends."""
    if not backend.startswith("file://"):
        return None
    folder = unquote(backend.removeprefix("file://").split("?")[0])
    return Path(folder).expanduser() / ".pulumi"


def shown_address(backend: str) -> str:
    """Return a backend's URL without password and parameters, which may be secret."""
    parts = urlsplit(backend)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


_ATTRIBUTES_SUFFIX = ".attrs"
"""Suffix of the attribute file that the CLI writes next to each of its files."""


def remove_empty_attribute_files(root: Path, project: str) -> None:
    """Remove the empty attribute files that a killed CLI left and that no CLI can read.

    With such a file, each command fails with "failed to load checkpoint: EOF"; without it,
    commands work. A user's `pulumi` command still writes such files; see `Home.environment`.
    """
    for note in (
        *root.glob(f"*{_ATTRIBUTES_SUFFIX}"),
        *root.glob(f"stacks/{project}/*{_ATTRIBUTES_SUFFIX}"),
    ):
        try:
            if not note.stat().st_size:
                note.unlink()
        except FileNotFoundError:
            # Another process on this computer removed it.
            continue


class FileObjects:
    """The objects of a file backend: a folder with one file per key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"file://{folder}"

    def read(self, key: str) -> bytes | None:
        """Return the content of a file; None if the file does not exist."""
        path = self._folder / key
        with touching(path, StoreFailed), suppress(FileNotFoundError, NotADirectoryError):
            return path.read_bytes()
        return None

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys of the files with this path prefix, sorted."""
        folder = self._folder / prefix.rpartition("/")[0]
        found = (
            path
            for path in folder.rglob("*")
            if path.suffix != _ATTRIBUTES_SUFFIX and path.is_file()
        )
        names = (path.relative_to(self._folder).as_posix() for path in found)
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def create(self, key: str, content: bytes) -> None:
        """Create a file atomically; raises StoreFailed if the file exists."""
        path = self._folder / key
        new = path.with_name(f".{path.name}.new")
        with touching(path, StoreFailed):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                new.write_bytes(content)
                path.hardlink_to(new)
            finally:
                new.unlink(missing_ok=True)

    def remove(self, key: str) -> None:
        """Remove a file and its attribute file, if they exist."""
        path = self._folder / key
        with touching(path, StoreFailed):
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}{_ATTRIBUTES_SUFFIX}").unlink(missing_ok=True)


def open_objects(backend: str) -> Objects | None:
    """Return the objects of a backend; None if only the CLI can read the backend."""
    root = file_root(backend)
    if root:
        return FileObjects(root.parent)
    if backend.startswith("s3://"):
        return S3Objects(backend)
    if backend.startswith("postgres://"):
        return PostgresObjects(backend)
    return None


_DEFAULT_TABLE = "pulumi_state"


class PostgresObjects:
    """The objects of a PostgreSQL backend: one row per key, in one table."""

    def __init__(self, backend: str) -> None:
        parts = urlsplit(backend)
        options = dict(parse_qsl(parts.query))
        self.address = shown_address(backend)
        self._table = options.pop("table", _DEFAULT_TABLE)
        self._settings = options
        folder = parts.path.strip("/")
        self._before = f"{folder}/" if folder else ""
        self._url = parts._replace(query="").geturl()

    def read(self, key: str) -> bytes | None:
        """Return the content of a row; None if the row does not exist."""
        rows = self._execute("SELECT data::text FROM {} WHERE key = %s", self._before + key)
        return base64.b64decode(json.loads(rows[0][0])["data"]) if rows else None

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that start with this prefix, sorted."""
        rows = self._execute(
            "SELECT key FROM {} WHERE starts_with(key, %s)", self._before + prefix
        )
        return tuple(sorted(str(row[0]).removeprefix(self._before) for row in rows))

    def create(self, key: str, content: bytes) -> None:
        """Insert a row. Create the table first if it does not exist."""
        data = json.dumps({"data": base64.b64encode(content).decode()})
        self._execute(
            "CREATE TABLE IF NOT EXISTS {} (key text PRIMARY KEY, data json NOT NULL,"
            " updated_at timestamptz NOT NULL DEFAULT now())"
        )
        self._execute("INSERT INTO {} (key, data) VALUES (%s, %s)", self._before + key, data)

    def remove(self, key: str) -> None:
        """Delete a row. Do nothing if it does not exist."""
        self._execute("DELETE FROM {} WHERE key = %s", self._before + key)

    def _execute(self, statement: str, *values: str) -> Sequence[tuple[Any, ...]]:
        with self._connect() as connection:
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
    def _connect(self) -> Iterator["psycopg.Connection[tuple[Any, ...]]"]:
        with needing("postgres", self.address, StoreFailed):
            import psycopg
        announce_connection(self.address)
        try:
            with psycopg.connect(self._dsn(), autocommit=True) as connection:
                yield connection
        except (psycopg.Error, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StoreFailed(f"{self.address} does not answer: {reason}") from error

    def _dsn(self) -> str:
        """Return the address for libpq. Parameters unknown to libpq become server settings.

        The CLI's driver accepts both kinds of parameters in the URL.
        """
        from psycopg.pq import Conninfo

        known = {option.keyword.decode() for option in Conninfo.get_defaults()}
        said = {name: value for name, value in self._settings.items() if name in known}
        others = [
            f"-c {name}={value}" for name, value in self._settings.items() if name not in known
        ]
        options = " ".join(filter(None, [said.get("options", ""), *others]))
        said |= {"options": options} if options else {}
        return f"{self._url}?{urlencode(said, quote_via=quote)}" if said else self._url


_TIMEOUT_SECONDS = 10
_MAX_ATTEMPTS = 3


class S3Objects(S3Prefix):
    """The objects of an S3 backend: a bucket, or a prefix in a bucket."""

    def __init__(self, backend: str) -> None:
        super().__init__(
            backend,
            StoreFailed,
            connect_timeout=_TIMEOUT_SECONDS,
            read_timeout=_TIMEOUT_SECONDS,
            retries={"total_max_attempts": _MAX_ATTEMPTS},
        )

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if the object does not exist."""
        found = self.get(key)
        with self.asked():
            return None if found is None else bytes(found.read())

    def create(self, key: str, content: bytes) -> None:
        """Create an object; raises StoreFailed if the object exists."""
        with self.asked():
            self.client.put_object(Body=content, IfNoneMatch="*", **self.at(key))
