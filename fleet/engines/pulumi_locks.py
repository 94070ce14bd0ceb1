"""This module reads who holds a stack of the real engine, and takes away the locks of the dead.

Each lock is a key of the backend, of whatever kind that is: its owner's death frees nothing.
"""

import json
import os
import socket
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from fleet.engines.objects import Objects
from fleet.errors import Locked, StoreFailed

_LOCKS = ".pulumi/locks/organization/"
_SLACK = 5.0


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
        uptime = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    except FileNotFoundError:
        return False if Path("/proc/uptime").exists() else None
    except OSError:
        return None
    if words[0] == "Z":
        return False
    # One that is younger than the lock only has the same number, or the clock was set forward.
    age = uptime - int(words[19]) / os.sysconf("SC_CLK_TCK")
    taken = _moment(str(lock.get("timestamp", "")))
    held = (datetime.now(taken.tzinfo) - taken).total_seconds() if taken else 0.0
    return True if age + _SLACK >= held else None


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
