"""This module publishes versions of images to a store: a directory, or S3.

Below the store's address each version has a folder, IMAGE/VERSION/, with the files of its build,
SHA256SUMS, and the mark, `fleet.json`. The mark is written first and says "partial"; it says
"whole" only after every file was read back.
"""

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.errors import PublicationRefused
from fleet.facts.manifest import File, Manifest
from fleet.facts.versions import Publication, Upload
from fleet.images.disks import disk_of
from fleet.images.folder import MANIFEST
from fleet.images.progress import Tell, Total

MARK = "fleet.json"
SUMS = "SHA256SUMS"
_SMALL = 64 * 1024


class Shelf(Protocol):
    """A place with files, by key, as in IMAGE/VERSION/NAME; each raises a FleetError."""

    place: str
    """Its URL, without credentials."""

    def reach(self) -> None:
        """Raise where the place itself is not there: what it holds is not known then."""

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, sorted; none where nothing was ever published."""

    def read(self, key: str, limit: int) -> bytes | None:
        """Return a small file; None where there is none."""

    def write(self, key: str, content: bytes) -> None:
        """Write a small file, whole or not at all."""

    def put(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        """Write a large file, going on where an earlier try of the same content ended."""

    def sha256(self, key: str, moved: Callable[[int], None]) -> str:
        """Return the checksum of a file, read back; empty where there is none."""

    def remove(self, prefix: str) -> None:
        """Remove every file whose key begins so, and what is left of unfinished ones."""


class _Mark(BaseModel):
    """Whose a folder is, and what it is to hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fleet: str
    image: str
    version: str
    sha256: str
    state: Literal["partial", "whole"]
    at: datetime


def _key(mark: _Mark) -> str:
    """Return where a mark belongs; a copy of its folder elsewhere is not fleet's."""
    return f"{mark.image}/{mark.version}/{MARK}"


def _utc_now() -> datetime:
    return datetime.now(UTC)


class StorePublisher:
    """One store: Publisher."""

    def __init__(
        self, shelf: Shelf, fleet: str, *, now: Callable[[], datetime] = _utc_now
    ) -> None:
        self._shelf = shelf
        self._fleet = fleet
        self._now = now

    def uploads(self) -> tuple[Upload, ...]:
        """Return every folder that carries this fleet's mark, in its own place: no copy."""
        keys = [key for key in self._shelf.keys("") if key.endswith(f"/{MARK}")]
        marks = ((key, self._mark(key)) for key in keys)
        found = (
            self._upload(mark)
            for key, mark in marks
            if mark and mark.fleet == self._fleet and key == _key(mark)
        )
        return tuple(sorted(found, key=lambda each: (each.image, each.version)))

    def publish(self, manifest: Manifest, folder: str, tell: Tell) -> Publication:
        """Write the folder of a version, read every file back and mark it as whole."""
        disk, file = disk_of(manifest)
        wanted = _Mark(
            fleet=self._fleet,
            image=manifest.image,
            version=manifest.version,
            sha256=file.sha256,
            state="partial",
            at=self._now(),
        )
        before = f"{manifest.image}/{manifest.version}/"
        # In this order: one who publishes the same at once writes the mark first.
        there = [key for key in self._shelf.keys(before) if "/." not in key]
        found = self._mark(before + MARK)
        if found is None and there:
            raise PublicationRefused(
                f"{self._shelf.place}/{before} holds files without the mark {MARK}, so it is not "
                "fleet's; move them away"
            )
        if found and (found.fleet, found.sha256) != (wanted.fleet, wanted.sha256):
            raise PublicationRefused(
                f"{self._shelf.place}/{before} holds another disk, of fleet {found.fleet} with "
                f"sha256 {found.sha256[:12]}…; delete that folder if nothing uses it"
            )
        if found is None or found.state == "partial":
            self._write(wanted, manifest, Path(folder), tell)
            found = wanted
        return Publication(id=self._address(found, disk), at=found.at, verified=True)

    def delete(self, upload_id: str) -> None:
        """Remove the folder that an upload is in; its mark goes last."""
        key = upload_id.removeprefix(f"{self._shelf.place}/")
        before, _, name = key.rpartition("/")
        if not before or not name or key == upload_id:
            return
        self._shelf.reach()
        mark = self._mark(f"{before}/{MARK}")
        if mark is None:
            return
        if mark.fleet != self._fleet:
            raise PublicationRefused(f"{upload_id} is of fleet {mark.fleet}, not {self._fleet}")
        self._remove(f"{before}/")

    def clean(self, before: datetime, but_for: tuple[str, str] | None = None) -> tuple[str, ...]:
        """Remove folders that are not whole and were begun before a moment."""
        old = [each for each in self.uploads() if each.was_left(before, but_for)]
        for each in old:
            self._remove(f"{each.image}/{each.version}/")
        return tuple(f"{self._shelf.place}/{each.image}/{each.version}" for each in old)

    def _write(self, mark: _Mark, manifest: Manifest, folder: Path, tell: Tell) -> None:
        before = f"{mark.image}/{mark.version}/"
        own = manifest.model_dump_json(indent=1).encode()
        files = dict(manifest.files)
        self._note(mark)
        upload = Total(tell, "upload", sum(each.size for each in files.values()))
        for name in sorted(files):
            self._shelf.put(before + name, folder / name, upload.move)
        self._shelf.write(before + MANIFEST, own)
        sums = dict(_sums(files)) | {MANIFEST: _sha256(own)}
        lines = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
        self._shelf.write(before + SUMS, lines.encode())
        back = Total(tell, "read back", upload.total + len(own))
        for name in sorted(sums):
            if (seen := self._shelf.sha256(before + name, back.move)) != sums[name]:
                # What is there would be gone on with by the next run as if it were right.
                self._remove(before)
                raise PublicationRefused(
                    f"{self._shelf.place}/{before}{name} has sha256 {seen or 'none'} where "
                    f"{sums[name]} was written; does the file in {folder} still match its "
                    "manifest? The upload was removed"
                )
        self._note(mark.model_copy(update={"state": "whole"}))

    def _remove(self, before: str) -> None:
        for key in self._shelf.keys(before):
            if key != before + MARK:
                self._shelf.remove(key)
        self._shelf.remove(before)

    def _note(self, mark: _Mark) -> None:
        content = mark.model_dump_json(indent=1).encode()
        self._shelf.write(_key(mark), content)

    def _mark(self, key: str) -> _Mark | None:
        content = self._shelf.read(key, _SMALL)
        if content is None:
            return None
        try:
            return _Mark.model_validate_json(content)
        except ValidationError as error:
            raise PublicationRefused(
                f"{self._shelf.place}/{key} is no mark of fleet; move it away"
            ) from error

    def _upload(self, mark: _Mark) -> Upload:
        keys = self._shelf.keys(f"{mark.image}/{mark.version}/")
        disk = next((key.rpartition("/")[2] for key in keys if "/disk." in key), "disk.qcow2")
        return Upload(
            id=self._address(mark, disk),
            image=mark.image,
            version=mark.version,
            sha256=mark.sha256,
            whole=mark.state == "whole",
            since=mark.at,
        )

    def _address(self, mark: _Mark, disk: str) -> str:
        return f"{self._shelf.place}/{mark.image}/{mark.version}/{disk}"


def _sums(files: dict[str, File]) -> Iterator[tuple[str, str]]:
    return ((name, each.sha256) for name, each in files.items())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
