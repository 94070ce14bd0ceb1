"""A disk image is looked into as it is, without mounting it."""

import os
from pathlib import Path

import pytest

from fleet.errors import FileUnreadable, FleetError
from fleet.images import programs
from fleet.images.checks import check_root, open_disk, workplace
from fleet.images.programs import explain_no_namespaces
from tests.builders.image_trees import a_recipe
from tests.rigs.image_disks import a_disk, a_root, needs_programs

pytestmark = needs_programs
needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 and bool(explain_no_namespaces()), reason="only root copies a root"
)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a disk that no test changes."""
    folder = tmp_path_factory.mktemp("disk")
    root = a_root(folder / "root")
    return a_disk(folder / "disk.qcow2", root)


@needs_namespaces
def test_usable_disk_has_no_problem(disk: Path, tmp_path: Path) -> None:
    with open_disk(disk) as opened, workplace(tmp_path) as root:
        opened.copy(root)
        assert opened.problems() == ()
        assert check_root(root, a_recipe()) == ()


@needs_namespaces
def test_problems_are_found_in_a_real_disk(tmp_path: Path) -> None:
    root = a_root(tmp_path / "root")
    (root / "etc/machine-id").write_text("0123456789abcdef\n", encoding="utf-8")
    (root / "var/lib/debusine/worker").chmod(0o700)
    (root / "usr/share/autopkgtest/autopkgtest").unlink()

    made = a_disk(tmp_path / "disk.raw", root, loader="OTHER.EFI")
    with open_disk(made) as opened, workplace(tmp_path) as copied:
        opened.copy(copied)
        problems = (*opened.problems(), *check_root(copied, a_recipe()))

    assert [problem.split()[0] for problem in problems] == [
        "/EFI/BOOT",
        "/var/lib/debusine/worker",
        "/usr/bin/autopkgtest",
        "/etc/machine-id",
    ]


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test as a user who is not root and may not create namespaces."""
    monkeypatch.setattr(os, "geteuid", lambda: 64999)
    monkeypatch.setattr(programs, "explain_no_namespaces", lambda: "no subordinate ids")


@pytest.mark.usefixtures("no_root")
def test_disk_is_read_but_not_copied_without_root(disk: Path, tmp_path: Path) -> None:
    before = disk.read_bytes()

    with open_disk(disk) as opened:
        assert opened.text("/etc/hostname") == "localhost\n"
        assert opened.text("/etc/nothing") == opened.text("/nowhere/at/all") == ""
        opened.problems()
        with pytest.raises(FleetError, match="no subordinate ids"):
            opened.copy(tmp_path)
    with pytest.raises(FleetError, match="no subordinate ids"), workplace(tmp_path):
        pass

    assert [path.name for path in tmp_path.iterdir()] == [".jobs.lock"]
    assert disk.read_bytes() == before
    assert {path.name for path in disk.parent.iterdir()} == {"disk.qcow2", "root"}


@pytest.mark.parametrize("name", ["disk.qcow2", "disk.raw"])
def test_open_disk_refuses_other_file_types(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x" * 4096)

    with pytest.raises(FileUnreadable, match=name), open_disk(tmp_path / name):
        pass


def test_disk_without_root_partition_is_refused(tmp_path: Path, disk: Path) -> None:
    with open_disk(disk) as opened:
        assert opened.text("/etc/hostname")
    empty = tmp_path / "root"
    (empty / "etc").mkdir(parents=True)
    (empty / "etc/hostname").write_text("x", encoding="utf-8")
    made = a_disk(tmp_path / "disk.raw", empty)
    with made.open("r+b") as file:
        file.seek(3 << 20)
        file.write(b"\0" * (1 << 20))

    with open_disk(made) as opened, pytest.raises(FileUnreadable, match="no partition"):
        opened.text("/etc/hostname")
