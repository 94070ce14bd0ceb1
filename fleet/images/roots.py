"""Cache root file systems of Debian as tar archives, each named by the digest of its inputs.

mmdebstrap creates the base root; the role changes a copy of the base. An archive is written under
a temporary name and renamed, so that it is always complete. New archives replace the oldest.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import Locked
from fleet.images.programs import ENVIRONMENT, held
from fleet.images.sources import Archive
from fleet.model.values import digest

_KERNELS = {"amd64": "linux-image-cloud-amd64", "arm64": "linux-image-cloud-arm64"}
_PACKAGES = (
    *("systemd-sysv", "systemd-resolved", "dbus", "udev", "iproute2", "ca-certificates"),
    *("cloud-init", "cloud-guest-utils", "fdisk", "e2fsprogs", "initramfs-tools", "zstd"),
    *("python3", "python3-apt"),
)
"""Packages to boot, read user data, grow the root file system to the disk, and run Ansible."""
_ENABLE_NETWORKD = 'chroot "$1" systemctl --quiet enable systemd-networkd.service'
"""Command that enables networkd. Debian does not enable it, and cloud-init configures it."""
_FORGET_HOOKS = (
    'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/etc/resolv.conf',
    'echo localhost >"$1"/etc/hostname',
)
"""Commands that remove files that depend on the builder's host name, resolver or folders."""
_MAX_ARCHIVES = 8
"""Maximum number of archives in the cache. The least recently used archives are removed."""
_ALLOW_EXPIRED = 'Acquire::Check-Valid-Until "false"'


def kernel_of(architecture: str) -> str:
    """Return the name of the kernel package for an architecture."""
    return _KERNELS.get(architecture, f"linux-image-{architecture}")


def packages_of(architecture: str) -> tuple[str, ...]:
    """Return the packages that mmdebstrap installs in every image, including the kernel."""
    return tuple(sorted((*_PACKAGES, kernel_of(architecture), "systemd-boot-efi")))


@dataclass(frozen=True)
class BaseInputs:
    """All inputs of a root file system as mmdebstrap creates it: suite, architecture, archive."""

    suite: str
    architecture: str
    archive: Archive
    snapshot: bool
    """True if the archive is a snapshot of an earlier day. Its package lists may have expired."""

    @property
    def key(self) -> str:
        """Return the cache key: the digest of all inputs."""
        archive = [*self.archive.lines, self.archive.state]
        return digest([self.command(Path("TAR")), archive, ENVIRONMENT])

    def command(self, tar: Path) -> tuple[str, ...]:
        """Return the command of mmdebstrap, bit-identical for equal archive states.

        It reads the lines of the archive from standard input.
        """
        expired = [f"--aptopt={_ALLOW_EXPIRED}"] if self.snapshot else []
        return (
            *("mmdebstrap", "--mode=root", "--format=tar", "--variant=minbase"),
            f"--architectures={self.architecture}",
            f"--include={','.join(packages_of(self.architecture))}",
            *('--aptopt=APT::Install-Recommends "false"', *expired),
            *("--dpkgopt=force-unsafe-io", "--skip=cleanup/apt"),
            *(f"--customize-hook={hook}" for hook in (_ENABLE_NETWORKD, *_FORGET_HOOKS)),
            *(self.suite, str(tar), "-"),
        )


@contextmanager
def kept(cache: Path, name: str, make: Callable[[Path], object]) -> Iterator[Path]:
    """Yield the archive with this name. Create a missing archive.

    Concurrent users wait while one creates the archive. Then each user has a shared lock on the
    archive, which prevents its removal.
    """
    tar = cache / f"{name}.tar"
    with ExitStack() as reading:
        with held(tar.with_suffix(".lock")):
            if not tar.exists():
                partial = tar.with_suffix(".partial")
                try:
                    make(partial)
                    partial.replace(tar)
                finally:
                    partial.unlink(missing_ok=True)
            os.utime(tar)
            fcntl.flock(reading.enter_context(tar.open("rb")), fcntl.LOCK_SH)
            tars = sorted(cache.glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
            for old in tars[_MAX_ARCHIVES:]:
                lock = held(old.with_suffix(".lock"), busy="{}")
                # NFS refuses an exclusive lock of a file that is open for reading only. A file in
                # use stays.
                with suppress(Locked, OSError), lock, old.open("r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    old.unlink()
        yield tar
