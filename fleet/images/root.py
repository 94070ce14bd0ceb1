"""This module works on the root folder of an image: what the role needs meanwhile, what must go.

It runs in a mount namespace of its own: what it mounts ends with it, however it ends.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.facts.manifest import Package
from fleet.images.programs import run

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_RESOLVER = "run/systemd/resolve/stub-resolv.conf"

_EMPTIED = (
    *("tmp", "var/tmp", "run", "dev", "var/lib/apt/lists", "var/cache/apt", "var/lib/cloud"),
    *("var/log/apt", "var/log/journal"),
)
"""Folders of which nothing stays."""
_REMOVED = (
    *("root/.ansible", "root/.bash_history", "root/.cache", "root/.ssh"),
    *("etc/apt/apt.conf.d/99mmdebstrap", "usr/sbin/policy-rc.d", "etc/.pwd.lock"),
    *("etc/ssh/ssh_host_*", "var/lib/dbus/machine-id", "var/lib/systemd/random-seed"),
    *("var/log/*.log", "var/cache/ldconfig/aux-cache", "var/cache/debconf/*-old"),
    *("var/lib/dpkg/*-old", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-"),
    *("etc/subuid-", "etc/subgid-", "var/log/btmp", "var/log/wtmp", "var/log/lastlog"),
)
"""Files of the machine that baked it, logs, caches: each would differ in every build."""

_QUERY = "${Package}\\t${Version}\\t${Architecture}\\t${source:Package}\\t${source:Version}\\n"
# The release as sources name it: what a mirror calls stable is another one after the next release.
_TARGETS = "$(FILENAME) $(RELEASE)/$(COMPONENT) at $(REPO_URI)"


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
        _resolve_by(root, f"../{_RESOLVER}")
        yield
    finally:
        for _, _, place in mounts:
            run("umount", "--recursive", "--lazy", place, log=log)


def clean(root: Path) -> None:
    """Remove what belongs to the machine that baked it, and what is new in every build."""
    for pattern in _REMOVED:
        for path in root.glob(pattern):
            _remove(path)
    for name in _EMPTIED:
        for path in (root / name).glob("*"):
            _remove(path)
    (root / "etc/hostname").write_text("localhost\n", encoding="utf-8")
    (root / "etc/machine-id").write_text("", encoding="utf-8")
    _resolve_by(root, f"../{_RESOLVER}")


def installed(root: Path, log: Path) -> tuple[Package, ...]:
    """Return the packages of a root; where each came from while apt's lists are still there."""
    known = _listed(root, log)
    found = []
    for line in run("chroot", root, "dpkg-query", "-W", "-f", _QUERY, log=log).splitlines():
        name, version, architecture, source, source_version = line.split("\t")
        origin, sha256 = known.get((name, version, architecture), ("", ""))
        found.append(
            Package(
                name=name,
                version=version,
                architecture=architecture,
                source=source,
                source_version=source_version,
                origin=origin,
                sha256=sha256,
            )
        )
    return tuple(sorted(found, key=lambda package: (package.name, package.architecture)))


def _listed(root: Path, log: Path) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Return what apt's lists say of packages: where from, and the checksum."""
    found: dict[tuple[str, str, str], tuple[str, str]] = {}
    command = ("apt-get", "indextargets", "--format", _TARGETS, "Created-By: Packages")
    for line in run("chroot", root, *command, log=log).splitlines():
        name, _, origin = line.partition(" ")
        path = root / name.lstrip("/")
        if path.exists():
            with path.open(encoding="utf-8", errors="replace") as text:
                for fields in _stanzas(text):
                    key = (fields["Package"], fields["Version"], fields["Architecture"])
                    found.setdefault(key, (origin, fields.get("SHA256", "")))
    return found


_WANTED = ("Package", "Version", "Architecture", "SHA256")


def _stanzas(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    for line in lines:
        if line == "\n":
            if fields:
                yield fields
            fields = {}
        elif line.startswith(_WANTED):
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def _resolve_by(root: Path, target: str) -> None:
    """Have names resolved by systemd-resolved, whatever the builder's own file says."""
    path = root / "etc/resolv.conf"
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
