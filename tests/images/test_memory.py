"""How much memory a build may work in: what the computer has free, and our own limit leaves."""

from contextlib import suppress
from pathlib import Path

import pytest

from fleet.errors import BuildFailed
from fleet.images import disk as bake
from fleet.images.disk import free_memory
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


def test_free_memory_is_that_of_computer_without_cgroup_limit(tmp_path: Path) -> None:
    assert free_memory(a_system(tmp_path, 12)) == 12 * GIB


def test_free_memory_respects_narrowest_cgroup_limit(tmp_path: Path) -> None:
    system = a_system(tmp_path, 12, "0::/ci/job")
    limit(system, "ci/job", "max", 5 * GIB)
    limit(system, "ci", str(8 * GIB), 5 * GIB)
    limit(system, "other", str(GIB), 0)

    assert free_memory(system) == 3 * GIB


def test_free_memory_respects_limits_of_cgroups_v1(tmp_path: Path) -> None:
    system = a_system(tmp_path, 12, "5:cpu,memory:/ci/job\n0::/")
    write(system / "sys/fs/cgroup/memory/ci/memory.limit_in_bytes", f"{8 * GIB}\n")
    write(system / "sys/fs/cgroup/memory/ci/memory.usage_in_bytes", f"{6 * GIB}\n")

    assert free_memory(system) == 2 * GIB


def ran(monkeypatch: pytest.MonkeyPatch, gib: int, *failures: Exception) -> list[str]:
    """Return what a build does that fails so at its first tries, where so much is free."""
    done: list[str] = []
    left = [*failures]
    monkeypatch.setattr(bake, "free_memory", lambda: gib * GIB)
    monkeypatch.setattr(bake, "run", lambda *words, log: done.append(f"{words[0]} {log}"))

    def build() -> None:
        done.append("build")
        if left:
            raise left.pop()

    with suppress(BuildFailed):
        bake.in_memory_or_on_disk(Path("work"), Path("log"), build)
    return done


def test_build_uses_disk_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(monkeypatch, 7) == ["build"]
    assert ran(monkeypatch, 8) == ["mount log", "build", "umount log"]


@pytest.mark.parametrize(
    "full",
    [
        OSError(28, "No space left on device"),
        BuildFailed("the role failed: No space left on device"),
        ProgramFailed("mke2fs ended with 1", "No space left on device\nmany other lines"),
    ],
)
def test_build_is_repeated_on_disk_when_memory_is_full(
    monkeypatch: pytest.MonkeyPatch, full: Exception
) -> None:
    assert ran(monkeypatch, 12, full) == ["mount log", "build", "umount log", "build"]


def test_build_is_not_repeated_after_other_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ran(monkeypatch, 12, BuildFailed("no such package")) == [
        "mount log",
        "build",
        "umount log",
    ]
