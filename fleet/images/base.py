"""This module keeps roots of Debian as archives, each named by all that went into it.

The base is what mmdebstrap makes; on it lies what the role made of it. What is kept is whole:
it is written beside its place and moved there; old ones go when newer ones come.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.canonical import digest
from fleet.images.programs import ENVIRONMENT, run
from fleet.images.sources import Archive

_KERNELS = {"amd64": "linux-image-cloud-amd64", "arm64": "linux-image-cloud-arm64"}
_PACKAGES = (
    *("systemd-sysv", "systemd-resolved", "dbus", "udev", "iproute2", "ca-certificates"),
    *("cloud-init", "cloud-guest-utils", "fdisk", "e2fsprogs", "initramfs-tools", "zstd"),
    *("python3", "python3-apt"),
)
"""What boots, gets its user data, grows to its disk, and lets Ansible in."""
_ENABLE = 'chroot "$1" systemctl --quiet enable systemd-networkd.service'
"""Debian leaves it off; cloud-init has it bring up the network."""
_FORGET = (
    'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/etc/resolv.conf',
    'echo localhost >"$1"/etc/hostname',
)
"""What the builder's name, its resolver and the way to its folder would make differ."""
_KEPT = 8
"""Archives that stay, the latest used."""
_EXPIRED = 'Acquire::Check-Valid-Until "false"'


def kernel_of(architecture: str) -> str:
    """Return the package of the kernel that images boot."""
    return _KERNELS.get(architecture, f"linux-image-{architecture}")


def packages_of(architecture: str) -> tuple[str, ...]:
    """Return the packages of any image's base, the kernel's among them."""
    return tuple(sorted((*_PACKAGES, kernel_of(architecture), "systemd-boot-efi")))


@dataclass(frozen=True)
class Base:
    """What a base is made of."""

    suite: str
    architecture: str
    archive: Archive
    snapshot: bool
    """The archive is one of an earlier day: its lists may have expired."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the packages that are asked for; others come with them."""
        return packages_of(self.architecture)

    @property
    def key(self) -> str:
        """Return the digest of all that goes into it."""
        return digest(
            {
                "suite": self.suite,
                "architecture": self.architecture,
                "packages": self.packages,
                "archive": [*self.archive.lines, self.archive.state],
                "command": _command(self, Path("TAR"))[:-2],
                "environment": ENVIRONMENT,
            }
        )


def make_base(base: Base, tar: Path, work: Path, log: Path) -> None:
    """Make a root with mmdebstrap, the same to the last bit for the same archive."""
    epoch = {"SOURCE_DATE_EPOCH": str(base.archive.epoch), "TMPDIR": str(work)}
    lines = "".join(f"{line}\n" for line in base.archive.lines)
    run(*_command(base, tar), log=log, env=epoch, stdin=lines.encode())


@contextmanager
def kept(cache: Path, name: str, make: Callable[[Path], None]) -> Iterator[tuple[Path, bool]]:
    """Yield the archive of that name and whether it was there already, else made now.

    Who makes the same meanwhile is waited for; none is removed while it is used.
    """
    cache.mkdir(parents=True, exist_ok=True)
    tar = cache / f"{name}.tar"
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = tar.exists()
        if not found:
            partial = tar.with_suffix(".partial")
            try:
                make(partial)
                partial.replace(tar)
            finally:
                partial.unlink(missing_ok=True)
        os.utime(tar)
        _thin_out(cache)
        yield tar, found


def unpack(tar: Path, root: Path, log: Path) -> None:
    """Unpack a root, but for its devices: those are the kernel's at boot."""
    root.mkdir()
    run(
        *("tar", "--extract", "--numeric-owner", "--xattrs", "--xattrs-include=*"),
        *("--exclude=./dev/*", "--directory", root, "--file", tar),
        log=log,
    )


def pack(root: Path, tar: Path, log: Path) -> None:
    """Pack a root, in one order whatever the file system's is."""
    run(
        *("tar", "--create", "--sort=name", "--numeric-owner", "--xattrs", "--xattrs-include=*"),
        *("--exclude=./var/cache/apt/archives/*.deb", "--directory", root, "--file", tar, "."),
        log=log,
    )


def _command(base: Base, tar: Path) -> list[str]:
    expired = [f"--aptopt={_EXPIRED}"] if base.snapshot else []
    return [
        *("mmdebstrap", "--mode=root", "--format=tar", "--variant=minbase"),
        *(f"--architectures={base.architecture}", f"--include={','.join(base.packages)}"),
        *('--aptopt=APT::Install-Recommends "false"', *expired),
        *("--dpkgopt=force-unsafe-io", "--skip=cleanup/apt"),
        *(f"--customize-hook={hook}" for hook in (_ENABLE, *_FORGET)),
        *(base.suite, str(tar), "-"),
    ]


def _thin_out(cache: Path) -> None:
    """Remove the archives that were used the longest ago, but for those in use."""
    tars = sorted(cache.glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for tar in tars[_KEPT:]:
        lock = tar.with_suffix(".lock")
        with lock.open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            tar.unlink(missing_ok=True)
