"""Cache root file systems of Debian as tar archives, each named by the digest of its inputs.

mmdebstrap creates the base root; the role changes a copy of the base. An archive is written under
a temporary name and renamed, so that it is always complete. New archives replace the oldest. The
caller must be in a separate mount namespace, whose mounts the kernel removes at its end.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import Locked
from fleet.images.packages import LIST_PACKAGES, read_packages
from fleet.images.programs import ENVIRONMENT, held, run
from fleet.images.sources import Archive
from fleet.model.images import Package
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
        return digest([_mmdebstrap_command(self, Path("TAR")), archive, ENVIRONMENT])


def make_base(base: BaseInputs, tar: Path, work: Path, log: Path) -> None:
    """Create a root file system with mmdebstrap, bit-identical for equal archive states."""
    epoch = {"SOURCE_DATE_EPOCH": str(base.archive.epoch), "TMPDIR": str(work)}
    lines = "".join(f"{line}\n" for line in base.archive.lines)
    run(*_mmdebstrap_command(base, tar), log=log, env=epoch, stdin=lines.encode())


@contextmanager
def kept(cache: Path, name: str, make: Callable[[Path], None]) -> Iterator[tuple[Path, bool]]:
    """Yield the archive with this name, and whether it existed. Create a missing archive.

    A lock makes concurrent users of the same archive wait, and prevents its removal.
    """
    tar = cache / f"{name}.tar"
    with held(tar.with_suffix(".lock")):
        found = tar.exists()
        if not found:
            partial = tar.with_suffix(".partial")
            try:
                make(partial)
                partial.replace(tar)
            finally:
                partial.unlink(missing_ok=True)
        os.utime(tar)
        _remove_oldest(cache)
        yield tar, found


def unpack(tar: Path, root: Path, log: Path) -> None:
    """Unpack a root file system without its devices. The kernel creates devices at boot."""
    root.mkdir()
    run(
        *("tar", "--extract", "--numeric-owner", "--xattrs", "--xattrs-include=*"),
        *("--exclude=./dev/*", "--directory", root, "--file", tar),
        log=log,
    )


def pack(root: Path, tar: Path, log: Path) -> None:
    """Pack a root file system into a tar archive, sorted by name to be reproducible."""
    run(
        *("tar", "--create", "--sort=name", "--numeric-owner", "--xattrs", "--xattrs-include=*"),
        *("--exclude=./var/cache/apt/archives/*.deb", "--directory", root, "--file", tar, "."),
        log=log,
    )


def _mmdebstrap_command(base: BaseInputs, tar: Path) -> list[str]:
    expired = [f"--aptopt={_ALLOW_EXPIRED}"] if base.snapshot else []
    return [
        *("mmdebstrap", "--mode=root", "--format=tar", "--variant=minbase"),
        *(
            f"--architectures={base.architecture}",
            f"--include={','.join(packages_of(base.architecture))}",
        ),
        *('--aptopt=APT::Install-Recommends "false"', *expired),
        *("--dpkgopt=force-unsafe-io", "--skip=cleanup/apt"),
        *(f"--customize-hook={hook}" for hook in (_ENABLE_NETWORKD, *_FORGET_HOOKS)),
        *(base.suite, str(tar), "-"),
    ]


def _remove_oldest(cache: Path) -> None:
    """Remove the least recently used archives, except archives in use."""
    tars = sorted(cache.glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for tar in tars[_MAX_ARCHIVES:]:
        with suppress(Locked), held(tar.with_suffix(".lock"), busy="{}"):
            tar.unlink(missing_ok=True)


_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_RESOLVER = "run/systemd/resolve/stub-resolv.conf"

FORGET = """rm -rf var/lib/apt/lists/* var/lib/cloud/* var/log/apt/* var/log/journal/*
rm -rf var/log/*.log var/log/dnf* tmp/.ansible usr/sbin/policy-rc.d
rm -rf root/.ansible root/.bash_history root/.cache root/.ssh
rm -rf etc/ssh/ssh_host_* var/lib/dbus/machine-id
rm -rf var/lib/systemd/random-seed var/lib/systemd/credential.secret
: >etc/machine-id
echo localhost >etc/hostname
"""
"""Script for the top folder of an image that removes identity and traces of the builder."""
_FORGET_BUILD = """for place in dev run tmp var/tmp var/cache/apt; do
    test ! -d $place || find $place -mindepth 1 -delete
done
rm -rf etc/apt/apt.conf.d/99mmdebstrap etc/.pwd.lock etc/*- var/lib/dpkg/*-old
rm -rf var/cache/debconf/*-old var/cache/ldconfig/aux-cache
rm -rf var/log/btmp var/log/wtmp var/log/lastlog
"""
"""Script that also removes logs, caches and backup copies. These differ in every build."""


@contextmanager
def furnished(root: Path, log: Path) -> Iterator[None]:
    """Prepare a root file system for running programs: mount devices and /proc, set up DNS."""
    mounts = (
        ("tmpfs", "tmpfs", root / "dev"),
        ("tmpfs", "tmpfs", root / "run"),
        ("proc", "proc", root / "proc"),
    )
    for kind, source, place in mounts:
        run("mount", "-t", kind, source, place, log=log)
    try:
        for name in _DEVICES:
            (root / "dev" / name).touch()
            run("mount", "--bind", f"/dev/{name}", root / "dev" / name, log=log)
        for name, target in _LINKS.items():
            (root / "dev" / name).symlink_to(target)
        resolver = root / _RESOLVER
        resolver.parent.mkdir(parents=True)
        shutil.copyfile("/etc/resolv.conf", resolver)
        _link_resolver(root)
        yield
    finally:
        for _, _, place in mounts:
            run("umount", "--recursive", "--lazy", place, log=log)


def clean(root: Path, log: Path) -> None:
    """Remove traces of the builder from a root file system, and files that differ per build."""
    run("sh", "-euc", f'cd "$1"\n{FORGET}{_FORGET_BUILD}', "sh", root, log=log)
    _link_resolver(root)


def installed(root: Path, log: Path) -> tuple[Package, ...]:
    """Return the packages of a root file system. Its apt lists must exist, for the origins."""
    return read_packages(run("chroot", root, "sh", "-c", LIST_PACKAGES, log=log).splitlines())


def _link_resolver(root: Path) -> None:
    """Replace resolv.conf by the link to the file of systemd-resolved."""
    path = root / "etc/resolv.conf"
    path.unlink(missing_ok=True)
    path.symlink_to(f"../{_RESOLVER}")
