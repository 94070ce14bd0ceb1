"""This module reads who holds a stack of the real engine, and takes away the locks of the dead.

Each lock is a key of the backend, of whatever kind that is: its owner's death frees nothing.
"""

import json
import os
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from fleet.engines.objects import Objects
from fleet.errors import Locked, StoreFailed

_LOCKS = ".pulumi/locks/organization/"
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
    """None where nobody here can tell: another host's process, or one of the same number."""


def find_locks(objects: Objects, project: str, stack: str) -> tuple[Lock, ...]:
    """Return the locks on a stack."""
    found = []
    for key in objects.keys(f"{_LOCKS}{project}/{stack}/"):
        try:
            lock = dict(json.loads(objects.read(key) or b""))
        except (StoreFailed, ValueError, TypeError):
            # Being written or taken away this very moment: whoever does it is alive.
            lock = {}
        owner = f"{lock.get('username', 'someone')} on {lock.get('hostname', 'some host')}"
        found.append(
            Lock(
                key=key,
                owner=f"{owner} (process {lock.get('pid', 'unknown')})",
                since=str(lock.get("timestamp", "an unknown time")),
                alive=_is_alive(lock),
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


def _is_alive(lock: Mapping[str, Any]) -> bool | None:
    """Say whether the owner still runs; None where nobody here can tell."""
    pid = lock.get("pid")
    if lock.get("hostname") != socket.gethostname() or not isinstance(pid, int):
        return None
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        uptime = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return False if Path("/proc/uptime").exists() else None
    except OSError:
        return None
    if is_over(words, status):
        return False
    # One that is younger than the lock only has the same number, or the clock was set forward.
    age = uptime - int(words[19]) / os.sysconf("SC_CLK_TCK")
    taken = _moment(str(lock.get("timestamp", "")))
    held = (datetime.now(taken.tzinfo) - taken).total_seconds() if taken else 0.0
    return True if age + _SLACK >= held else None


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
