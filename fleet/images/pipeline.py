"""Publish a version to a provider or store: list, resume, verify, delete and clean uploads.

A place lists the uploads with the mark of this fleet, uploads a disk and removes an upload. It
reads an uploaded disk back before it marks the upload as whole. The next run resumes an upload
that is not whole, or a clean-up removes it. Uploads without the mark are never changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from fleet.errors import PublicationRefused
from fleet.images.disk import disk_of, raw_disk
from fleet.images.programs import held
from fleet.model.disks import ImageDisk, Tell
from fleet.model.images import Manifest, Publication, Upload
from fleet.ports import Publisher


class Pipeline:
    """Publisher of a fleet's image versions at one provider or store."""

    def __init__(self, place: Publisher) -> None:
        self._at = place

    def uploads(self) -> tuple[Upload, ...]:
        """Return the uploads that are marked as uploads of this fleet."""
        return tuple(sorted(self._at.find(), key=lambda each: (each.image, each.version)))

    def publish(self, manifest: Manifest, folder: str, tell: Tell) -> Publication:
        """Upload the disk of a version and verify it, unless a verified upload exists."""
        with held(Path(folder).parent / f".publish-{self._at.kind}.lock") as holder:
            raw = partial(_raw_path, manifest, Path(folder))
            disk = ImageDisk(manifest, folder, content_of(manifest), holder, raw, tell)
            found, rental = self._find_known(disk), None
            if found is None or not found.whole:
                found, rental = self._at.upload(disk, found)
        return Publication(id=found.id, at=found.since, verified=True, rental=rental)

    def delete(self, upload_id: str) -> None:
        """Delete an upload, if it exists; raises PublicationRefused if another fleet owns it."""
        owner = self._at.owner(upload_id)
        if owner is None:
            return
        if owner != self._at.fleet:
            raise PublicationRefused(
                f"{upload_id} at {self._at.place} does not carry the mark of fleet "
                f"{self._at.fleet}" + (f"; it is of fleet {owner}" if owner else "")
            )
        self._at.remove(upload_id)

    def clean(self, before: datetime, but_for: tuple[str, str] | None = None) -> tuple[str, ...]:
        """Remove partial uploads that started before a time; return a description of each."""
        old = [each for each in self.uploads() if each.was_left(before, but_for)]
        for each in old:
            self._at.remove(each.id)
        names = (f"{self._at.noun} {each.id} of {each.image} {each.version}" for each in old)
        return (*names, *self._at.clean_others(before))

    def _find_known(self, disk: ImageDisk) -> Upload | None:
        """Return the upload of this version or None; raises if the upload has another disk."""
        manifest, content = disk.manifest, disk.content
        found = [*self._at.find((manifest.image, manifest.version))]
        for each in found:
            if not each.sha256 or not content.startswith(each.sha256):
                raise PublicationRefused(
                    f"{each.id} at {self._at.place} has another disk of {manifest.image} "
                    f"{manifest.version}, of sha256 {each.sha256[:12]}…; delete it if unused"
                )
        return found[0] if found else None


def content_of(manifest: Manifest) -> str:
    """Return the checksum of a version's disk.

    A version that was baked at a provider has no local disk: return the digest of its manifest.
    """
    return manifest.digest if manifest.way == "instance" else disk_of(manifest)[1].sha256


@contextmanager
def _raw_path(manifest: Manifest, folder: Path) -> Iterator[str]:
    with raw_disk(manifest, folder) as raw:
        yield str(raw)
