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
    """A build that is to be uploaded."""

    manifest: Manifest
    folder: Path
    tell: Tell
    holder: str
    """The run: what carries the same word was left by a run that is dead."""

    @property
    def content(self) -> str:
        """Return the checksum that tells this version's disk from any other.

        What was baked at a provider is a snapshot there, and has no disk here.
        """
        is_there = self.manifest.way == "instance"
        return self.manifest.digest if is_there else disk_of(self.manifest)[1].sha256


class Pipeline(ABC):
    """Publishes for one fleet at one place: Publisher."""

    kind: str
    """The name of the lock that the runs of one computer share."""
    place: str
    """The name of the place in messages."""
    noun = "snapshot"

    def __init__(self, fleet: str) -> None:
        self.fleet = fleet

    @abstractmethod
    def find(self, version: tuple[str, str] | None = None) -> Iterable[Upload]:
        """Return the uploads with this fleet's mark, of one image and version or of all."""

    @abstractmethod
    def upload(self, work: Work, known: Upload | None) -> tuple[Upload, Rental | None]:
        """Make an upload whole, a new one or the known one; return the machine that it needed."""

    @abstractmethod
    def owner(self, upload_id: str) -> str | None:
        """Return the fleet that an upload carries the mark of; empty: none; None: it is gone."""

    @abstractmethod
    def remove(self, upload_id: str) -> None:
        """Remove an upload of this fleet."""

    def clean_others(self, before: datetime) -> tuple[str, ...]:  # noqa: ARG002 - for places that rent machines
        """Remove what else dead runs left, and return its names."""
        return ()

    def uploads(self) -> tuple[Upload, ...]:
        """Return the uploads with this fleet's mark."""
        return tuple(sorted(self.find(), key=lambda each: (each.image, each.version)))

    def publish(self, manifest: Manifest, folder: str, tell: Tell) -> Publication:
        """Have the place hold the disk of a version, read back."""
        with held(Path(folder).parent / f".publish-{self.kind}.lock") as holder:
            work = Work(manifest, Path(folder), tell, holder)
            found, rental = self._known(work), None
            if found is None or not found.whole:
                found, rental = self.upload(work, found)
        return Publication(id=found.id, at=found.since, verified=True, rental=rental)

    def delete(self, upload_id: str) -> None:
        """Delete an upload; one that is gone is fine."""
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
        """Remove partial uploads that are older than a moment."""
        old = [each for each in self.uploads() if each.was_left(before, but_for)]
        for each in old:
            self.remove(each.id)
        names = (f"{self.noun} {each.id} of {each.image} {each.version}" for each in old)
        return (*names, *self.clean_others(before))

    def _known(self, work: Work) -> Upload | None:
        """Return the upload of this version; raises where one holds another disk."""
        manifest, content = work.manifest, work.content
        found = [*self.find((manifest.image, manifest.version))]
        for each in found:
            if not each.sha256 or not content.startswith(each.sha256):
                raise PublicationRefused(
                    f"{each.id} at {self.place} has another disk of {manifest.image} "
                    f"{manifest.version}, of sha256 {each.sha256[:12]}…; delete it if unused"
                )
        return found[0] if found else None
