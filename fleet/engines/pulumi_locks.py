"""This module reads who holds a stack of the real engine, and takes away the locks of the dead.

Each lock is a key of the backend, of whatever kind that is: its owner's death frees nothing.
"""

import json
import os
import re
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from fleet.engines.objects import Objects
from fleet.errors import Locked, StoreFailed

_LOCKS = ".pulumi/locks/organization/"
_DRAFT = ".tmp"
"""Ends the name under which the CLI writes a lock into a folder, before it holds anything."""
_OWNER = "pulumi"
"""In the name of every program that takes such a lock."""
_SLACK = 5.0
_EXITING = 0x4
"""The kernel's PF_EXITING."""
_KILLED = 1 << (signal.SIGKILL - 1)


class Lock(NamedTuple):
    """Who holds a stack."""

    key: str
    owner: str
    since: str
    alive: bool | None
    """None where nobody here can tell: another host's process, or another Pulumi of its number."""


def find_locks(objects: Objects, project: str, stack: str) -> tuple[Lock, ...]:
    """Return the locks on a stack, and what a killed CLI left of those that it was writing.

    The CLI takes such a draft for a lock as well.
    """
    found = []
    for key in objects.keys(f"{_LOCKS}{project}/{stack}/"):
        content = None
        try:
            content = objects.read(key)
            lock = dict(json.loads(content or b""))
            alive = is_alive(lock)
        except (StoreFailed, ValueError, TypeError):
            lock = {}
            # One that is gone is being taken away this very moment: whoever does it is alive.
            # A draft was cut off, or is about to become a lock: its loss harms neither state nor
            # machines. An empty lock was all that a full disk took: its owner gave up at once.
            alive = False if key.endswith(_DRAFT) or content == b"" else None
        owner = f"{lock.get('username', 'someone')} on {lock.get('hostname', 'some host')}"
        found.append(
            Lock(
                key=key,
                owner=f"{owner} (process {lock.get('pid', 'unknown')})",
                since=str(lock.get("timestamp", "an unknown time")),
                alive=alive,
            )
        )
    return tuple(found)


def drop_locks(objects: Objects, locks: Iterable[Lock]) -> None:
    """Take locks away, as `pulumi cancel` does."""
    for lock in locks:
        objects.remove(lock.key)


def break_dead_locks(objects: Objects | None, project: str, stack: str) -> None:
    """Take away what dead runs hold, as `pulumi cancel` does; Locked where one may live."""
    if objects is None:
        return
    locks = find_locks(objects, project, stack)
    for lock in locks:
        if lock.alive is not False:
            raise Locked(
                f"stack {stack} is being changed by {lock.owner} since {lock.since}; wait, "
                "or if that run is dead: `fleet state unlock`"
            )
    drop_locks(objects, locks)


def is_alive(lock: Mapping[str, Any], proc: Path = Path("/proc")) -> bool | None:
    """Say whether the owner still runs; None where nobody here can tell."""
    pid = lock.get("pid")
    if lock.get("hostname") != socket.gethostname() or not isinstance(pid, int):
        return None
    try:
        name, _, said = (proc / f"{pid}/stat").read_text(encoding="utf-8").rpartition(")")
        words = said.split()
        status = (proc / f"{pid}/status").read_text(encoding="utf-8")
        uptime = float((proc / "uptime").read_text(encoding="utf-8").split()[0])
    except (FileNotFoundError, ProcessLookupError):
        known = (proc / "uptime").exists() and not _is_hidden(pid)
        return False if known and not _is_in_a_container(pid, proc) else None
    except (OSError, UnicodeDecodeError):
        return None
    if is_over(words, status):
        return None if _is_in_a_container(pid, proc) else False
    age = uptime - int(words[19]) / os.sysconf("SC_CLK_TCK")
    taken = _moment(str(lock.get("timestamp", "")))
    held = (datetime.now(taken.tzinfo) - taken).total_seconds() if taken else 0.0
    if age + _SLACK >= held:
        return True
    # It only has the same number, or it is the owner and the clock was set forward.
    return None if _OWNER in name or _is_in_a_container(pid, proc) else False


def _is_hidden(pid: int) -> bool:
    """Say whether a process runs that /proc does not show, as somebody else's with `hidepid`."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _is_in_a_container(pid: int, proc: Path) -> bool:
    """Say whether a process of a container of ours may have written that number into a lock."""
    for path in proc.glob("[0-9]*/status"):
        with suppress(OSError):
            if is_inner(pid, path.read_text(encoding="utf-8", errors="replace")):
                return True
    return False


def is_inner(pid: int, status: str) -> bool:
    """Say whether a process has that number in a container of ours, where it writes locks.

    See proc(5) for `status`: `NSpid` holds its number in each namespace, the innermost last.
    """
    numbers = re.search(r"^NSpid:[ \t]+\d+[ \t].*?(\d+)$", status, re.MULTILINE)
    return numbers is not None and int(numbers[1]) == pid


def is_over(stat: Sequence[str], status: str) -> bool:
    """Say whether a process does nothing of its own any more, though the kernel still lists it.

    A process that was killed takes its time to go, above all a large one; see proc(5) for
    `stat` (from the state on) and `status`.
    """
    pending = 0
    for line in status.splitlines():
        key, _, mask = line.partition(":")
        if key in ("SigPnd", "ShdPnd"):
            pending |= int(mask, 16)
    is_exiting = int(stat[6]) & _EXITING
    return stat[0] in "ZX" or bool(is_exiting or pending & _KILLED)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
