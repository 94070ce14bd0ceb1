"""This module names the process that holds a lock, so that others can tell where it has died.

Only what runs on the same booted system, in the same namespace of processes, can tell.
"""

import getpass
import hashlib
import os
import socket
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")


def name_process(pid: int | None = None) -> str:
    """Return how a process of this system is named in a lock; this one where none is given."""
    number = os.getpid() if pid is None else pid
    return f"{name_user()}@{socket.gethostname()}{_system()}:{number}"


def name_user() -> str:
    """Return who runs us, as a login shell says; of a user without a name, the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def is_alive(holder: str) -> bool | None:
    """Say whether the process of that name runs; None where nobody here can tell."""
    whose, _, number = holder.rpartition(":")
    if not (_system() and whose.endswith(_system()) and number.isdecimal()):
        return None
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _system() -> str:
    """Return what tells this booted system from every other; empty where nothing does."""
    try:
        said = _BOOT.read_text(encoding="ascii") + str(_PROCESSES.readlink())
    except OSError:
        return ""
    return "/" + hashlib.sha256(said.encode()).hexdigest()[:8]
