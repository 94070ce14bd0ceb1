"""This module bakes one image, as a process in namespaces of its own, for fleet/images/disk.py.

It reads an Order as JSON from standard input and writes a line of JSON for each step, then one
with the result or the error. Whatever it mounts or starts ends with it, however it ends.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel

from fleet.canonical import digest
from fleet.errors import FleetError
from fleet.facts.manifest import Package
from fleet.facts.recipes import recipe_digest, role_variables
from fleet.images import diskfile, folder
from fleet.images.base import Base, kept, make_base, pack, unpack
from fleet.images.compare import Differences, compare, contents, listing
from fleet.images.memory import in_memory_or_on_disk
from fleet.images.role import RoleRun, chroot_host, role_digest, run_role
from fleet.images.root import clean, furnished, installed
from fleet.images.sources import Archive, archive_of, state_of
from fleet.schema.base import Written
from fleet.schema.pools import ImageRecipe


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
    base: str
    """Digest of the base's archive."""
    changed_again: tuple[str, ...] = ()
    """Tasks of the role that changed something although it had run before."""
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
        again = self._root(base, root)
        with self._phase("packages"), furnished(root, self._log):
            packages = installed(root, self._log)
        self._clean(root, archive)
        differences = self._check(base, root) if order.check else None
        self._disk(root, archive)
        return Baked(
            packages=packages,
            seconds=self._seconds,
            base=base.key,
            changed_again=again,
            differences=differences,
        )

    def _root(self, base: Base, root: Path) -> tuple[str, ...]:
        """Have the role's root: as it was kept, else made on the base; run the role either way."""
        key = self._key_of(base)
        ran: list[RoleRun] = []

        def make(tar: Path) -> None:
            with self._base(base) as below, self._phase("unpack"):
                unpack(below, root, self._log)
            ran.append(self._role(root))
            with self._phase("keep"):
                pack(root, tar, self._log)

        with kept(self._order.cache, f"root-{key}", make) as (tar, found):
            if not found:
                return ()
            with self._phase("unpack"):
                unpack(tar, root, self._log)
        return self._role(root).changed

    def _key_of(self, base: Base) -> str:
        """Return the digest of all that goes into the role's root, its own source's state too."""
        source = self._order.recipe.source
        # Of an archive that only the image reaches nobody knows whether it changed.
        state = (state_of(source) or self._order.folder.name) if source else ""
        return digest([base.key, role_digest(), role_variables(self._order.recipe), state])

    @contextmanager
    def _base(self, base: Base) -> Iterator[Path]:
        def make(tar: Path) -> None:
            with self._phase("base"):
                make_base(base, tar, self._order.work, self._log)

        with kept(self._order.cache, f"base-{base.key}", make) as (tar, _):
            yield tar

    def _role(self, root: Path) -> RoleRun:
        variables = role_variables(self._order.recipe)
        with self._phase("role") as began, furnished(root, self._log):
            return run_role(
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
