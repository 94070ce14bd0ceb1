"""Publish a version at a place: list, resume, verify, mark, delete and clean in one way.

A place lists the uploads with the mark of this fleet, uploads a disk and removes an upload. It
reads each disk back before it marks the upload as whole. An upload that is not whole is resumed by
the next run, or cleaned. An upload without the mark is never changed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fleet.errors import PublicationRefused
from fleet.images.disk import disk_of
from fleet.images.programs import Tell, held
from fleet.model.images import Manifest, Publication, Rental, Upload


@dataclass(frozen=True)
class Work:
    """A build to upload."""

    manifest: Manifest
    folder: Path
    tell: Tell
    holder: str
    """Word of the lock file: an object with this word was left by a dead run."""

    @property
    def content(self) -> str:
        """Return the checksum of this version's disk.

        A version that was baked at a provider is a snapshot without a local disk: return the
        digest of its manifest.
        """
        is_there = self.manifest.way == "instance"
        return self.manifest.digest if is_there else disk_of(self.manifest)[1].sha256


class Pipeline(ABC):
    """Publisher of one fleet at one place."""

    kind: str
    """The name of the lock that the runs of one computer share."""
    place: str
    """The name of the place in messages."""
    noun = "snapshot"

    def __init__(self, fleet: str) -> None:
        self.fleet = fleet

    @abstractmethod
    def find(self, version: tuple[str, str] | None = None) -> Iterable[Upload]:
        """Return the uploads with this fleet's mark, optionally of one image and version."""

    @abstractmethod
    def upload(self, work: Work, known: Upload | None) -> tuple[Upload, Rental | None]:
        """Complete a new or the known upload; return it with the rented machine, if any."""

    @abstractmethod
    def owner(self, upload_id: str) -> str | None:
        """Return the fleet in an upload's mark; "" without a mark, None if it does not exist."""

    @abstractmethod
    def remove(self, upload_id: str) -> None:
        """Remove an upload of this fleet."""

    def clean_others(self, before: datetime) -> tuple[str, ...]:  # noqa: ARG002 - for places that rent machines
        """Remove other objects that dead runs left, and return their names."""
        return ()

    def uploads(self) -> tuple[Upload, ...]:
        """Return the uploads with this fleet's mark."""
        return tuple(sorted(self.find(), key=lambda each: (each.image, each.version)))

    def publish(self, manifest: Manifest, folder: str, tell: Tell) -> Publication:
        """Upload the disk of a version unless the place has it, and verify it."""
        with held(Path(folder).parent / f".publish-{self.kind}.lock") as holder:
            work = Work(manifest, Path(folder), tell, holder)
            found, rental = self._find_known(work), None
            if found is None or not found.whole:
                found, rental = self.upload(work, found)
        return Publication(id=found.id, at=found.since, verified=True, rental=rental)

    def delete(self, upload_id: str) -> None:
        """Delete an upload, if it exists."""
        owner = self.owner(upload_id)
        if owner is None:
            return
        if owner != self.fleet:
            raise PublicationRefused(
                f"{upload_id} at {self.place} does not carry the mark of fleet {self.fleet}"
                + (f"; it is of fleet {owner}" if owner else "")
            )
        self.remove(upload_id)

    def clean(self, before: datetime, but_for: tuple[str, str] | None = None) -> tuple[str, ...]:
        """Remove partial uploads that started before a time."""
        old = [each for each in self.uploads() if each.was_left(before, but_for)]
        for each in old:
            self.remove(each.id)
        names = (f"{self.noun} {each.id} of {each.image} {each.version}" for each in old)
        return (*names, *self.clean_others(before))

    def _find_known(self, work: Work) -> Upload | None:
        """Return the upload of this version; raises if an upload has another disk."""
        manifest, content = work.manifest, work.content
        found = [*self.find((manifest.image, manifest.version))]
        for each in found:
            if not each.sha256 or not content.startswith(each.sha256):
                raise PublicationRefused(
                    f"{each.id} at {self.place} has another disk of {manifest.image} "
                    f"{manifest.version}, of sha256 {each.sha256[:12]}…; delete it if unused"
                )
        return found[0] if found else None
