"""Make small disk images for tests, as any user: an EFI partition and a root."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.errors import FleetError
from fleet.images.boot import find_firmware

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_MIB = 1 << 20
_ESP, _ROOT = 2, 8
"""MiB of each partition."""
PROGRAMS = ("debugfs", "mcopy", "mkfs.vfat", "mke2fs", "qemu-img", "sfdisk")

needs_programs = pytest.mark.skipif(
    any(shutil.which(each, path=_PATH) is None for each in PROGRAMS),
    reason=f"needs {', '.join(PROGRAMS)}",
)


def _has_firmware() -> bool:
    try:
        return bool(find_firmware())
    except FleetError:
        return False


needs_firmware = pytest.mark.skipif(
    not _has_firmware(), reason="booting is NOT TESTED: no UEFI firmware; install ovmf"
)


def a_root(folder: Path) -> Path:
    """Write the files of an image that is fit for use; its worker is who runs the test."""
    me = f"{os.getuid()}:{os.getgid()}"
    files = {
        "etc/hostname": "localhost\n",
        "etc/machine-id": "",
        "etc/passwd": f"debusine-worker:x:{me}::/var/lib/debusine/worker:/bin/sh\n",
        "etc/shadow": "debusine-worker:!:20000::::::\n",
        "etc/subuid": "debusine-worker:100000:65536\n",
        "etc/subgid": "debusine-worker:100000:65536\n",
        "usr/lib/systemd/system/debusine-worker.service": "[Unit]\n",
    }
    for name, text in files.items():
        _write(folder / name, text)
    for name in ("cloud-init", "unshare", "newuidmap", "newgidmap", "ip", "sbuild"):
        _write(folder / "usr/bin" / name, "#!", mode=0o755)
    _write(folder / "usr/share/autopkgtest/autopkgtest", "#!", mode=0o755)
    (folder / "usr/bin/autopkgtest").symlink_to("../share/autopkgtest/autopkgtest")
    (folder / "bin").symlink_to("usr/bin")
    (folder / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    wants = folder / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    for unit in ("debusine-worker.service", "systemd-networkd.service"):
        (wants / unit).symlink_to(f"/usr/lib/systemd/system/{unit}")
    for name in ("etc/debusine/worker", "var/lib/debusine/worker"):
        (folder / name).mkdir(parents=True, mode=0o755)
    return folder


def a_disk(path: Path, root: Path, *, loader: str = "BOOTX64.EFI") -> Path:
    """Write a disk with these files as its root, qcow2 where the name says so, else raw."""
    raw = path.with_suffix(".partial")
    esp, ext4 = path.with_suffix(".esp"), path.with_suffix(".ext4")
    _empty(esp, _ESP)
    _run("mkfs.vfat", str(esp))
    _run("mmd", "-i", str(esp), "::EFI", "::EFI/BOOT")
    _run("mcopy", "-i", str(esp), str(root / "etc/hostname"), f"::EFI/BOOT/{loader}")
    _run("mke2fs", "-q", "-t", "ext4", "-d", str(root), str(ext4), f"{_ROOT}M")
    _empty(raw, _ESP + _ROOT + 2)
    table = (
        f"label: gpt\nstart=1MiB, size={_ESP}MiB, type=U\n"
        f"start={1 + _ESP}MiB, size={_ROOT}MiB, type=L\n"
    )
    _run("sfdisk", "--quiet", str(raw), text=table)
    with raw.open("r+b") as disk:
        disk.seek(_MIB)
        disk.write(esp.read_bytes())
        disk.write(ext4.read_bytes())
    if path.suffix == ".qcow2":
        _run("qemu-img", "convert", "-O", "qcow2", "-c", str(raw), str(path))
    else:
        raw.rename(path)
    for each in (raw, esp, ext4):
        each.unlink(missing_ok=True)
    return path


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _empty(path: Path, mebibytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(mebibytes * _MIB)


def _run(*command: str, text: str = "") -> None:
    done = subprocess.run(
        command,
        input=text,
        text=True,
        capture_output=True,
        check=False,
        env={**os.environ, "PATH": _PATH},
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
