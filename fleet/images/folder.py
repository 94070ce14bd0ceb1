"""Keep builds in folders, `IMAGES/IMAGE/VERSION/`, each with its manifest.

A folder with that name is complete, because fleet writes the folder under a name with a leading
dot and renames it. Readers verify files against the manifest: a power failure may truncate files.
"""

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from fleet.errors import FileUnreadable, touching
from fleet.images.packages import sbom_of
from fleet.images.programs import held
from fleet.images.records import BuildOrder, BuildStep
from fleet.model.images import Manifest, ManifestFile, Package, recipe_digest
from fleet.model.values import digest, first_mistake
from fleet.schema.pools import ImageRecipe
from fleet.state.files import replace_file

MANIFEST = "manifest.json"
QCOW2 = "disk.qcow2"
RAW = "disk.raw"
SBOM = "sbom.spdx.json"
LOG = "build.log"
CONSOLE = "console.log"
_VERSION = re.compile(r"\d{8}T\d{6}Z")


def version_at(moment: datetime, taken: Collection[str] = ()) -> str:
    """Return the version of a build that starts at a time, as in 20261121T203000Z.

    If that version is in `taken`, return the version of the next free second.
    """
    while (version := moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")) in taken:
        moment += timedelta(seconds=1)
    return version


def list_versions(images: Path, image: str) -> tuple[str, ...]:
    """Return the built versions of an image, the oldest first.

    Raises FileUnreadable if the folder cannot be read.
    """
    place, names = images / image, list[str]()
    with touching(place, FileUnreadable), suppress(FileNotFoundError):
        names = sorted(path.name for path in place.iterdir())
    return tuple(filter(_VERSION.fullmatch, names))


def find_build(images: Path, image: str, version: str) -> tuple[Path, Manifest]:
    """Return folder and manifest of a build; if absent, FileUnreadable lists existing builds."""
    folder = images / image / version
    if not _VERSION.fullmatch(version) or not folder.is_dir():
        known = ", ".join(list_versions(images, image)) or "none"
        raise FileUnreadable(
            f"{images / image} has no version {version}; it has: {known}; "
            f"build one with `fleet image build {image}`"
        )
    return folder, read_manifest(folder)


def finish_build(partial: Path, manifest: Manifest) -> tuple[Path, Manifest]:
    """Write the manifest with all files, and rename the folder; return new folder and manifest."""
    names = sorted(path.name for path in partial.iterdir() if path.name != MANIFEST)
    files = {name: measure(partial / name) for name in names}
    whole = manifest.altered(files=files)
    write_manifest(partial, whole)
    final = partial.with_name(whole.version)
    with touching(final, FileUnreadable):
        partial.rename(final)
    return final, whole


Tell = Callable[[BuildStep], None]


@dataclass(frozen=True)
class Draft:
    """An unfinished build of an image version: its folder, its log, and the seconds per phase."""

    order: BuildOrder
    folder: Path
    log: Path
    tell: Tell
    holder: str
    """Word in the lock file. It identifies the machines of killed builds on this computer."""
    began: float = field(default_factory=time.monotonic)
    said: list[tuple[str, float]] = field(default_factory=list)
    """Phase of each message, and seconds since the start of the build."""

    def say(self, phase: str, task: str = "") -> None:
        """Report and log a phase, or a task of a phase. A phase lasts until the next one."""
        seconds = time.monotonic() - self.began
        self.said.append((phase, seconds))
        self.note(f"{seconds:8.1f} s  {phase}{f': {task}' if task else ''}\n")
        self.tell(BuildStep(phase=phase, task=task, seconds=seconds))

    def measure_phases(self) -> dict[str, float]:
        """Return the seconds of each phase until now."""
        seconds: dict[str, float] = {}
        for (phase, start), (_, end) in pairwise(
            (*self.said, ("", time.monotonic() - self.began))
        ):
            seconds[phase] = round(seconds.get(phase, 0.0) + end - start, 3)
        return seconds

    def note(self, text: str) -> None:
        """Append a text to the log."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(text)

    def finish(self, manifest: Manifest) -> Manifest:
        """Finish the version: move its log, and write an SBOM if all packages have sources."""
        if all(each.source for each in manifest.packages):
            (self.folder / SBOM).write_text(sbom_of(manifest), encoding="utf-8")
        self.log.rename(self.folder / LOG)
        return finish_build(self.folder, manifest.altered(seconds=self.measure_phases()))[1]


@contextmanager
def drafting(
    images: Path, order: BuildOrder, tell: Tell, clean: Callable[[], object] = lambda: None
) -> Iterator[Draft]:
    """Lock the builds of an image, and yield a draft. Delete an unfinished draft at the end.

    Delete files of killed builds first. `clean` deletes files that have other owners.
    """
    place = images / order.image

    def tidy() -> None:
        clean()
        for left in place.glob(".*.partial"):
            shutil.rmtree(left, ignore_errors=True)

    busy = f"image {place.name} is being built already, by {{}}; wait for that build, or end it"
    with held(place / ".lock", busy=busy) as holder:
        tidy()
        partial = place / f".{order.version}.partial"
        partial.mkdir()
        # If the build fails, its log remains there.
        log = place / f"{order.version}.log"
        try:
            yield Draft(order, partial, log, tell, holder)
        finally:
            tidy()


def delete_build(images: Path, image: str, version: str) -> None:
    """Delete the folder of a build, if the folder exists."""
    folder = images / image / version
    with touching(folder, FileUnreadable), suppress(FileNotFoundError):
        shutil.rmtree(folder)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a build; raises FileUnreadable if missing or invalid."""
    path = folder / MANIFEST
    with touching(path, FileUnreadable):
        content = path.read_bytes()
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise FileUnreadable(f"{path} is no manifest: {first_mistake(error, 'it')}") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a build atomically."""
    text = manifest.model_dump_json(indent=2) + "\n"
    with touching(folder / MANIFEST, FileUnreadable):
        replace_file(folder / MANIFEST, text.encode(), mode=0o644)


def measure(path: Path) -> ManifestFile:
    """Return the size and the checksum of a file."""
    with touching(path, FileUnreadable), path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256")
        return ManifestFile(sha256=checksum.hexdigest(), size=file.tell())


def verify(folder: Path, manifest: Manifest, names: Iterable[str] | None = None) -> None:
    """Verify the named files of a build, or all files; raises FileUnreadable if a file differs."""
    for name in manifest.files if names is None else names:
        expected = manifest.files.get(name)
        if expected is None:
            raise FileUnreadable(
                f"{folder / MANIFEST} lacks {name}; it lists {', '.join(manifest.files)}"
            )
        found = measure(folder / name)
        if found != expected:
            raise FileUnreadable(
                f"{folder / name} is not what was built: {found.size} bytes of SHA-256 "
                f"{found.sha256[:12]}…, {MANIFEST} says {expected.size} of "
                f"{expected.sha256[:12]}…; delete {folder} and build again"
            )


def manifest_of(
    order: BuildOrder,
    way: Literal["disk", "instance", "debusine"],
    packages: tuple[Package, ...],
    suite: str = "",
) -> Manifest:
    """Return the manifest of a build, without its files and durations.

    `suite` is the suite of the machine, for recipes that have no suite.
    """
    recipe, role = recipe_digest(order.recipe), order.role_digest
    versions = [[each.name, each.version, each.architecture] for each in packages]
    return Manifest(
        image=order.image,
        version=order.version,
        way=way,
        suite=order.recipe.suite if isinstance(order.recipe, ImageRecipe) else suite,
        architecture=order.recipe.architecture,
        recipe_digest=recipe,
        role_digest=role,
        digest=digest([recipe, role, versions]),
        built_at=order.built_at,
        built_by=order.built_by,
        commit=order.commit,
        seconds={},
        packages=packages,
    )
