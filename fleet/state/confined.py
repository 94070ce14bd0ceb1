"""Restrict a process that reads an unapproved fleet.yaml: no programs, no connections, few files.

The restriction uses Python's audit events (PEP 578). It catches mistakes in fleet's own code:
commands with `--world` need no program and no connection. It is no sandbox for other code;
policies run in another process. In a merge request's job without `--world`, fleet refuses programs
and connections, but not files.
"""

import os
import sys
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from fleet.errors import Confined, FleetError

_PROCESS_EVENTS = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "pty.spawn",
        "subprocess.Popen",
    }
)
_CONNECTION_EVENTS = frozenset(
    {
        "fleet.connect",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "socket.sendto",
    }
)
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR
_DATABASE_EVENT = "sqlite3.connect"


class _FileLimits:
    """Check of the files that a confined process opens."""

    def __init__(self, readable: Iterable[str], named: Iterable[str]) -> None:
        self._named = {os.path.realpath(name) for name in named}
        below = _path_prefixes(self._named)
        ours = _path_prefixes(map(os.path.realpath, readable))
        # The folders of Python, its packages and its time zones.
        python = (sys.prefix, sys.base_prefix, *zoneinfo.TZPATH, *filter(None, sys.path))
        self._readable = (*ours, *_path_prefixes(map(os.path.realpath, python)), *below)
        self._writable = (*_path_prefixes(map(os.path.dirname, self._named)), *below)
        # Packages may be installed as links, but an edit of fleet.yaml must not add such a link.
        homes = (sys.prefix, sys.base_prefix)
        self._installed = _path_prefixes(
            home for home in homes if not f"{os.path.realpath(home)}/".startswith(ours)
        )

    def check(self, event: str, arguments: tuple[object, ...]) -> None:
        _refuse_programs_and_connections(event, arguments)
        if event == _DATABASE_EVENT:
            raise Confined(f"refused: a connection would be opened ({event})")
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, flags = os.fsdecode(arguments[0]), arguments[2]
            if path == os.devnull:
                return  # /dev/null
            writes = isinstance(flags, int) and bool(flags & _WRITE_FLAGS)
            real = os.path.realpath(path)
            allowed = self._writable if writes else self._readable
            installed = path.startswith(self._installed) and "/../" not in path and not writes
            if not installed and real not in self._named and not f"{real}/".startswith(allowed):
                how = "written" if writes else "opened, and is outside this folder"
                raise Confined(f"refused: {path} would be {how}")


def _path_prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    """Add a trailing slash to each folder, so that it is a prefix of the allowed paths."""
    return tuple(folder.rstrip("/") + "/" for folder in folders)


def _refuse_programs_and_connections(event: str, arguments: tuple[object, ...]) -> None:
    """Raise Confined if an audit event starts a program or opens a connection."""
    if event in _PROCESS_EVENTS:
        what = "".join(f": {name!r}" for name in arguments[:1])
        raise Confined(f"refused: a program would be started ({event}{what})")
    if event in _CONNECTION_EVENTS:
        raise Confined(f"refused: a connection would be opened ({event})")


def announce_connection(address: str) -> None:
    """Raise the audit event of a connection. PostgreSQL's client, libpq, raises no such event."""
    sys.audit("fleet.connect", address)


_MERGE_REQUEST = (
    "CI_MERGE_REQUEST_IID",
    "CI_EXTERNAL_PULL_REQUEST_IID",
    "GITHUB_HEAD_REF",
    "FLEET_UNTRUSTED",
)
"""Variables that GitLab, GitHub, Forgejo or a job's author sets in a merge request's job."""


def is_untrusted() -> bool:
    """Return whether this process runs in a merge request's job."""
    return any(os.environ.get(name) for name in _MERGE_REQUEST)


_Check = Callable[[str, tuple[object, ...]], None]
_active: _Check | None = None


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _active is not None:
        _active(event, arguments)


@cache
def _add_hook() -> None:
    """Install the audit hook once per process. Python cannot remove an audit hook."""
    sys.addaudithook(_hook)


@contextmanager
def _check_events(check: _Check) -> Iterator[None]:
    """Apply `check` to all audit events of the process while the body runs."""
    global _active  # noqa: PLW0603 - an audit hook is per process
    _add_hook()
    before, _active = _active, check
    try:
        yield
    finally:
        _active = before


@contextmanager
def confined(folders: Iterable[str], named: Iterable[str]) -> Iterator[None]:
    """Permit only reads in these folders, and access to the files that the user named.

    Code that starts a program, opens a connection or opens another file gets the error Confined.
    """
    # Python would write bytecode to files.
    saves, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with _check_events(_FileLimits(folders, named).check):
            yield
    finally:
        sys.dont_write_bytecode = saves


@contextmanager
def unconnected() -> Iterator[None]:
    """Refuse programs and connections. Raise Confined at the end even if the body caught it."""
    tried: list[Confined] = []

    def check(event: str, arguments: tuple[object, ...]) -> None:
        try:
            _refuse_programs_and_connections(event, arguments)
        except Confined as error:
            tried.append(error)
            raise

    try:
        with _check_events(check):
            yield
    except FleetError:
        if not tried:
            raise
    if tried:
        raise Confined(f"{tried[0]}; this is a merge request: use `--world FILE`")
