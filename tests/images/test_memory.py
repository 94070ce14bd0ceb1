"""How much memory a build may work in: what the computer has free, and our own limit leaves."""

from pathlib import Path

import pytest

from fleet.errors import BuildFailed
from fleet.images.bake import free_memory, in_memory_or_on_disk, work_in_memory
from fleet.images.programs import ProgramFailed

GIB = 1 << 30


def a_system(folder: Path, gib: int, group: str = "9:name=x:/") -> Path:
    files = {
        "proc/meminfo": f"MemTotal: 99999999 kB\nMemAvailable: {gib * 1024 * 1024} kB\n",
        "proc/self/cgroup": f"{group}\n",
    }
    for name, text in files.items():
        write(folder / name, text)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def limit(system: Path, group: str, most: str, used: int) -> None:
    write(system / "sys/fs/cgroup" / group / "memory.max", f"{most}\n")
    write(system / "sys/fs/cgroup" / group / "memory.current", f"{used}\n")


def test_what_no_group_limits_is_what_the_computer_has_free(tmp_path: Path) -> None:
    assert free_memory(a_system(tmp_path, 12)) == 12 * GIB


def test_the_narrowest_limit_of_our_groups_counts(tmp_path: Path) -> None:
    system = a_system(tmp_path, 12, "0::/ci/job")
    limit(system, "ci/job", "max", 5 * GIB)
    limit(system, "ci", str(8 * GIB), 5 * GIB)
    limit(system, "other", str(GIB), 0)

    assert free_memory(system) == 3 * GIB


def test_limits_of_older_control_groups_count_too(tmp_path: Path) -> None:
    system = a_system(tmp_path, 12, "5:cpu,memory:/ci/job\n0::/")
    write(system / "sys/fs/cgroup/memory/ci/memory.limit_in_bytes", f"{8 * GIB}\n")
    write(system / "sys/fs/cgroup/memory/ci/memory.usage_in_bytes", f"{6 * GIB}\n")

    assert free_memory(system) == 2 * GIB


def test_a_build_works_on_disk_where_memory_is_short(tmp_path: Path) -> None:
    log = tmp_path / "log"

    assert not work_in_memory(tmp_path, log, system=a_system(tmp_path, 7))
    assert not log.exists()


class Mounts:
    """Stands in for what runs programs, and remembers which."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, *words: str | Path, log: Path) -> str:  # noqa: ARG002 - as `run` takes it
        """Remember a program."""
        self.ran.append(str(words[0]))
        return ""


@pytest.mark.parametrize(
    "full",
    [
        OSError(28, "No space left on device"),
        BuildFailed("the role failed: No space left on device"),
        ProgramFailed("mke2fs ended with 1", "No space left on device\nmany other lines"),
    ],
)
def test_a_build_that_memory_has_no_room_for_is_made_on_disk(
    tmp_path: Path, full: Exception
) -> None:
    tried: list[bool] = []
    mounts = Mounts()

    def build(in_memory: bool) -> str:  # noqa: FBT001 - what it is told
        tried.append(in_memory)
        if in_memory:
            raise full
        return "built"

    system = a_system(tmp_path, 12)

    assert in_memory_or_on_disk(tmp_path, tmp_path, build, system=system, run=mounts) == "built"
    assert (tried, mounts.ran) == ([True, False], ["mount", "umount"])


def test_a_build_that_fails_for_another_reason_is_not_made_again(tmp_path: Path) -> None:
    mounts = Mounts()

    def build(in_memory: bool) -> str:  # noqa: FBT001 - what it is told
        raise BuildFailed(f"no such package, {in_memory}")

    with pytest.raises(BuildFailed, match="no such package, True"):
        in_memory_or_on_disk(tmp_path, tmp_path, build, system=a_system(tmp_path, 12), run=mounts)
    assert mounts.ran == ["mount", "umount"]
