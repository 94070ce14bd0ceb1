"""Build a disk image on this computer, in new namespaces, as root or as an ordinary user.

The kernel removes the mounts and processes of a build when the build or this process exits or is
killed. An ordinary user becomes root in a user namespace and maps other users to subordinate ids.

The folder of a version appears only when it is complete. Names of unfinished files start with a
dot; the next build of the image removes the unfinished files of a killed build.
"""

import os
import platform
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fleet.errors import BuildFailed, PublicationRefused
from fleet.images import folder, role
from fleet.images.bake import Baked, BakeInputs, explained, read_messages
from fleet.images.checks import last_line, unpack_disk
from fleet.images.diskfile import EFI_NAMES, lacking, programs
from fleet.images.folder import QCOW2, RAW, Draft, Tell, manifest_of
from fleet.images.programs import find, missing
from fleet.model.images import BuildOrder, Manifest, ManifestFile


def why_not() -> str:
    """Return why this computer cannot create namespaces, with a remedy; empty if it can."""
    ordinary = os.geteuid() != 0
    if lacking := missing(("setpriv", "unshare", *(("newuidmap",) if ordinary else ()))):
        return lacking
    tried = subprocess.run(isolated("true"), check=False, capture_output=True)  # noqa: S603 - fixed words
    if not tried.returncode:
        return ""
    told = f"no namespaces can be made here: {last_line(tried.stderr)}"
    if not ordinary:
        return told
    names = (each.pw_name for each in pwd.getpwall() if each.pw_uid == os.getuid())
    return (
        f"{told}; an ordinary user bakes with a range of subordinate ids, by root: usermod "
        "--add-subuids 100000-165535 --add-subgids 100000-165535 "
        f"{next(names, os.getuid())}"
    )


def isolated(*command: str) -> list[str]:
    """Return a command line that runs `command` in new namespaces."""
    mapped = () if os.geteuid() == 0 else ("--user", "--map-root-user", "--map-auto")
    return [
        *(find("setpriv") or "setpriv", "--pdeathsig=KILL", "--"),
        *(find("unshare") or "unshare", *mapped, "--mount", "--propagation=private", "--pid"),
        *("--fork", "--kill-child=KILL", "--mount-proc", "--", *command),
    ]


_REQUIRED_PROGRAMS = ("mmdebstrap", "tar")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}
"""Machine name of the kernel (as in `uname -m`) to Debian's architecture name."""


@dataclass(frozen=True)
class DiskBuilder:
    """Builder that runs mmdebstrap and the Ansible role on this computer."""

    images: Path
    cache: Path
    mirror: str | None = None
    snapshot: bool = False
    raw: bool = False
    check: bool = False
    program: tuple[str, ...] = (sys.executable, "-m", "fleet.images.bake")
    """Command of the program that reads `BakeInputs` from standard input and bakes."""

    def check_ready(self, order: BuildOrder) -> None:
        """Raise BuildFailed if this computer cannot build the image."""
        if why := self._explain_unsupported(order.debian.architecture):
            raise BuildFailed(why)

    def build(self, order: BuildOrder, tell: Tell) -> tuple[Manifest, Baked]:
        """Bake a version into its folder; return the manifest and the full result."""
        self.check_ready(order)
        clean = partial(self._remove_leftovers, order.image)
        with folder.drafting(self.images, order, tell, clean) as draft:
            try:
                baked = self._bake_in_child(draft)
                manifest = manifest_of(order, "disk", baked.packages)
                return draft.finish(manifest), baked
            except OSError as error:
                raise BuildFailed(explained(str(error), self.images)) from error

    def _explain_unsupported(self, architecture: str) -> str:
        if architecture not in EFI_NAMES:
            return f"no disk for {architecture} can be made, only for amd64, arm64 and riscv64"
        needed = (*_REQUIRED_PROGRAMS, *programs(architecture))
        absent = role.why_not() or missing(needed) or lacking(architecture)
        if absent:
            return absent
        if MACHINES.get(platform.machine()) != architecture:
            tests = [find("arch-test") or "false", architecture]
            if subprocess.run(tests, check=False, capture_output=True).returncode:  # noqa: S603 - a word of a fixed set
                return (
                    f"this computer cannot run programs of {architecture}; build on one that can, "
                    "or on Debian: apt install arch-test qemu-user-static"
                )
        return why_not()

    def _bake_in_child(self, draft: Draft) -> Baked:
        """Bake in a child process. Kill the child and its descendants at the end."""
        order = draft.order
        wanted = BakeInputs(
            image=order.image,
            recipe=order.debian,
            folder=draft.folder,
            log=draft.log,
            work=self.images / order.image / f".{order.version}.work",
            cache=self.cache,
            mirror=self.mirror or order.debian.mirror,
            snapshot=self.snapshot or order.debian.snapshot,
            raw=self.raw,
            check=self.check,
        )
        wanted.work.mkdir()

        def step(message: dict[str, Any]) -> None:
            draft.say(message["phase"], message.get("task", ""))

        with draft.log.open("ab") as told:
            child = subprocess.Popen(  # noqa: S603 - ourselves
                isolated(*self.program),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=told,
                # Only this process handles Ctrl-C: it kills the child below.
                start_new_session=True,
            )
        try:
            return Baked.model_validate(read_messages(child, wanted, step))
        finally:
            with _block_signals():
                child.kill()
                child.wait()

    def _remove_leftovers(self, image: str) -> None:
        """Remove files of killed builds of an image, in a namespace that maps their owners."""
        place = self.images / image
        left = [*place.glob(".*.work"), *place.glob(".*.partial")]
        if left:
            with _block_signals():
                command = isolated("rm", "-rf", "--", *map(str, left))
                subprocess.run(command, check=False)  # noqa: S603 - files of fleet


@contextmanager
def _block_signals() -> Iterator[None]:
    """Block SIGINT and SIGTERM, so that a second Ctrl-C does not interrupt the clean-up."""
    blocked = (signal.SIGINT, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def disk_of(manifest: Manifest) -> tuple[str, ManifestFile]:
    """Return (name, size and checksum) of a version's disk file; raises PublicationRefused."""
    for name in (QCOW2, RAW):
        if name in manifest.files:
            return name, manifest.files[name]
    raise PublicationRefused(
        f"version {manifest.version} of image {manifest.image} has no disk in its folder"
        + (": it was made as a snapshot at its provider" if manifest.way == "instance" else "")
    )


@contextmanager
def raw_disk(manifest: Manifest, folder: Path) -> Iterator[str]:
    """Yield the path of a version's raw disk; if packed, of a temporary unpacked copy."""
    if RAW in manifest.files:
        yield str(folder / RAW)
        return
    name, _ = disk_of(manifest)
    # Use the folder of the images, which has space for a disk. The file is sparse.
    with TemporaryFile(dir=folder.parent) as file:
        unpack_disk(folder / name, file)
        yield f"/dev/fd/{file.fileno()}"
