"""Bake an image: the program that runs in the build's own namespaces and makes root and disk.

It works in memory where the computer has plenty, for packages write a lot. It reads an Order as
JSON from standard input and writes a line of JSON for each step, then one with the result or the
error. Whatever it mounts or starts ends with it, however it ends.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar

from pydantic import BaseModel

from fleet.errors import BuildFailed, FleetError
from fleet.images import diskfile, folder
from fleet.images.programs import ProgramFailed, run
from fleet.images.role import chroot_host, role_digest, run_role
from fleet.images.roots import Base, clean, furnished, installed, kept, make_base, pack, unpack
from fleet.images.sources import Archive, archive_of, state_of
from fleet.model.images import Package, recipe_digest, role_variables
from fleet.model.values import digest
from fleet.schema.pools import ImageRecipe
from fleet.schema.units import Written

FULL = "No space left on device"
_Done = TypeVar("_Done")
_Run = Callable[..., str]
_GIB = 1 << 30
_LEAST = 8 * _GIB
"""A root and its disk take 2 GiB, two roots that are compared 4; others use memory too."""
_SHARE = 3, 4
"""Of what is free, at most."""


def in_memory_or_on_disk(
    place: Path,
    log: Path,
    build: Callable[[bool], _Done],
    *,
    system: Path = Path("/"),
    run: _Run = run,
) -> _Done:
    """Build in memory where there is plenty; on disk where there is not, or it was not enough.

    `build` is told whether it works in memory.
    """
    if work_in_memory(place, log, system=system, run=run):
        try:
            return build(True)
        except (FleetError, OSError) as error:
            output = error.output if isinstance(error, ProgramFailed) else ""
            if FULL not in f"{error}{output}":
                raise
        finally:
            run("umount", "--lazy", place, log=log)
    return build(False)


def work_in_memory(place: Path, log: Path, *, system: Path = Path("/"), run: _Run = run) -> bool:
    """Mount a file system in memory there, and say whether there is enough for one.

    Has to run in a mount namespace of its own.
    """
    free = free_memory(system)
    if free < _LEAST:
        return False
    size = free * _SHARE[0] // _SHARE[1]
    run("mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", place, log=log)
    return True


def free_memory(system: Path = Path("/")) -> int:
    """Return the bytes that programs could still take: the computer's, and of our own limit."""
    lines = (system / "proc/meminfo").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines)
    free = int(found["MemAvailable"].split()[0]) * 1024
    return min([free, *_left_in_groups(system)])


def _left_in_groups(system: Path) -> Iterator[int]:
    """Yield what the control groups that we are in leave us, where they are limited."""
    groups = system / "sys/fs/cgroup"
    for line in (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, own = line.split(":", 2)
        if not controllers:
            yield from _left(groups, own, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):  # version 1, one tree for each controller
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            yield from _left(groups / "memory", own, *names)


def _left(top: Path, own: str, limit: str, usage: str) -> Iterator[int]:
    """Yield what a group and those above it leave; a container may see the upper ones alone."""
    place = top / own.lstrip("/")
    for above in (place, *place.parents):
        if not above.is_relative_to(top):
            return
        most, used = above / limit, above / usage
        if most.exists() and (allowed := most.read_text(encoding="ascii").strip()) != "max":
            yield int(allowed) - int(used.read_text(encoding="ascii"))


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


def listing(root: Path) -> Listing:
    """Return every file of a root with what counts of it: not when it was last touched."""
    found: dict[str, dict[str, str]] = {}
    for place, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(place, name)
            found[f"/{path.relative_to(root)}"] = _properties(path)
    return found


def contents(archive: Path) -> Listing:
    """Return every file of a root in an archive, and when it was written."""
    with tarfile.open(archive) as tar:
        return {
            each.name.removeprefix("."): {
                "type": each.type.decode(),
                "mode": f"{each.mode:o}",
                "owner": f"{each.uid}:{each.gid}",
                "time": str(each.mtime),
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


def _properties(path: Path) -> dict[str, str]:
    about = path.lstat()
    kind = stat.S_IFMT(about.st_mode)
    found = {
        "type": f"{kind:o}",
        "mode": f"{stat.S_IMODE(about.st_mode):o}",
        "owner": f"{about.st_uid}:{about.st_gid}",
        "content": "",
    }
    if stat.S_ISLNK(about.st_mode):
        found["content"] = str(path.readlink())
    elif stat.S_ISREG(about.st_mode):
        with path.open("rb") as file:
            found["content"] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


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
        baked = in_memory_or_on_disk(order.work, order.log, partial(_bake, order))
    except FleetError as error:
        _say(error=str(error), code=error.exit_code)
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _say(error=f"{place}{error.strerror}", code=1)
        return 1
    _say(baked=json.loads(baked.model_dump_json()))
    return 0


def _bake(order: Order, in_memory: bool) -> Baked:  # noqa: FBT001 - what in_memory_or_on_disk tells
    return _Bake(order, in_memory=in_memory).run()


def _say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


class _Bake:
    def __init__(self, order: Order, *, in_memory: bool) -> None:
        self._order = order
        self._log = order.log
        self._seconds: dict[str, float] = {}
        self._in_memory = in_memory

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
            clean(root)
            diskfile.prepare_root(self._plan(root, archive))

    def _disk(self, root: Path, archive: Archive) -> None:
        raw = self._order.folder / folder.RAW if self._order.raw else self._order.work / "disk.raw"
        with self._phase("disk"):
            diskfile.write_raw(self._plan(root, archive), raw, self._log)
        with self._phase("compress"):
            diskfile.write_qcow2(raw, self._order.folder / folder.QCOW2, self._log)
        with self._phase("tidy"):
            if not self._in_memory:
                shutil.rmtree(self._order.work)

    def _plan(self, root: Path, archive: Archive) -> diskfile.Plan:
        recipe = self._order.recipe
        name = f"{self._order.image}:{recipe_digest(recipe)}"
        return diskfile.Plan(root, recipe.architecture, name, archive.epoch)

    def _check(self, base: Base, root: Path) -> Differences:
        """Make base and root once more from nothing, and compare."""
        second = self._order.work / "second"
        tar = self._order.work / "second.tar"
        with self._phase("base again"):
            make_base(base, tar, self._order.work, self._log)
        with self._base(base) as first:
            same = folder.measure(first) == folder.measure(tar)
            base_files = () if same else compare(contents(first), contents(tar))
        with self._phase("unpack again"):
            unpack(tar, second, self._log)
        self._role(second)
        clean(second)
        diskfile.prepare_root(self._plan(second, base.archive))
        with self._phase("compare"):
            files = compare(listing(root), listing(second))
        shutil.rmtree(second)
        tar.unlink()
        return Differences(same_base=same, base=base_files, files=files)

    @contextmanager
    def _phase(self, name: str) -> Iterator[float]:
        began = time.monotonic()
        _say(phase=name)
        with self._log.open("a", encoding="utf-8") as text:
            text.write(f"== {name}\n")
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
        try:
            child.stdin.write(order.model_dump_json().encode())
            child.stdin.close()
        except BrokenPipeError:
            pass  # why it ended already stands in the log
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
