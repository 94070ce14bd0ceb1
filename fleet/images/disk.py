"""Build a disk image on this computer, in namespaces of its own, as root or as an ordinary user.

What it mounts and starts ends with it, and it ends when we do, also when we are killed. An
ordinary user is root in there, with a range of subordinate ids for everyone else.

A version's folder appears whole or not at all. What is under way has names that begin with a
dot; what a killed build left is removed by the next of that image.
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
from fleet.images.bake import Baked, Order, explained, read_messages
from fleet.images.checks import last_line, unpack_disk
from fleet.images.diskfile import bootable, lacking, programs
from fleet.images.folder import QCOW2, RAW, Draft, Tell, manifest_of
from fleet.images.programs import find, missing
from fleet.model.images import BuildOrder, File, Manifest


def why_not() -> str:
    """Return why nothing can be started so here, and what to do; empty: it can."""
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
    """Return a command that runs another in namespaces of its own."""
    mapped = () if os.geteuid() == 0 else ("--user", "--map-root-user", "--map-auto")
    return [
        *(find("setpriv") or "setpriv", "--pdeathsig=KILL", "--"),
        *(find("unshare") or "unshare", *mapped, "--mount", "--propagation=private", "--pid"),
        *("--fork", "--kill-child=KILL", "--mount-proc", "--", *command),
    ]


_PROGRAMS = ("mmdebstrap", "tar")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}
"""What the kernel calls an architecture, to its name in Debian."""


@dataclass(frozen=True)
class DiskBuilder:
    """Bakes with mmdebstrap and the role, on this computer."""

    images: Path
    cache: Path
    mirror: str | None = None
    snapshot: bool = False
    raw: bool = False
    check: bool = False
    program: tuple[str, ...] = (sys.executable, "-m", "fleet.images.bake")
    """What bakes, given an Order."""

    def build(self, order: BuildOrder, tell: Tell) -> tuple[Manifest, Baked]:
        """Bake a version into its folder, and say more than its manifest does."""
        if why := self._why_not(order.debian.architecture):
            raise BuildFailed(why)
        clean = partial(self._remove_leavings, order.image)
        with folder.drafting(self.images, order, tell, clean) as draft:
            try:
                baked = self._run(draft)
                manifest = manifest_of(order, "disk", baked.packages, baked.seconds)
                return draft.finish(manifest), baked
            except OSError as error:
                raise BuildFailed(explained(str(error), self.images)) from error

    def _why_not(self, architecture: str) -> str:
        if not bootable(architecture):
            return f"no disk for {architecture} can be made, only for amd64, arm64 and riscv64"
        needed = (*_PROGRAMS, *programs(architecture))
        absent = role.why_not() or missing(needed) or lacking(architecture)
        if absent:
            return absent
        if MACHINES.get(platform.machine()) != architecture and not _runs(architecture):
            return (
                f"this computer cannot run programs of {architecture}; build on one that can, or "
                "on Debian: apt install arch-test qemu-user-static"
            )
        return why_not()

    def _run(self, draft: Draft) -> Baked:
        """Bake in a process of its own; it and all it started are gone when this returns."""
        order = draft.order
        wanted = Order(
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
                # Ctrl-C is ours to hear: the child is ended below.
                start_new_session=True,
            )
        try:
            return Baked.model_validate(read_messages(child, wanted, step))
        finally:
            with _deaf():
                child.kill()
                child.wait()

    def _remove_leavings(self, image: str) -> None:
        """Remove what killed builds of this image left; their files have other owners."""
        place = self.images / image
        left = [*place.glob(".*.work"), *place.glob(".*.partial")]
        if left:
            with _deaf():
                command = isolated("rm", "-rf", "--", *map(str, left))
                subprocess.run(command, check=False)  # noqa: S603 - what lies there is ours


@contextmanager
def _deaf() -> Iterator[None]:
    """Make a second Ctrl-C wait, so that nothing is left behind."""
    blocked = (signal.SIGINT, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _runs(architecture: str) -> bool:
    program = find("arch-test")
    if program is None:
        return False
    told = subprocess.run([program, architecture], check=False, capture_output=True)  # noqa: S603 - a word of a fixed set
    return told.returncode == 0


def disk_of(manifest: Manifest) -> tuple[str, File]:
    """Return the name of a version's disk and what it holds: what tells two versions apart."""
    for name in (QCOW2, RAW):
        if name in manifest.files:
            return name, manifest.files[name]
    raise PublicationRefused(
        f"version {manifest.version} of image {manifest.image} has no disk in its folder"
        + (": it was made as a snapshot at its provider" if manifest.way == "instance" else "")
    )


@contextmanager
def raw_disk(manifest: Manifest, folder: Path) -> Iterator[Path]:
    """Yield a version's disk as raw bytes; one that has to be made has no name to be left by."""
    if RAW in manifest.files:
        yield folder / RAW
        return
    name, _ = disk_of(manifest)
    # Beside the images, where room for disks is; it is sparse.
    with TemporaryFile(dir=folder.parent) as file:
        unpack_disk(folder / name, file)
        yield Path(f"/dev/fd/{file.fileno()}")
