"""A root is left without anything of the machine that baked it, and knows its own file system."""

import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.checks.machines import BOOTABLE_ARCHITECTURES
from fleet.images import disk
from fleet.images.checks import open_disk
from fleet.images.disk import explain_no_disk
from fleet.images.programs import explain_no_namespaces, isolated
from tests.builders.sentences import tells

SCRIPT = Path(disk.__file__).with_name("bake.sh")
ROOT_ID = "5f1f8a3e-0000-4000-8000-000000000001"
LACKING = explain_no_namespaces() or explain_no_disk("amd64")
needs_disks = pytest.mark.skipif(bool(LACKING), reason=LACKING)
LISTED = "usr/share/fleet/packages.tsv"
BOOTS = (
    *("boot/vmlinuz-6.12.9", "boot/initrd.img-6.12.9"),
    *("boot/vmlinuz-6.12.10", "boot/initrd.img-6.12.10"),
    "usr/lib/systemd/boot/efi/systemd-bootx64.efi",
)


def a_root(folder: Path, *names: str) -> Path:
    for name in (*names, "etc/hostname", "etc/resolv.conf", LISTED):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} of the builder\n", encoding="utf-8")
    return folder


def bake(root: Path, step: str, result: str) -> "subprocess.CompletedProcess[str]":
    """Run a step of a build on a root, which leaves the cleaned root in its folder."""
    work = root.parent / "work"
    work.mkdir(exist_ok=True)
    packed = work / "packed.tar"
    subprocess.run(["tar", "-cf", packed, "-C", root, "."], check=True)
    ids = {f"{each}_ID": ROOT_ID for each in ("DISK", "BOOT", "ROOT", "ROOT_PARTITION")}
    return subprocess.run(
        isolated("sh", SCRIPT, step, packed, work / result),
        env={
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "work": str(work),
            **ids,
            "SOURCE_DATE_EPOCH": "1795252270",
            "MTOOLS_SKIP_CHECK": "1",
            "BOOT_MIB": "34",
            "FREE_MIB": "8",
            "BIOS_BOOT": "",
            "BOOT_NUMBER": "00000001",
            "CONSOLE": "ttyS0",
            "EFI": "x64",
            "ROOT_TYPE": "L",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def write_disk(root: Path) -> "subprocess.CompletedProcess[str]":
    return bake(root, "disk", "disk.raw")


def clean(root: Path) -> Path:
    """Return the root as it is on the disk."""
    done = write_disk(root)
    assert (done.returncode, done.stderr) == (0, done.stderr), done.stderr
    return root.parent / "work/root"


def files_of(root: Path) -> Iterator[str]:
    kept = {*BOOTS, LISTED}
    found = (str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
    return (each for each in found if each not in kept)


@needs_disks
def test_clean_root_removes_builder_files_only(tmp_path: Path) -> None:
    root = a_root(
        tmp_path / "root",
        *("var/lib/apt/lists/partial/x", "var/cache/apt/pkgcache.bin", "tmp/.ansible/run"),
        *("etc/ssh/ssh_host_rsa_key", "root/.ssh/authorized_keys", "etc/passwd-"),
        *("var/log/dpkg.log", "usr/sbin/policy-rc.d", "var/lib/dbus/machine-id"),
        *("etc/ssh/sshd_config", "var/log/apt.txt", "usr/bin/debusine-worker", *BOOTS),
    )
    (root / "etc/fstab").write_text("# a comment\nUUID=old / ext4\n/swap none swap sw 0 0\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (root / "root/.cache").symlink_to(outside)

    cleaned = clean(root)

    on_disk = {*files_of(cleaned)}
    assert on_disk == {
        *("etc/ssh/sshd_config", "var/log/apt.txt", "usr/bin/debusine-worker"),
        *("etc/hostname", "etc/machine-id", "etc/resolv.conf", "etc/fstab"),
    }
    assert (cleaned / "etc/hostname").read_text(encoding="utf-8") == "localhost\n"
    assert (cleaned / "etc/machine-id").read_bytes() == b""
    resolver = Path("../run/systemd/resolve/stub-resolv.conf")
    assert (cleaned / "etc/resolv.conf").readlink() == resolver
    mounted = f"UUID={ROOT_ID} / ext4 errors=remount-ro 0 1"
    fstab = (cleaned / "etc/fstab").read_text(encoding="utf-8")
    assert fstab.splitlines() == [mounted, "/swap none swap sw 0 0"]
    assert (outside / "kept").exists()

    done = bake(root, "clean", "cleaned.tar")

    assert (done.returncode, done.stderr) == (0, "")
    with tarfile.open(tmp_path / "work/cleaned.tar") as tar:
        packed = {each.name.removeprefix("./") for each in tar if not each.isdir()}
    assert packed == {*on_disk, *BOOTS, LISTED}


@needs_disks
def test_last_installed_kernel_boots(tmp_path: Path) -> None:
    root = a_root(tmp_path / "root", *BOOTS)
    os.utime(root / "boot/vmlinuz-6.12.9", (1, 1))

    done = write_disk(root)

    raw = tmp_path / "work/disk.raw"
    kernel, initrd = (
        subprocess.run(
            ["mtype", "-i", f"{raw}@@1M", f"::/{name}"], capture_output=True, text=True, check=True
        ).stdout
        for name in ("vmlinuz", "initrd.img")
    )
    assert done.stdout == f"{LISTED} of the builder\n"
    assert kernel == "boot/vmlinuz-6.12.10 of the builder\n"
    assert initrd == "boot/initrd.img-6.12.10 of the builder\n"
    with open_disk(raw) as opened:
        assert opened.problems() == ()
        assert opened.text("/etc/hostname") == "localhost\n"


@needs_disks
@pytest.mark.parametrize(
    ("there", "lacks"), [((), "no kernel in /boot"), (("boot/vmlinuz-6",), "no initrd.img-6")]
)
def test_unbootable_root_is_refused(tmp_path: Path, there: tuple[str, ...], lacks: str) -> None:
    root = a_root(tmp_path / "root", *there)
    (root / "boot").mkdir(exist_ok=True)

    done = write_disk(root)

    assert done.returncode == 1
    assert tells(done.stderr, "root", lacks)


@pytest.mark.parametrize("architecture", [*BOOTABLE_ARCHITECTURES, "s390x"])
def test_disk_can_be_built_for_each_architecture_that_validates(architecture: str) -> None:
    refused = explain_no_disk(architecture).startswith(f"no disk for {architecture}")

    assert refused == (architecture not in BOOTABLE_ARCHITECTURES)


def test_missing_bios_boot_file_is_reported_before_build(tmp_path: Path) -> None:
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.touch()

    if explain_no_disk("arm64"):
        pytest.skip(explain_no_disk("arm64"))
    assert (explain_no_disk("amd64", there), explain_no_disk("arm64", absent)) == ("", "")
    assert tells(explain_no_disk("amd64", absent), absent, "apt install syslinux-common")
