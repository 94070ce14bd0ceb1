"""Roots of Debian to run the role in, and a signed archive of packages within them."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.live.chroot import (
    BUILD_SECONDS,
    Impossible,
    apt_configuration,
    archive,
    dies_with_us,
    locked,
    place,
)

NEEDED = ("python3", "python3-apt", "ca-certificates", "systemd-sysv", "udev")
"""What the role's README says that a target needs."""
PROGRAMS = ("mmdebstrap", "chroot", "gpg", "dpkg-deb", "unshare", "setpriv")
REPOSITORY = "srv/archive"
NEWER = "99"
"""Version of a debusine-worker in the archive that no image wants."""


_ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "DEBIAN_FRONTEND": "noninteractive",
}


def why_not() -> str:
    """Return why no root can be made here; empty when it can."""
    if os.geteuid() != 0:
        return "only root can make and enter a root of Debian"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"needs {', '.join(missing)}" if missing else ""


def unpack(suite: str, folder: Path) -> Path:
    """Return a fresh root of a suite; it is made once and kept as an archive."""
    if reason := why_not():
        raise Impossible(reason)
    options = (
        *("--quiet", "--mode=root", "--format=tar", "--variant=minbase"),
        *(f"--include={','.join(NEEDED)}", "--dpkgopt=force-unsafe-io"),
        *(f"--aptopt={line}" for line in apt_configuration()),
    )
    key = hashlib.sha256(repr((suite, archive(), options)).encode()).hexdigest()[:16]
    tar = place().with_name(f"root-{suite}-{key}.tar")
    with locked(tar):
        if not tar.exists():
            partial = tar.with_suffix(".partial")
            command = ("mmdebstrap", *options, suite, str(partial), archive())
            try:
                _run(*dies_with_us(), *command)
            except AssertionError as failed:
                partial.unlink(missing_ok=True)
                raise Impossible(f"no root of {suite} could be made: {failed}") from None
            partial.rename(tar)
    root = folder / suite
    root.mkdir()
    _run("tar", "--extract", "--numeric-owner", "--file", str(tar), "--directory", str(root))
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    return root


def chrooted(root: Path, *command: str) -> str:
    """Return what a command in a root says; its failure is the test's."""
    return _run("chroot", str(root), *command)


def isolated(root: Path, *command: str) -> str:
    """Return what a command in a root says that needs /proc; what it starts ends with it."""
    inside = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    return _run(*dies_with_us(), "sh", "-c", inside, str(root), *command)


def processes_in(root: Path) -> list[str]:
    """Return the processes that work in a root."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "root").readlink()
        except OSError:
            continue
        if inside == root:
            found.append(process.name)
    return found


def write_archive(root: Path, keys: Path) -> tuple[str, str]:
    """Write a signed archive into a root; return its public key and one that signs nothing.

    It holds the package fleet-hello, and a debusine-worker that is newer than all others.
    """
    folder = root / REPOSITORY
    folder.mkdir(parents=True)
    packages = "".join(
        _package(folder, keys / "build", *each)
        for each in (("fleet-hello", "1", ""), ("debusine-worker", NEWER, "Source: debusine\n"))
    )
    (folder / "Packages").write_text(packages, encoding="utf-8")
    summed = f" {hashlib.sha256(packages.encode()).hexdigest()} {len(packages)} Packages"
    date = _run("date", "--utc", "--rfc-email")
    (folder / "Release").write_text(f"Origin: Test\nDate: {date}SHA256:\n{summed}\n")
    gpg = ("gpg", "--homedir", str(keys), "--batch", "--quiet", "--yes")
    keys.chmod(0o700)
    exported = []
    for name in ("signer@example.org", "stranger@example.org"):
        _run(*gpg, "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never")
        exported.append(_run(*gpg, "--armor", "--export", name))
    signed = ("--local-user", "signer@example.org", "--clearsign", "--output")
    _run(*gpg, *signed, str(folder / "InRelease"), str(folder / "Release"))
    _run("gpgconf", "--homedir", str(keys), "--kill", "all")
    return exported[0], exported[1]


def source(key: str) -> str:
    """Return that archive as a deb822 source, its key inline."""
    lines = "".join(f" {line or '.'}\n" for line in key.strip().split("\n"))
    return f"Types: deb\nURIs: file:///{REPOSITORY}\nSuites: ./\nSigned-By:\n{lines}"


def commands_of(unit: str, key: str) -> list[str]:
    """Return the shell texts that a unit runs under a key, as systemd hands them over."""
    found = re.findall(rf"^{key}=/bin/sh -euc '(.*?)'$", unit, re.MULTILINE | re.DOTALL)
    return [text.replace("\\\n", " ").replace("$$", "$").replace("%%", "%") for text in found]


def _package(folder: Path, build: Path, name: str, version: str, more: str) -> str:
    """Make a package with nothing in it and return what an archive's index says of it."""
    control = (
        f"Package: {name}\n{more}Version: {version}\nArchitecture: all\n"
        "Maintainer: Nobody <nobody@example.org>\nDescription: nothing\n"
    )
    (build / "DEBIAN").mkdir(parents=True, exist_ok=True)
    (build / "DEBIAN/control").write_text(control, encoding="utf-8")
    path = folder / f"{name}.deb"
    _run("dpkg-deb", "--build", str(build), str(path))
    content = path.read_bytes()
    summed = hashlib.sha256(content).hexdigest()
    return f"{control}Filename: ./{path.name}\nSize: {len(content)}\nSHA256: {summed}\n\n"


def _run(*command: str) -> str:
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=BUILD_SECONDS,
        env=_ENVIRONMENT,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-8000:]}{done.stderr[-8000:]}"
    return done.stdout
