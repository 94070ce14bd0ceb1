"""Build a disk image on this computer, in new namespaces, as root or as an ordinary user.

mmdebstrap creates the base, and the script `bake.sh` does all work on root file systems: it runs
the role, cleans the root and writes the disk. When fleet exits or is killed, the kernel removes
the script's mounts and processes. An ordinary user becomes root in a user namespace and maps other
users to subordinate ids.

The disk has a GPT with two partitions: a FAT boot partition, then the ext4 root. The root is last
so that it can grow at boot. UEFI boots with systemd-boot; on amd64, BIOS boots with syslinux.

The folder of a version appears only when it is complete. Names of unfinished files start with a
dot; the next build of the image removes the unfinished files of a killed build.
"""

import hashlib
import platform
import re
import signal
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from fleet.errors import BuildFailed, FleetError, PublicationRefused
from fleet.images import folder, role
from fleet.images.checks import remove_trees, unpack_disk
from fleet.images.folder import QCOW2, RAW, Draft, Tell, manifest_of
from fleet.images.packages import read_packages
from fleet.images.programs import (
    MACHINES,
    ROOT_SCRIPT,
    ProgramFailed,
    explain_no_namespaces,
    find,
    isolated,
    last_of,
    missing,
    run,
)
from fleet.images.records import BuildOrder
from fleet.images.role import chroot_host, role_digest, role_variables, run_role
from fleet.images.roots import BaseInputs, kept
from fleet.images.sources import archive_of, state_of
from fleet.model.images import Manifest, ManifestFile, recipe_digest
from fleet.model.values import digest

FULL = "No space left on device"
_BOOT_MIB = 128
_FREE_MIB = 768
"""Free space of the root file system before it grows to the size of the machine's disk."""
BOOT_CODE = Path("/usr/lib/syslinux/mbr/gptmbr.bin")
"""Boot code for BIOS, from the package syslinux-common."""
_ROOT_TYPES = {
    "amd64": "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709",
    "arm64": "B921B045-1DF0-41C3-AF44-4C6F280D3FAE",
    "riscv64": "72EC70A6-CF74-40E6-BD49-4BDA08E8F224",
}
_EFI_NAMES = {"amd64": "x64", "arm64": "aa64", "riscv64": "riscv64"}
_CONSOLES = {"arm64": "ttyAMA0"}
_PROGRAMS = ("mmdebstrap", "tar", "mkfs.vfat", "mcopy", "mke2fs", "sfdisk", "qemu-img")
_BAKE_SCRIPT = Path(__file__).with_name("bake.sh")


@dataclass(frozen=True)
class DiskBuilder:
    """Builder that runs mmdebstrap and the Ansible role on this computer."""

    images: Path
    cache: Path
    mirror: str | None = None
    snapshot: bool = False
    raw: bool = False
    """True to keep the uncompressed disk in the folder of the version."""
    check: bool = False
    """True to build a second root file system without the cache, and compare both."""
    script: Path = _BAKE_SCRIPT

    def check_ready(self, order: BuildOrder) -> None:
        """Raise BuildFailed if this computer cannot build the image."""
        architecture = order.debian.architecture
        why = role.why_not() or explain_no_disk(architecture)
        if not why and MACHINES.get(platform.machine()) != architecture:
            tests = [find("arch-test") or "false", architecture]
            if subprocess.run(tests, check=False, capture_output=True).returncode:  # noqa: S603 - a word of a fixed set
                why = (
                    f"this computer cannot run programs of {architecture}; build on one that can, "
                    "or on Debian: apt install arch-test qemu-user-static"
                )
        if why := why or explain_no_namespaces():
            raise BuildFailed(why)

    def build(self, order: BuildOrder, tell: Tell) -> tuple[Manifest, "Differences | None"]:
        """Bake a version into its folder; return its manifest and differences to a second build.

        The cached roots have names by the digest of all their inputs.
        """
        self.check_ready(order)

        def clean() -> None:
            # A second Ctrl-C must not interrupt it. A namespace maps the owners of the files.
            blocked = (signal.SIGINT, signal.SIGTERM)
            before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
            try:
                place = self.images / order.image
                remove_trees(*place.glob(".*.work"), *place.glob(".*.partial"))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

        with folder.drafting(self.images, order, tell, clean) as draft:
            work = self.images / order.image / f".{order.version}.work"
            try:
                work.mkdir()
                return _Bake(self, draft, work).run()
            except (FleetError, OSError) as error:
                said = explained(f"{error}", f"{error}{getattr(error, 'output', '')}", self.images)
                where = "" if str(draft.log) in said else f"\nthe whole log is in {draft.log}"
                raise BuildFailed(said + where) from error


class _Bake:
    """A single build, with a folder for its temporary files."""

    def __init__(self, builder: DiskBuilder, draft: Draft, work: Path) -> None:
        order, recipe = draft.order, draft.order.debian
        self._builder = builder
        self._draft = draft
        self._work = work
        self._recipe = recipe
        draft.say("sources")
        mirror = builder.mirror or recipe.mirror
        self._archive = archive_of(recipe.suite, mirror)
        for line in self._archive.absent:
            draft.say("sources", f"WITHOUT {line}: the mirror has no such suite")
        snapshot = builder.snapshot or recipe.snapshot
        self._base = BaseInputs(recipe.suite, recipe.architecture, self._archive, snapshot)
        named = {
            part: uuid.uuid5(
                uuid.NAMESPACE_URL, f"fleet:{order.image}:{recipe_digest(recipe)}:{part}"
            )
            for part in ("disk", "boot", "root", "root partition")
        }
        self._environment = {
            "work": str(work),
            "SOURCE_DATE_EPOCH": str(self._archive.epoch),
            "E2FSPROGS_FAKE_TIME": str(self._archive.epoch),
            "MTOOLS_SKIP_CHECK": "1",
            "TMPDIR": str(work),
            "BOOT_MIB": str(_BOOT_MIB),
            "FREE_MIB": str(_FREE_MIB),
            "BIOS_BOOT": str(BOOT_CODE) if recipe.architecture == "amd64" else "",
            "BOOT_NUMBER": f"{named['boot'].int & 0xFFFFFFFF:08x}",
            "CONSOLE": _CONSOLES.get(recipe.architecture, "ttyS0"),
            "EFI": _EFI_NAMES[recipe.architecture],
            "ROOT_TYPE": _ROOT_TYPES[recipe.architecture],
            # The next build of the disk has the same ids.
            **{f"{part.replace(' ', '_').upper()}_ID": str(id_) for part, id_ in named.items()},
        }

    def run(self) -> tuple[Manifest, "Differences | None"]:
        """Bake the version, and compare it with a second build if requested."""
        builder, draft, recipe = self._builder, self._draft, self._recipe
        # Without a state (only the image reaches the archive), share the root with no other build.
        state = (state_of(recipe.source) or draft.order.version) if recipe.source else ""
        scripts = [each.read_text(encoding="utf-8") for each in (builder.script, ROOT_SCRIPT)]
        inputs = [self._base.key, role_digest(), role_variables(recipe), self._archive.epoch]
        name = f"root-{digest([*inputs, state, *scripts])}"
        raw = (draft.folder if builder.raw else self._work) / RAW
        with kept(builder.cache, name, self._make_root) as root:
            draft.say("disk")
            packages = read_packages(self._run_step("disk", root, raw).splitlines())
            draft.say("compress")
            convert = ("qemu-img", "convert", "-f", "raw", "-O", "qcow2")
            options = ("-o", "compression_type=zstd", "-c", "-W", "-m", "4")
            run(*convert, *options, raw, draft.folder / QCOW2, log=draft.log)
            if not builder.raw:
                raw.unlink()
            differences = self._build_again(root) if builder.check else None
        return draft.finish(manifest_of(draft.order, "disk", packages)), differences

    def _make_root(self, tar: Path) -> None:
        with kept(self._builder.cache, f"base-{self._base.key}", self._make_base) as base:
            self._run_role(base, tar)

    def _make_base(self, tar: Path) -> None:
        self._draft.say("base")
        lines = "".join(f"{line}\n" for line in self._archive.lines)
        self._run_step("base", *self._base.command(tar), stdin=lines.encode())

    def _run_role(self, base: Path, tar: Path) -> None:
        self._draft.say("role")
        host = replace(
            chroot_host(self._work / "root", self._archive.epoch),
            within=isolated("sh", self._builder.script, "role", base, tar),
            work=self._work,
            environment=self._environment,
        )
        told = partial(self._draft.say, "role")
        run_role(host, role_variables(self._recipe), log=self._draft.log, told=told)

    def _build_again(self, first_root: Path) -> "Differences":
        """Build the root file system again without the cache; return the differences.

        Delete each archive after its last use, because a build has several large archives.
        """
        base, root = (self._work / f"second.{each}" for each in ("base", "root"))
        self._make_base(base)
        with kept(self._builder.cache, f"base-{self._base.key}", self._make_base) as first:
            same = folder.measure(first) == folder.measure(base)
            found = (
                () if same else compare(*(contents(each, times=True) for each in (first, base)))
            )
        self._run_role(base, root)
        base.unlink()
        self._draft.say("compare")
        second = self._list_cleaned(root)
        root.unlink()
        base_files = (each._replace(what=f"in the base: {each.what}") for each in found)
        finished = compare(self._list_cleaned(first_root), second)
        return Differences(same_base=same, files=(*base_files, *finished))

    def _list_cleaned(self, root: Path) -> "Listing":
        """Return the files of a root as they are on its disk."""
        cleaned = self._work / "cleaned.tar"
        self._run_step("clean", root, cleaned)
        return contents(cleaned, times=False)

    def _run_step(self, step: str, *words: str | Path, stdin: bytes = b"") -> str:
        """Run a step of the script in new namespaces; return its output; raises BuildFailed."""
        command = isolated("sh", self._builder.script, step, *words)
        try:
            return run(*command, log=self._draft.log, env=self._environment, stdin=stdin)
        except ProgramFailed as error:
            name = words[0] if step == "base" else f"the step `{step}` of the build"
            raise ProgramFailed(
                f"{name} failed:\n{last_of(error.output)}", error.output
            ) from error


_REASONS = (
    (r"/var/cache/apt/.*|/var/lib/apt/.*", "apt's own record of when it last looked or installed"),
    (r"/var/lib/dpkg/.*", "dpkg's record of the order and time of installation"),
    (r"/var/log/.*", "a log of the build"),
    (r"/var/cache/.*", "a cache that a package made at its installation"),
    (r"/etc/ssl/certs/java/.*", "a key store with times in it"),
    (r"/var/lib/systemd/.*", "systemd's record of the order of setup"),
)
_UNKNOWN = "unknown: check it, because the same recipe should give the same file"


class FileDifference(NamedTuple):
    """A file that differs between the root file systems of two builds."""

    path: str
    what: str
    """The differing properties, such as mode and content."""
    why: str
    """The probable reason."""


class Differences(BaseModel):
    """The differences between two builds of the same recipe from the same archive."""

    same_base: bool
    """True if both root file systems are bit-identical before the Ansible role runs."""
    files: tuple[FileDifference, ...]
    """Differences before the role runs, then those of the finished root file systems."""


Listing = Mapping[str, Mapping[str, str]]
"""Path of a file to the file's properties, such as mode and owner."""


def contents(archive: Path, *, times: bool) -> Listing:
    """Return the properties of each file in a tar archive. `times` adds modification times."""
    with tarfile.open(archive) as tar:
        return {
            each.name.removeprefix("."): {
                "type": each.type.decode(),
                "mode": f"{each.mode:o}",
                "owner": f"{each.uid}:{each.gid}",
                "time": str(each.mtime) if times else "",
                "content": each.linkname
                or (hashlib.sha256(file.read()).hexdigest() if file else ""),
            }
            for each in tar
            # Following a link would fail if its target is not in the archive.
            for file in (tar.extractfile(each) if each.isreg() else None,)
        }


def compare(first: Listing, second: Listing) -> tuple[FileDifference, ...]:
    """Return the files that differ between two root file systems, sorted by path."""
    differences = []
    for path in sorted({*first, *second}):
        here, there = first.get(path), second.get(path)
        if here == there:
            continue
        if here is None or there is None:
            what = "only in the second" if here is None else "only in the first"
        else:
            what = ", ".join(key for key in here if here[key] != there.get(key, ""))
        why = next((why for pattern, why in _REASONS if re.fullmatch(pattern, path)), _UNKNOWN)
        differences.append(FileDifference(path, what, why))
    return tuple(differences)


def explained(error: str, output: str, images: Path) -> str:
    """Return an error message, with advice added if the disk was full according to `output`."""
    if FULL not in output:
        return error
    full = "" if FULL in error else f"{FULL}: "
    return (
        f"{error}\n{full}a build needs about 4 GiB under {images} and 1 GiB in the cache; free "
        "some, or set state.images or XDG_CACHE_HOME to folders with more"
    )


def explain_no_disk(architecture: str, boot_code: Path = BOOT_CODE) -> str:
    """Return why this computer cannot make disks of an architecture; empty if it can."""
    if architecture not in _EFI_NAMES:
        return f"no disk for {architecture} can be made, only for amd64, arm64 and riscv64"
    is_bios = architecture == "amd64"
    if absent := missing((*_PROGRAMS, *(("syslinux",) if is_bios else ()))):
        return absent
    if is_bios and not boot_code.exists():
        return f"this computer lacks {boot_code}; on Debian: apt install syslinux-common"
    return ""


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
    with tempfile.TemporaryFile(dir=folder.parent) as file:
        unpack_disk(folder / name, file)
        yield f"/dev/fd/{file.fileno()}"
