"""This module has a build work in memory, where the computer has plenty: packages write a lot.

What lies there is gone with the mount, and that with the namespace it was made in.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from fleet.errors import FleetError
from fleet.images.programs import ProgramFailed, run

FULL = "No space left on device"
_Done = TypeVar("_Done")
_Run = Callable[..., str]
_GIB = 1 << 30
_LEAST = 8 * _GIB
"""A root and its disk take 2 GiB, two roots that are compared 4; others use memory too."""
_SHARE = 3, 4
"""Of what is free, at most."""


def in_memory_or_on_disk(
    place: Path,
    log: Path,
    build: Callable[[bool], _Done],
    *,
    system: Path = Path("/"),
    run: _Run = run,
) -> _Done:
    """Build in memory where there is plenty; on disk where there is not, or it was not enough.

    `build` is told whether it works in memory.
    """
    if work_in_memory(place, log, system=system, run=run):
        try:
            return build(True)
        except (FleetError, OSError) as error:
            output = error.output if isinstance(error, ProgramFailed) else ""
            if FULL not in f"{error}{output}":
                raise
        finally:
            run("umount", "--lazy", place, log=log)
    return build(False)


def work_in_memory(place: Path, log: Path, *, system: Path = Path("/"), run: _Run = run) -> bool:
    """Mount a file system in memory there, and say whether there is enough for one.

    Has to run in a mount namespace of its own.
    """
    free = free_memory(system)
    if free < _LEAST:
        return False
    size = free * _SHARE[0] // _SHARE[1]
    run("mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", place, log=log)
    return True


def free_memory(system: Path = Path("/")) -> int:
    """Return the bytes that programs could still take: the computer's, and of our own limit."""
    lines = (system / "proc/meminfo").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines)
    free = int(found["MemAvailable"].split()[0]) * 1024
    return min([free, *_left_in_groups(system)])


def _left_in_groups(system: Path) -> Iterator[int]:
    """Yield what the control groups that we are in leave us, where they are limited."""
    groups = system / "sys/fs/cgroup"
    for line in (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, own = line.split(":", 2)
        if not controllers:
            yield from _left(groups, own, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):  # version 1, one tree for each controller
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            yield from _left(groups / "memory", own, *names)


def _left(top: Path, own: str, limit: str, usage: str) -> Iterator[int]:
    """Yield what a group and those above it leave; a container may see the upper ones alone."""
    place = top / own.lstrip("/")
    for folder in (place, *place.parents):
        if not folder.is_relative_to(top):
            return
        most, used = folder / limit, folder / usage
        if most.exists() and (allowed := most.read_text(encoding="ascii").strip()) != "max":
            yield int(allowed) - int(used.read_text(encoding="ascii"))
