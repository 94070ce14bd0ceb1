"""Confine what reads an unapproved fleet.yaml: no program, no connection, few files.

Python's audit events report each of these before it happens (PEP 578). This catches mistakes of
fleet's own code, whose commands with `--world` need none of it; it is no sandbox for other code,
and policies run outside of it. A merge request's job without `--world` starts no program and opens
no connection either, whatever its command.
"""

import os
import sys
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from fleet.errors import Confined, FleetError

_STARTS = frozenset(
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
_CONNECTS = frozenset(
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
_WRITES = os.O_WRONLY | os.O_RDWR
_DATABASE = "sqlite3.connect"


class _Bounds:
    """Which files may be opened while a process is confined."""

    def __init__(self, readable: Iterable[str], named: Iterable[str]) -> None:
        self._named = {os.path.realpath(name) for name in named}
        below = _below(self._named)
        ours = _below(map(os.path.realpath, readable))
        self._readable = (*ours, *_below(map(os.path.realpath, _own())), *below)
        self._writable = (*_below(map(os.path.dirname, self._named)), *below)
        # Packages may be installed as links; not where a change of fleet.yaml could bring one.
        homes = (sys.prefix, sys.base_prefix)
        self._installed = _below(
            home for home in homes if not f"{os.path.realpath(home)}/".startswith(ours)
        )

    def check(self, event: str, arguments: tuple[object, ...]) -> None:
        _check_reach(event, arguments)
        if event == _DATABASE:
            raise Confined(f"refused: a connection would be opened ({event})")
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, flags = os.fsdecode(arguments[0]), arguments[2]
            if path == os.devnull:
                return  # where what nobody reads any more goes
            writes = isinstance(flags, int) and bool(flags & _WRITES)
            real = os.path.realpath(path)
            allowed = self._writable if writes else self._readable
            installed = path.startswith(self._installed) and "/../" not in path and not writes
            if not installed and real not in self._named and not f"{real}/".startswith(allowed):
                how = "written" if writes else "opened, and is outside this folder"
                raise Confined(f"refused: {path} would be {how}")


def _below(folders: Iterable[str]) -> tuple[str, ...]:
    """Return how the paths of folders and of what is in them begin."""
    return tuple(folder.rstrip("/") + "/" for folder in folders)


def _own() -> Iterator[str]:
    """Yield where Python, its packages and its time zones are."""
    yield from (sys.prefix, sys.base_prefix, *zoneinfo.TZPATH)
    yield from filter(None, sys.path)


def _check_reach(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse to start a program or to open a connection."""
    if event in _STARTS:
        what = "".join(f": {name!r}" for name in arguments[:1])
        raise Confined(f"refused: a program would be started ({event}{what})")
    if event in _CONNECTS:
        raise Confined(f"refused: a connection would be opened ({event})")


def announce_connection(address: str) -> None:
    """Raise the audit event of a connection that a library opens without one, as libpq does."""
    sys.audit("fleet.connect", address)


_MERGE_REQUEST = (
    "CI_MERGE_REQUEST_IID",
    "CI_EXTERNAL_PULL_REQUEST_IID",
    "GITHUB_HEAD_REF",
    "FLEET_UNTRUSTED",
)
"""Set in the job of a merge request, by GitLab, by GitHub and Forgejo, or by the job's author."""


def is_untrusted() -> bool:
    """Return whether this process runs for a merge request."""
    return any(os.environ.get(name) for name in _MERGE_REQUEST)


_Check = Callable[[str, tuple[object, ...]], None]
_active: _Check | None = None


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _active is not None:
        _active(event, arguments)


@cache
def _add_hook() -> None:
    """Add the hook, which stays for as long as the process."""
    sys.addaudithook(_hook)


@contextmanager
def _checking(check: _Check) -> Iterator[None]:
    """Have every audit event of this process checked."""
    global _active  # noqa: PLW0603 - an audit hook is the process's
    _add_hook()
    before, _active = _active, check
    try:
        yield
    finally:
        _active = before


@contextmanager
def confined(folders: Iterable[str], named: Iterable[str]) -> Iterator[None]:
    """Refuse what goes beyond reading these folders, and the files that a person named.

    Raises Confined from within what would have started, connected or opened something.
    """
    # What is loaded meanwhile is compiled, but not saved so: that is a file to be written.
    saves, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with _checking(_Bounds(folders, named).check):
            yield
    finally:
        sys.dont_write_bytecode = saves


@contextmanager
def unconnected() -> Iterator[None]:
    """Refuse programs and connections; raises Confined also where the code that tried went on."""
    tried: list[Confined] = []

    def check(event: str, arguments: tuple[object, ...]) -> None:
        try:
            _check_reach(event, arguments)
        except Confined as error:
            tried.append(error)
            raise

    try:
        with _checking(check):
            yield
    except FleetError:
        if not tried:
            raise
    if tried:
        raise Confined(f"{tried[0]}; this is a merge request: use `--world FILE`")
