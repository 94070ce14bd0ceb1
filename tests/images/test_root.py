"""A root is left without anything of the machine that baked it, and knows its own file system."""

import os
from pathlib import Path

import pytest

from fleet.errors import FleetError
from fleet.images.diskfile import DiskSpec, lacking, newest_kernel, prepare_root
from fleet.images.roots import clean
from tests.builders.sentences import tells


def a_root(folder: Path, *names: str) -> Path:
    for name in (*names, "etc/hostname", "etc/resolv.conf"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of the builder\n", encoding="utf-8")
    return folder


def files_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def a_plan(root: Path, name: str = "trixie:digest") -> DiskSpec:
    return DiskSpec(root, "amd64", name, 1795252270)


def test_clean_root_removes_builder_files_only(
    tmp_path: Path,
) -> None:
    root = a_root(
        tmp_path,
        *("var/lib/apt/lists/partial/x", "var/cache/apt/pkgcache.bin", "tmp/.ansible/run"),
        *("etc/ssh/ssh_host_rsa_key", "root/.ssh/authorized_keys", "etc/passwd-"),
        *("var/log/dpkg.log", "usr/sbin/policy-rc.d", "var/lib/dbus/machine-id"),
        *("etc/ssh/sshd_config", "var/log/apt.txt", "usr/bin/debusine-worker"),
    )

    clean(root, Path(os.devnull))

    assert files_of(root) == {
        *("etc/ssh/sshd_config", "var/log/apt.txt", "usr/bin/debusine-worker"),
        *("etc/hostname", "etc/machine-id", "etc/resolv.conf"),
    }


def test_machine_gets_name_id_and_resolver_at_boot(tmp_path: Path) -> None:
    root = a_root(tmp_path)

    clean(root, Path(os.devnull))

    assert (root / "etc/hostname").read_text(encoding="utf-8") == "localhost\n"
    assert (root / "etc/machine-id").read_bytes() == b""
    assert (root / "etc/resolv.conf").readlink() == Path("../run/systemd/resolve/stub-resolv.conf")


def test_link_out_of_the_root_is_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    root = a_root(tmp_path / "root")
    (root / "root").mkdir()
    (root / "root/.ssh").symlink_to(outside)

    clean(root, Path(os.devnull))

    assert not (root / "root/.ssh").is_symlink()
    assert (outside / "kept").exists()


def test_root_is_mounted_by_reproducible_id(tmp_path: Path) -> None:
    root = a_root(tmp_path, "etc/fstab")
    (root / "etc/fstab").write_text("# a comment\nUUID=old / ext4\n/swap none swap sw 0 0\n")

    prepare_root(a_plan(root))
    once = (root / "etc/fstab").read_text(encoding="utf-8")
    prepare_root(a_plan(root))

    mounted = f"UUID={a_plan(root).id('root')} / ext4 errors=remount-ro 0 1"
    assert once.splitlines() == [mounted, "/swap none swap sw 0 0"]
    assert (root / "etc/fstab").read_text(encoding="utf-8") == once


def test_each_partition_of_each_image_has_a_separate_id(tmp_path: Path) -> None:
    one, other = a_plan(tmp_path), a_plan(tmp_path, "sid:digest")

    assert len({one.id("root"), one.id("boot"), other.id("root"), other.id("boot")}) == 4


def test_last_installed_kernel_boots(tmp_path: Path) -> None:
    root = a_root(
        tmp_path,
        *("boot/vmlinuz-6.12.9", "boot/initrd.img-6.12.9"),
        *("boot/vmlinuz-6.12.10", "boot/initrd.img-6.12.10"),
    )
    os.utime(root / "boot/vmlinuz-6.12.9", (1, 1))

    kernel, initrd = newest_kernel(root)

    assert (kernel.name, initrd.name) == ("vmlinuz-6.12.10", "initrd.img-6.12.10")


@pytest.mark.parametrize(
    ("there", "lacks"), [((), "no kernel in /boot"), (("boot/vmlinuz-6",), "no initrd.img-6")]
)
def test_unbootable_root_is_refused(tmp_path: Path, there: tuple[str, ...], lacks: str) -> None:
    with pytest.raises(FleetError, match=rf"root.*{lacks}"):
        newest_kernel(a_root(tmp_path, *there))


def test_missing_bios_boot_file_is_reported_before_build(
    tmp_path: Path,
) -> None:
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.touch()

    assert (lacking("amd64", there), lacking("arm64", absent)) == ("", "")
    assert tells(lacking("amd64", absent), absent, "apt install syslinux-common")
