"""Keep roots of Debian as archives, each named by all that went into it.

The base is what mmdebstrap makes; on it lies what the role made of it. What is kept is whole:
it is written beside its place and moved there; old ones go when newer ones come.

It runs in a mount namespace of its own: what it mounts ends with it, however it ends.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.images.packages import LIST_PACKAGES, read_packages
from fleet.images.programs import ENVIRONMENT, run
from fleet.images.sources import Archive
from fleet.model.images import Package
from fleet.model.values import digest

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
    def key(self) -> str:
        """Return the digest of all that goes into it."""
        archive = [*self.archive.lines, self.archive.state]
        return digest([_command(self, Path("TAR")), archive, ENVIRONMENT])


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
        *(
            f"--architectures={base.architecture}",
            f"--include={','.join(packages_of(base.architecture))}",
        ),
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
"""Run in the top folder of an image: takes what belongs to the machine that baked it."""
_FORGET_BUILD = """for place in dev run tmp var/tmp var/cache/apt; do
    test ! -d $place || find $place -mindepth 1 -delete
done
rm -rf etc/apt/apt.conf.d/99mmdebstrap etc/.pwd.lock etc/*- var/lib/dpkg/*-old
rm -rf var/cache/debconf/*-old var/cache/ldconfig/aux-cache
rm -rf var/log/btmp var/log/wtmp var/log/lastlog
"""
"""Takes logs, caches and copies of before, too: each would differ in every build."""


@contextmanager
def furnished(root: Path, log: Path) -> Iterator[None]:
    """Give a root what packages expect of a system: devices, processes, name resolution."""
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
        _resolve_by_itself(root)
        yield
    finally:
        for _, _, place in mounts:
            run("umount", "--recursive", "--lazy", place, log=log)


def clean(root: Path, log: Path) -> None:
    """Remove what belongs to the machine that baked it, and what is new in every build."""
    run("sh", "-euc", f'cd "$1"\n{FORGET}{_FORGET_BUILD}', "sh", root, log=log)
    _resolve_by_itself(root)


def installed(root: Path, log: Path) -> tuple[Package, ...]:
    """Return the packages of a root; where each came from while apt's lists are still there."""
    return read_packages(run("chroot", root, "sh", "-c", LIST_PACKAGES, log=log).splitlines())


def _resolve_by_itself(root: Path) -> None:
    """Have names resolved by systemd-resolved, whatever the builder's own file says."""
    path = root / "etc/resolv.conf"
    path.unlink(missing_ok=True)
    path.symlink_to(f"../{_RESOLVER}")
