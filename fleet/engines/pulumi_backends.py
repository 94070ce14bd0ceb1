"""Find the Pulumi CLI, and reach what a Pulumi backend holds without it: by key.

Of every kind of backend the keys are the same: `.pulumi/stacks/PROJECT/STACK.json` and
`.pulumi/locks/…`.

A backend of another kind is reached by the CLI only.

The CLI puts the name of the database before each key, as it does with a folder of a bucket.
What its URL does not say comes from libpq's variables (PGPASSWORD, PGPASSFILE, …), as it does
for the CLI; no message shows it.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fleet.errors import EngineAbsent, StoreFailed, needing, touching
from fleet.state.confined import announce_connection
from fleet.state.files import replace_file
from fleet.state.s3 import S3Prefix
from fleet.state.storage import cache_folder

if TYPE_CHECKING:
    import psycopg


VERSION = "3.255.0"
"""The release of the SDK in pyproject.toml; the CLI may be newer, within the same major one."""

_SECONDS = 20
GET_CLI = "install it from pulumi.com, or name it in FLEET_PULUMI"
_DAY = 24 * 60 * 60
_TO_START = ("HOME", "LANG", "PATH", "PULUMI_HOME", "TMPDIR", "USER")
"""All that a program gets of our environment to say its version: secrets are in it."""
_LOOKED_AT = ("FLEET_PULUMI", "PATH", "XDG_CACHE_HOME", "HOME")


def find_cli(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a CLI of a release that fits, or raise EngineAbsent with what to do."""
    problems = []
    for path in _candidates(environment):
        problem = why_unfit(path, environment)
        if problem is None:
            return path
        problems.append(problem)
    found = f" ({'; '.join(problems)})" if problems else ""
    raise EngineAbsent(
        f"the Pulumi CLI {VERSION} or newer is not installed{found}; {GET_CLI} (in a clone of "
        "fleet, `python tools/pulumi_cli.py` gets it); simulated machines need none with "
        "`engine: embedded`"
    )


def known_cli() -> Path:
    """Return the CLI that fits what the environment says, looked for once."""
    return _known_cli(tuple((name, os.environ[name]) for name in _LOOKED_AT if name in os.environ))


@cache
def _known_cli(environment: tuple[tuple[str, str], ...]) -> Path:
    return find_cli(dict(environment))


def why_unfit(path: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return why this program cannot be used; None when it can."""
    try:
        return _asked_once_a_day(path, cache_folder(environment) / "pulumi-fits.json")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"


def _asked_once_a_day(path: Path, notes: Path) -> str | None:
    """Return why a program cannot be used; one that fits is asked again tomorrow.

    Each start takes it a while. It may be a launcher that stays the same while what it starts is
    replaced: one that does not fit is asked each time, for somebody may have done as they were
    told.
    """
    program, today = path.stat(), int(time.time()) // _DAY
    key = f"{path.absolute()} {program.st_ino} {program.st_size} {program.st_mtime_ns}"
    day, fit = _noted(notes)
    fit = fit if day == today else []
    if key in fit:
        return None
    problem = _judged(path)
    if problem is None:
        with suppress(OSError):
            notes.parent.mkdir(parents=True, exist_ok=True)
            replace_file(
                notes, json.dumps({"day": today, "fit": [*fit, key]}).encode(), mode=0o600
            )
    return problem


def _judged(path: Path) -> str | None:
    """Ask a program which release it is; return why that cannot be used."""
    answer = subprocess.run(  # noqa: S603 - the person's own program, one fixed argument
        [path, "version"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=_SECONDS,
        check=False,
        env={
            **{name: os.environ[name] for name in _TO_START if name in os.environ},
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        },
    ).stdout.strip()
    match = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)\S*", answer)
    if match is None:
        return f"{path} names no version"
    version = tuple(map(int, match.groups()))
    needed = tuple(map(int, VERSION.split(".")))
    if version[0] != needed[0] or version < needed:
        return f"{path} is {answer}"
    return None


def _noted(notes: Path) -> tuple[object, list[str]]:
    """Return on which day which programs fitted; none where that cannot be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        noted = json.loads(notes.read_text(encoding="utf-8"))
        return noted["day"], [str(key) for key in noted["fit"]]
    with suppress(OSError):
        notes.unlink()
    return None, []


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("FLEET_PULUMI"):
        yield Path(named)
    if on_path := shutil.which("pulumi", path=environment.get("PATH", "")):
        yield Path(on_path)
    yield from sorted(cache_folder(environment).glob("pulumi-*/bin/pulumi"), reverse=True)


class Objects(Protocol):
    """What one backend holds, by key; each raises StoreFailed where it does not answer."""

    address: str
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


def shown_address(backend: str) -> str:
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
            # Another process here has removed it.
            continue


class FileObjects:
    """A folder, with a file for each key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"file://{folder}"

    def read(self, key: str) -> bytes | None:
        """Return a file's content; None when there is no such file."""
        path = self._folder / key
        with touching(path, StoreFailed), suppress(FileNotFoundError, NotADirectoryError):
            return path.read_bytes()
        return None

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
        with touching(path, StoreFailed):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                new.write_bytes(content)
                path.hardlink_to(new)
            finally:
                new.unlink(missing_ok=True)

    def remove(self, key: str) -> None:
        """Remove a file."""
        path = self._folder / key
        with touching(path, StoreFailed):
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}{_NOTES}").unlink(missing_ok=True)


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
        self.address = shown_address(backend)
        self._table = options.pop("table", _TABLE)
        self._settings = options
        folder = parts.path.strip("/")
        self._before = f"{folder}/" if folder else ""
        self._url = parts._replace(query="").geturl()

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
        return f"{self._url}?{urlencode(said, quote_via=quote)}" if said else self._url


_ANSWER_SECONDS = 10
_TRIES = 3


class S3Objects(S3Prefix):
    """A bucket, or what is under one prefix of it."""

    def __init__(self, backend: str) -> None:
        super().__init__(
            backend,
            StoreFailed,
            connect_timeout=_ANSWER_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            retries={"total_max_attempts": _TRIES},
        )

    def read(self, key: str) -> bytes | None:
        """Return an object's content; None when there is no such object."""
        found = self.get(key)
        with self.asked():
            return None if found is None else bytes(found.read())

    def create(self, key: str, content: bytes) -> None:
        """Write an object on the condition that there is none."""
        with self.asked():
            self.client.put_object(Body=content, IfNoneMatch="*", **self.at(key))
