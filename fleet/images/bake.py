"""Bake an image: the program that runs in the build's own namespaces and makes root and disk.

It reads an Order as JSON from standard input and writes a line of JSON for each step, then one
with the result or the error. Whatever it mounts or starts ends with it, however it ends.
"""

import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar

from pydantic import BaseModel

from fleet.errors import BuildFailed, FleetError
from fleet.images import diskfile, folder
from fleet.images.programs import run
from fleet.images.role import chroot_host, role_digest, run_role
from fleet.images.roots import Base, clean, furnished, installed, kept, make_base, pack, unpack
from fleet.images.sources import Archive, archive_of, state_of
from fleet.model.images import Package, recipe_digest, role_variables
from fleet.model.values import digest
from fleet.schema.pools import ImageRecipe
from fleet.schema.units import Written

FULL = "No space left on device"
_LEAST = 8 << 30
"""Bytes of free memory: root and disk take 2 GiB, two roots that are compared 4."""
_NEW_MOUNTS = 0x00020000
"""CLONE_NEWNS, as the kernel calls it."""
_Done = TypeVar("_Done")


def have_own_mounts(log: Path) -> None:
    """Give this process, as root, a mount namespace of its own: what it mounts ends with it."""
    library = ctypes.CDLL(None, use_errno=True)  # Python has os.unshare since 3.12.
    if library.unshare(_NEW_MOUNTS):
        raise FleetError(f"no mount namespace can be made: {os.strerror(ctypes.get_errno())}")
    run("mount", "--make-rprivate", "/", log=log)


def in_memory_or_on_disk(place: Path, log: Path, build: Callable[[], _Done]) -> _Done:
    """Build in memory where there is plenty; on disk where there is not, or it was not enough.

    Has to run in a mount namespace of its own.
    """
    free = free_memory()
    if free >= _LEAST:
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
    """Return the bytes that programs could still take: the computer's, and of our own limits."""
    lines = (system / "proc/meminfo").read_text(encoding="ascii").splitlines()
    left = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for line in (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, own = line.split(":", 2)
        limit, usage = "memory.max", "memory.current"
        if controllers:  # version 1, one tree for each controller
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        tree = "memory" if "memory" in controllers.split(",") else controllers
        group = system / "sys/fs/cgroup" / tree / own.lstrip("/")
        # A container may see the upper ones alone.
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
    (r"/etc/shadow", "the day on which a user was made, which useradd takes from the clock"),
    (
        r"/boot/initrd\.img-.*",
        "update-initramfs writes the clock's times into the initrd",
    ),
    (r"/var/log/.*", "a log of the build"),
    (r"/var/cache/.*", "a cache that a package made at its installation"),
    (r".*\.pyc", "Python compiles the time of the source file into it"),
    (r"/etc/ssl/certs/java/.*", "a key store with times in it"),
    (r"/var/lib/systemd/.*", "systemd's record of what was set up when"),
)
_UNKNOWN = "unknown: check it, because the same recipe should give the same file"


class Difference(BaseModel):
    """A file that is not the same in two roots."""

    path: str
    what: str
    """Which of its properties differ."""
    why: str


class Differences(BaseModel):
    """What a second build of the same recipe, from the same archive, gave."""

    same_base: bool
    """The base root file system is the same to the last bit."""
    base: tuple[Difference, ...] = ()
    """What differs in the base, by path."""
    files: tuple[Difference, ...]
    """What differs in the finished one, by path."""

    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """Return path, what differs and why, for rendering."""
        base = ((each.path, f"in the base: {each.what}", each.why) for each in self.base)
        return (*base, *((each.path, each.what, each.why) for each in self.files))


Listing = Mapping[str, Mapping[str, str]]
"""Path to its properties."""


def contents(archive: Path, *, times: bool) -> Listing:
    """Return every file of a root in an archive; `times`: with the moment it was written."""
    with tarfile.open(archive) as tar:
        return {
            each.name.removeprefix("."): {
                "type": each.type.decode(),
                "mode": f"{each.mode:o}",
                "owner": f"{each.uid}:{each.gid}",
                "time": str(each.mtime) if times else "",
                "content": each.linkname or _digest(tar.extractfile(each)),
            }
            for each in tar
        }


def compare(first: Listing, second: Listing) -> tuple[Difference, ...]:
    """Return what differs, by path."""
    differences = []
    for path in sorted({*first, *second}):
        here, there = first.get(path), second.get(path)
        if here == there:
            continue
        if here is None or there is None:
            what = "only in the second" if here is None else "only in the first"
        else:
            what = ", ".join(key for key in here if here[key] != there.get(key, ""))
        differences.append(Difference(path=path, what=what, why=_why(path)))
    return tuple(differences)


def _digest(file: IO[bytes] | None) -> str:
    return hashlib.sha256(file.read()).hexdigest() if file else ""


def _why(path: str) -> str:
    return next((why for pattern, why in _REASONS if re.fullmatch(pattern, path)), _UNKNOWN)


class Order(BaseModel):
    """What to bake, and where."""

    image: str
    recipe: Annotated[ImageRecipe, Written]
    folder: Path
    """Where the disk goes."""
    log: Path
    work: Path
    """What is deleted at the end."""
    cache: Path
    mirror: str | None = None
    snapshot: bool = False
    raw: bool = False
    """Whether the uncompressed disk is kept too."""
    check: bool = False
    """Whether to bake a second root from nothing and compare."""


class Baked(BaseModel):
    """What came of it."""

    packages: tuple[Package, ...]
    seconds: dict[str, float]
    differences: Differences | None = None
    """Of a second build from nothing, where one was asked for."""


def main() -> int:
    """Bake; the exit code says whether it worked."""
    os.umask(0o022)  # What we write into the root has the mode of our caller's files otherwise.
    order = Order.model_validate_json(sys.stdin.read())
    tempfile.tempdir = str(order.work)  # What a killed build leaves there, the next one removes.
    try:
        baked = in_memory_or_on_disk(order.work, order.log, lambda: _Bake(order).run())
    except (FleetError, OSError) as error:
        _say(error=str(error))
        return 1
    _say(baked=json.loads(baked.model_dump_json()))
    return 0


def _say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


class _Bake:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._log = order.log
        self._seconds: dict[str, float] = {}

    def run(self) -> Baked:
        order, recipe = self._order, self._order.recipe
        with self._phase("sources"):
            archive = archive_of(recipe.suite, order.mirror, self._log)
        for line in archive.absent:
            _say(phase="sources", task=f"WITHOUT {line}: the mirror has no such suite", at=0.0)
        base = Base(recipe.suite, recipe.architecture, archive, order.snapshot)
        root = order.work / "root"
        self._root(base, root)
        with self._phase("packages"), furnished(root, self._log):
            packages = installed(root, self._log)
        self._clean(root, archive)
        differences = self._check(base, root) if order.check else None
        self._disk(root, archive)
        return Baked(packages=packages, seconds=self._seconds, differences=differences)

    def _root(self, base: Base, root: Path) -> None:
        """Have the role's root: as it was kept, else made on the base; run the role either way."""
        key = self._key_of(base)

        def make(tar: Path) -> None:
            with self._base(base) as below, self._phase("unpack"):
                unpack(below, root, self._log)
            self._role(root)
            with self._phase("keep"):
                pack(root, tar, self._log)

        with kept(self._order.cache, f"root-{key}", make) as (tar, found):
            if not found:
                return
            with self._phase("unpack"):
                unpack(tar, root, self._log)
        self._role(root)

    def _key_of(self, base: Base) -> str:
        """Return the digest of all that goes into the role's root, its own source's state too."""
        source = self._order.recipe.source
        # Whether an archive that only the image reaches has changed is unknown.
        state = (state_of(source) or self._order.folder.name) if source else ""
        return digest([base.key, role_digest(), role_variables(self._order.recipe), state])

    @contextmanager
    def _base(self, base: Base) -> Iterator[Path]:
        def make(tar: Path) -> None:
            with self._phase("base"):
                make_base(base, tar, self._order.work, self._log)

        with kept(self._order.cache, f"base-{base.key}", make) as (tar, _):
            yield tar

    def _role(self, root: Path) -> None:
        variables = role_variables(self._order.recipe)
        with self._phase("role") as began, furnished(root, self._log):
            run_role(
                chroot_host(root),
                variables,
                log=self._log,
                told=lambda task: _say(phase="role", task=task, at=time.monotonic() - began),
            )

    def _clean(self, root: Path, archive: Archive) -> None:
        with self._phase("clean"):
            clean(root, self._log)
            diskfile.prepare_root(self._plan(root, archive))

    def _disk(self, root: Path, archive: Archive) -> None:
        raw = self._order.folder / folder.RAW if self._order.raw else self._order.work / "disk.raw"
        with self._phase("disk"):
            diskfile.write_raw(self._plan(root, archive), raw, self._log)
        with self._phase("compress"):
            diskfile.write_qcow2(raw, self._order.folder / folder.QCOW2, self._log)

    def _plan(self, root: Path, archive: Archive) -> diskfile.Plan:
        recipe = self._order.recipe
        name = f"{self._order.image}:{recipe_digest(recipe)}"
        return diskfile.Plan(root, recipe.architecture, name, archive.epoch)

    def _check(self, base: Base, root: Path) -> Differences:
        """Make base and root once more from nothing, and compare."""
        second, tar = self._order.work / "second", self._order.work / "second.tar"
        with self._phase("base again"):
            make_base(base, tar, self._order.work, self._log)
        with self._base(base) as first:
            same = folder.measure(first) == folder.measure(tar)
            base_files = (
                () if same else compare(*(contents(each, times=True) for each in (first, tar)))
            )
        with self._phase("unpack again"):
            unpack(tar, second, self._log)
        self._role(second)
        self._clean(second, base.archive)
        with self._phase("compare"):
            listings = []
            for each in (root, second):
                pack(each, tar, self._log)
                listings.append(contents(tar, times=False))
        shutil.rmtree(second)
        tar.unlink()
        return Differences(same_base=same, base=base_files, files=compare(*listings))

    @contextmanager
    def _phase(self, name: str) -> Iterator[float]:
        began = time.monotonic()
        _say(phase=name)
        yield began
        took = time.monotonic() - began
        self._seconds[name] = round(self._seconds.get(name, 0.0) + took, 3)


if __name__ == "__main__":
    sys.exit(main())


def read_messages(
    child: "subprocess.Popen[bytes]", order: Order, step: Callable[[dict[str, Any]], None]
) -> Any:  # noqa: ANN401 - JSON
    """Give a build its order, tell each step, and return its result; raises BuildFailed."""
    if child.stdin is None or child.stdout is None:
        raise TypeError(child)
    with child.stdin, child.stdout:
        with suppress(BrokenPipeError):  # why it ended already stands in the log
            child.stdin.write(order.model_dump_json().encode())
            child.stdin.close()
        for line in child.stdout:
            message = json.loads(line)
            if "baked" in message:
                return message["baked"]
            if "error" in message:
                raise BuildFailed(_with_log(message["error"], order))
            step(message)
    code = child.wait()
    said = order.log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    raise BuildFailed(_with_log(f"the build ended with {code}; its last output:\n  {said}", order))


def explained(error: str, images: Path) -> str:
    """Return an error with what to do where the disk is full."""
    if FULL not in error:
        return error
    return (
        f"{error}\nnot enough disk space: a build needs about 4 GiB under {images} and 1 GiB in "
        "the cache; free some, or set state.images or XDG_CACHE_HOME to folders with more"
    )


def _with_log(error: str, order: Order) -> str:
    where = "" if str(order.log) in error else f"\nthe whole log is in {order.log}"
    return explained(error, order.folder.parent.parent) + where
