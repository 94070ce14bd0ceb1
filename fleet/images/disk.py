"""Build a disk image on this computer, in new namespaces, as root or as an ordinary user.

`DiskBuilder` starts this module as a program in new namespaces. The program reads `BakeInputs` as
JSON from standard input and writes a line of JSON for each step, then a line with the result or
the error. When the program or its parent exits or is killed, the kernel removes its mounts and
processes. An ordinary user becomes root in a user namespace and maps other users to subordinate
ids.

The folder of a version appears only when it is complete. Names of unfinished files start with a
dot; the next build of the image removes the unfinished files of a killed build.
"""

import ctypes
import hashlib
import json
import os
import platform
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel

from fleet.errors import BuildFailed, FleetError, PublicationRefused
from fleet.images import diskfile, folder, role
from fleet.images.checks import unpack_disk
from fleet.images.folder import QCOW2, RAW, Draft, Tell, manifest_of
from fleet.images.programs import find, last_line, missing, run
from fleet.images.role import chroot_host, role_digest, run_role
from fleet.images.roots import (
    BaseInputs,
    clean,
    furnished,
    installed,
    kept,
    make_base,
    pack,
    unpack,
)
from fleet.images.sources import Archive, archive_of, state_of
from fleet.model.images import (
    BuildOrder,
    Manifest,
    ManifestFile,
    Package,
    recipe_digest,
    role_variables,
)
from fleet.model.values import digest
from fleet.schema.pools import ImageRecipe
from fleet.schema.units import Written

FULL = "No space left on device"
_MIN_FREE_BYTES = 8 << 30
"""Minimum free bytes to build in memory: root and disk need 2 GiB, a second root 2 GiB more."""
_CLONE_NEWNS = 0x00020000
"""Flag of unshare(2) for a new mount namespace."""
_Done = TypeVar("_Done")


def unshare_mounts(log: Path) -> None:
    """Move this process into a new mount namespace. This needs root.

    The kernel removes the mounts when the process ends.
    """
    library = ctypes.CDLL(None, use_errno=True)  # Python has os.unshare since 3.12.
    if library.unshare(_CLONE_NEWNS):
        raise FleetError(f"no mount namespace can be made: {os.strerror(ctypes.get_errno())}")
    run("mount", "--make-rprivate", "/", log=log)


def in_memory_or_on_disk(place: Path, log: Path, build: Callable[[], _Done]) -> _Done:
    """Build in memory if enough is free, or on disk if not or if the memory fills up.

    The caller must be in a separate mount namespace.
    """
    free = free_memory()
    if free >= _MIN_FREE_BYTES:
        options = f"size={free * 3 // 4},mode=0755"
        run("mount", "-t", "tmpfs", "-o", options, "tmpfs", place, log=log)
        try:
            return build()
        except (FleetError, OSError) as error:
            if FULL not in f"{error}{getattr(error, 'output', '')}":
                raise
        finally:
            run("umount", "--lazy", place, log=log)
    return build()


def free_memory(system: Path = Path("/")) -> int:
    """Return the available bytes: the minimum of the computer's and each cgroup's limit."""
    lines = (system / "proc/meminfo").read_text(encoding="ascii").splitlines()
    left = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for line in (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, own = line.split(":", 2)
        limit, usage = "memory.max", "memory.current"
        if controllers:  # version 1, one tree for each controller
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        tree = "memory" if "memory" in controllers.split(",") else controllers
        group = system / "sys/fs/cgroup" / tree / own.lstrip("/")
        # A container may see only some of its parent groups.
        limited = [each for each in (group, *group.parents) if (each / limit).exists()]
        most = {each: (each / limit).read_text(encoding="ascii").strip() for each in limited}
        left += [
            int(most[each]) - int((each / usage).read_text(encoding="ascii"))
            for each in limited
            if most[each] != "max"
        ]
    return min(left)


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


class BakeInputs(BaseModel):
    """The standard input of this program: the recipe and the folders of a build."""

    image: str
    recipe: Annotated[ImageRecipe, Written]
    folder: Path
    """Output folder of the finished disk."""
    log: Path
    work: Path
    """Working folder. The program deletes this folder after the build."""
    cache: Path
    mirror: str | None = None
    snapshot: bool = False
    raw: bool = False
    """True to keep the uncompressed disk in the output folder."""
    check: bool = False
    """True to build a second root file system without the cache, and compare both."""


class Baked(BaseModel):
    """The result of a build: packages, and differences to a second build."""

    packages: tuple[Package, ...]
    differences: Differences | None = None
    """The comparison with a second build; None without `check` in the input."""


def main() -> int:
    """Bake an image; return the exit code: 0, or 1 after an error."""
    os.umask(0o022)  # Else the caller's umask changes the modes of files in the root.
    order = BakeInputs.model_validate_json(sys.stdin.read())
    tempfile.tempdir = str(order.work)  # The next build removes the work folder of a killed build.
    try:
        baked = in_memory_or_on_disk(order.work, order.log, lambda: _Bake(order).run())
    except (FleetError, OSError) as error:
        _print_message(error=str(error))
        return 1
    _print_message(baked=json.loads(baked.model_dump_json()))
    return 0


def _print_message(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


class _Bake:
    def __init__(self, order: BakeInputs) -> None:
        self._order = order
        self._log = order.log

    def run(self) -> Baked:
        order, recipe = self._order, self._order.recipe
        _print_message(phase="sources")
        archive = archive_of(recipe.suite, order.mirror, self._log)
        for line in archive.absent:
            absent = f"WITHOUT {line}: the mirror has no such suite"
            _print_message(phase="sources", task=absent)
        base = BaseInputs(recipe.suite, recipe.architecture, archive, order.snapshot)
        root = order.work / "root"
        self._make_root(base, root)
        _print_message(phase="packages")
        with furnished(root, self._log):
            packages = installed(root, self._log)
        self._clean_root(root, archive)
        differences = self._compare_with_rebuild(base, root) if order.check else None
        raw = (order.folder if order.raw else order.work) / RAW
        _print_message(phase="disk")
        diskfile.write_raw(self._disk_plan(root, archive), raw, self._log)
        _print_message(phase="compress")
        diskfile.write_qcow2(raw, order.folder / QCOW2, self._log)
        return Baked(packages=packages, differences=differences)

    def _make_root(self, base: BaseInputs, root: Path) -> None:
        """Create the root file system, if possible from the cache, and run fleet's role on it."""
        source, variables = self._order.recipe.source, role_variables(self._order.recipe)
        # Without a state (only the image reaches the archive), share the root with no other build.
        state = (state_of(source) or self._order.folder.name) if source else ""
        key = digest([base.key, role_digest(), variables, base.archive.epoch, state])

        def make(tar: Path) -> None:
            with self._open_base(base) as below:
                _print_message(phase="unpack")
                unpack(below, root, self._log)
            self._run_role(base, root)
            _print_message(phase="keep")
            pack(root, tar, self._log)

        with kept(self._order.cache, f"root-{key}", make) as (tar, found):
            if not found:
                return
            _print_message(phase="unpack")
            unpack(tar, root, self._log)
        self._run_role(base, root)

    @contextmanager
    def _open_base(self, base: BaseInputs) -> Iterator[Path]:
        def make(tar: Path) -> None:
            _print_message(phase="base")
            make_base(base, tar, self._order.work, self._log)

        with kept(self._order.cache, f"base-{base.key}", make) as (tar, _):
            yield tar

    def _run_role(self, base: BaseInputs, root: Path) -> None:
        variables = role_variables(self._order.recipe)
        _print_message(phase="role")
        with furnished(root, self._log):
            run_role(
                chroot_host(root, base.archive.epoch),
                variables,
                log=self._log,
                told=lambda task: _print_message(phase="role", task=task),
            )

    def _clean_root(self, root: Path, archive: Archive) -> None:
        _print_message(phase="clean")
        clean(root, self._log)
        diskfile.prepare_root(self._disk_plan(root, archive))

    def _disk_plan(self, root: Path, archive: Archive) -> diskfile.DiskSpec:
        recipe = self._order.recipe
        name = f"{self._order.image}:{recipe_digest(recipe)}"
        return diskfile.DiskSpec(root, recipe.architecture, name, archive.epoch)

    def _compare_with_rebuild(self, base: BaseInputs, root: Path) -> Differences:
        """Build the root file system again without the cache; return the differences."""
        second, tar = self._order.work / "second", self._order.work / "second.tar"
        _print_message(phase="base again")
        make_base(base, tar, self._order.work, self._log)
        with self._open_base(base) as first:
            same = folder.measure(first) == folder.measure(tar)
            found = () if same else compare(*(contents(each, times=True) for each in (first, tar)))
        base_files = (each._replace(what=f"in the base: {each.what}") for each in found)
        _print_message(phase="unpack again")
        unpack(tar, second, self._log)
        self._run_role(base, second)
        self._clean_root(second, base.archive)
        _print_message(phase="compare")
        listings = []
        for each in (root, second):
            pack(each, tar, self._log)
            listings.append(contents(tar, times=False))
        shutil.rmtree(second)
        tar.unlink()
        return Differences(same_base=same, files=(*base_files, *compare(*listings)))


def read_messages(
    child: "subprocess.Popen[bytes]", order: BakeInputs, step: Callable[[dict[str, Any]], None]
) -> Any:  # noqa: ANN401 - JSON
    """Send a build its input, call `step` per message, return the result; raises BuildFailed."""
    if child.stdin is None or child.stdout is None:
        raise TypeError(child)
    with child.stdin, child.stdout:
        with suppress(BrokenPipeError):  # the build exited already; the log has the reason
            child.stdin.write(order.model_dump_json().encode())
            child.stdin.close()
        for line in child.stdout:
            message = json.loads(line)
            if "baked" in message:
                return message["baked"]
            if "error" in message:
                raise BuildFailed(_add_log_path(message["error"], order))
            step(message)
    code = child.wait()
    said = order.log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    raise BuildFailed(
        _add_log_path(f"the build ended with {code}; its last output:\n  {said}", order)
    )


def explained(error: str, images: Path) -> str:
    """Return an error message, with advice added if the disk is full."""
    if FULL not in error:
        return error
    return (
        f"{error}\nnot enough disk space: a build needs about 4 GiB under {images} and 1 GiB in "
        "the cache; free some, or set state.images or XDG_CACHE_HOME to folders with more"
    )


def _add_log_path(error: str, order: BakeInputs) -> str:
    where = "" if str(order.log) in error else f"\nthe whole log is in {order.log}"
    return explained(error, order.folder.parent.parent) + where


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
    program: tuple[str, ...] = (sys.executable, "-m", "fleet.images.disk")
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
        if architecture not in diskfile.EFI_NAMES:
            return f"no disk for {architecture} can be made, only for amd64, arm64 and riscv64"
        needed = (*_REQUIRED_PROGRAMS, *diskfile.programs(architecture))
        absent = role.why_not() or missing(needed) or diskfile.lacking(architecture)
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
    with tempfile.TemporaryFile(dir=folder.parent) as file:
        unpack_disk(folder / name, file)
        yield f"/dev/fd/{file.fileno()}"


if __name__ == "__main__":
    sys.exit(main())
