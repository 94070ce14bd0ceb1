"""This module starts processes that outlive fleet, finds them again, and ends all they started.

A process is known by its number, when it began and in which run of the computer: a number that
was given to another process since is not taken for it.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, NamedTuple

from fleet.errors import SourceUnreachable

RECORD = "process"
LOG = "log"
GRACE = 5.0
"""Seconds that a process has to end when asked to; a worker without work needs less than one."""
_KILLS, _KILL_SECONDS = 100, 0.05
_BOOT = Path("/proc/sys/kernel/random/boot_id")
# The process records itself before it lets go of the lock, its standard input: whoever gets the
# lock next finds either a recorded process or none, also when fleet is killed meanwhile.
_START = """
set -e
umask 077
record=$1 delay=$2
shift 2
read -r boot < /proc/sys/kernel/random/boot_id
read -r stat < "/proc/$$/stat"
printf '%s\\n%s\\n' "$boot" "$stat" > "$record"
exec < /dev/null
umask 022
if [ "$delay" != 0 ]; then sleep "$delay"; fi
exec "$@"
"""


class Process(NamedTuple):
    """A process, surely the same: its number, when it began, and since when the computer runs."""

    pid: int
    began: int
    boot: str


class _Stat(NamedTuple):
    state: str
    parent: int
    session: int
    began: int


class Launch(NamedTuple):
    """What is started: where it is recorded, after how many seconds, with which environment."""

    folder: Path
    home: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    delay: int = 0


def start(launch: Launch, lock: IO[str]) -> None:
    """Start a command in a session of its own; OSError where it could not be.

    It is recorded in the folder when the lock, held by the caller, is free again.
    """
    record, delay = str(launch.folder / RECORD), str(launch.delay)
    with (launch.folder / LOG).open("ab") as log:
        subprocess.run(  # noqa: S603 - the operator's own command
            ["setsid", "--fork", "sh", "-c", _START, "sh", record, delay, *launch.command],  # noqa: S607 - those of PATH
            stdin=lock,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=launch.home,
            env=dict(launch.environment),
            check=True,
        )


def find(folder: Path) -> Process | None:
    """Return the process that was started in a folder; None where none was."""
    try:
        boot, stat = (folder / RECORD).read_text(encoding="utf-8").splitlines()
        return Process(int(stat.split()[0]), _parse(stat).began, boot)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def identify(pid: int) -> Process | None:
    """Return the process that has a number now; None when it has ended."""
    stat = _stat_of(pid)
    return Process(pid, stat.began, _boot()) if stat else None


def is_alive(process: Process) -> bool:
    """Say whether a process runs, it and no other of its number."""
    stat = _stat_of(process.pid)
    return stat is not None and (stat.began, _boot()) == (process.began, process.boot)


def end(process: Process, grace: float = GRACE) -> None:
    """End a process and all that it started: asked first, then killed."""
    known = _family(process)
    _signal(known, signal.SIGTERM, grace)
    # What a process starts while it is asked to end is known only afterwards.
    for _ in range(2):
        known = _living(known) | _family(process)
        if not known:
            return
        _signal(known, signal.SIGKILL, grace)
    left = _living(known)
    if left:
        raise SourceUnreachable(f"process {', '.join(map(str, left))} does not end")


def marked(mark: str) -> list[int]:
    """Return the processes with a text in their environment: all that something started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or is somebody else's
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def kill_marked(mark: str) -> None:
    """Kill all processes with a text in their environment, but for one that no signal ends."""
    pause = threading.Event()
    # Again, for one may have been started while we looked.
    for _ in range(_KILLS):
        pids = marked(mark)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        pause.wait(_KILL_SECONDS)


def _living(processes: Mapping[int, int]) -> dict[int, int]:
    """Return those that still run: their numbers to their begins."""
    return {
        pid: began
        for pid, began in processes.items()
        if (stat := _stat_of(pid)) and stat.began == began
    }


def _family(process: Process) -> dict[int, int]:
    """Return what a process started that still runs, itself included: its number to its begin.

    Children may have a session of their own, and the children of an ended one another parent.
    """
    stats = _all_stats() if process.boot == _boot() else {}
    leader = stats.get(process.pid)
    if leader is not None and leader.began != process.began:
        return {}  # the number was given away, which is done only when its session is empty
    family = {pid for pid, stat in stats.items() if stat.session == process.pid}
    children: dict[int, set[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, set()).add(pid)
    new = family
    while new:
        new = set().union(*(children.get(pid, set()) for pid in new)) - family
        family |= new
    return {pid: stats[pid].began for pid in family}


def _signal(processes: Mapping[int, int], number: signal.Signals, seconds: float) -> None:
    """Send a signal to those that still run, and wait until they have ended or time is up."""
    with ExitStack() as stack:
        poll = select.poll()
        waiting = set()
        for pid, began in processes.items():
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, handle)
            # Only now can the number not be given to another process any more.
            if (stat := _stat_of(pid)) is None or stat.began != began:
                continue
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            poll.register(handle, select.POLLIN)
            waiting.add(handle)
        until = time.monotonic() + seconds
        while waiting and (left := until - time.monotonic()) > 0:
            for handle, _ in poll.poll(left * 1000):
                poll.unregister(handle)
                waiting.discard(handle)


def _all_stats() -> dict[int, _Stat]:
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    return {pid: stat for pid in pids if (stat := _stat_of(pid))}


def _stat_of(pid: int) -> _Stat | None:
    """Return what the kernel says of a process; None when it has ended."""
    try:
        stat = _parse(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat.state in "ZX" else stat


def _parse(line: str) -> _Stat:
    # The name of the program, in brackets, may hold anything.
    fields = line.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def _boot() -> str:
    return _BOOT.read_text(encoding="utf-8").strip()
