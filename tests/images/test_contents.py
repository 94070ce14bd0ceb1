"""A disk image is looked into as it is, without mounting it and without root."""

import os
import stat
from pathlib import Path

import pytest

from fleet.errors import FileUnreadable
from fleet.images.checks import check_image, open_disk
from tests.builders.image_trees import a_recipe
from tests.rigs.image_disks import a_disk, a_root, needs_programs

pytestmark = needs_programs
LONG = "/usr/share/" + "a-folder-with-a-long-name/" * 3 + "file"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a disk with all sorts of files; no test changes it."""
    folder = tmp_path_factory.mktemp("disk")
    root = a_root(folder / "root")
    (root / "etc/with space").write_text("a\nb\n", encoding="utf-8")
    (root / "etc/long").symlink_to(LONG)
    (root / "etc/closed").write_text("", encoding="utf-8")
    (root / "etc/closed").chmod(0o600)
    return a_disk(folder / "disk.qcow2", root)


def test_usable_disk_has_no_problem(disk: Path) -> None:
    with open_disk(disk) as opened:
        assert opened.problems() == ()
        assert check_image(opened.root, a_recipe()) == ()


def test_problems_are_found_in_a_real_disk(tmp_path: Path) -> None:
    root = a_root(tmp_path / "root")
    (root / "etc/machine-id").write_text("0123456789abcdef\n", encoding="utf-8")
    (root / "var/lib/debusine/worker").chmod(0o700)
    (root / "usr/share/autopkgtest/autopkgtest").unlink()

    with open_disk(a_disk(tmp_path / "disk.raw", root, loader="OTHER.EFI")) as opened:
        problems = (*opened.problems(), *check_image(opened.root, a_recipe()))

    assert [problem.split()[0] for problem in problems] == [
        "/EFI/BOOT",
        "/var/lib/debusine/worker",
        "/usr/bin/autopkgtest",
        "/etc/machine-id",
    ]


def test_disk_image_has_files_folders_and_links(disk: Path) -> None:
    with open_disk(disk) as opened:
        root = opened.root

        assert root.text("/etc/with space") == "a\nb\n"
        assert root.text("/etc/nothing") == root.text("/nowhere/at/all") == ""
        assert root.text("/etc") == ""
        assert root.names("/usr/share") == ("autopkgtest",)
        assert root.names("/nowhere") == root.names("/etc/hostname") == ()
        closed, folder = root.node("/etc/closed"), root.node("/etc/")
        assert closed is not None
        assert (stat.S_IMODE(closed.mode), closed.uid, closed.size) == (0o600, os.getuid(), 0)
        assert folder is not None
        assert stat.S_ISDIR(folder.mode)
        assert root.node("/etc/nothing") is None
        assert root.node("/") is not None


@pytest.mark.parametrize(
    ("path", "target"),
    [("/bin", "usr/bin"), ("/etc/long", LONG)],
)
def test_link_has_its_target(disk: Path, path: str, target: str) -> None:
    with open_disk(disk) as opened:
        found = opened.root.node(path)

    assert found is not None
    assert found.target == target


def test_links_in_a_path_are_followed(disk: Path) -> None:
    with open_disk(disk) as opened:
        assert opened.root.node("/bin/sbuild") == opened.root.node("/usr/bin/sbuild")


def test_read_of_disk_leaves_no_files(disk: Path) -> None:
    before = disk.read_bytes()

    with open_disk(disk) as opened:
        opened.problems()

    assert disk.read_bytes() == before
    assert {path.name for path in disk.parent.iterdir()} == {"disk.qcow2", "root"}


@pytest.mark.parametrize("name", ["disk.qcow2", "disk.raw"])
def test_open_disk_refuses_other_file_types(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x" * 4096)

    with pytest.raises(FileUnreadable, match=name), open_disk(tmp_path / name):
        pass


def test_disk_without_root_partition_is_refused(tmp_path: Path, disk: Path) -> None:
    with open_disk(disk) as opened:
        assert opened.root is not None
    empty = tmp_path / "root"
    (empty / "etc").mkdir(parents=True)
    (empty / "etc/hostname").write_text("x", encoding="utf-8")
    made = a_disk(tmp_path / "disk.raw", empty)
    with made.open("r+b") as file:
        file.seek(3 << 20)
        file.write(b"\0" * (1 << 20))

    with open_disk(made) as opened, pytest.raises(FileUnreadable, match="no partition"):
        _ = opened.root
