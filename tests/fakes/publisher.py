"""A fake of the port Publisher: a store in memory."""

import threading
from datetime import datetime
from pathlib import Path

from fleet.errors import PublicationRefused
from fleet.images.disk import disk_of
from fleet.images.programs import Tell, Total
from fleet.model.images import Manifest, Publication, Upload
from tests.builders import NOW

_PIECE = 1 << 20


class Account:
    """What several fake publishers share: uploads by fleet, and their content."""

    def __init__(self) -> None:
        self.uploads: dict[tuple[str, str, str], Upload] = {}
        self.content: dict[str, bytearray] = {}
        self.lock = threading.RLock()


class FakePublisher:
    """One fleet's view of an account."""

    def __init__(self, account: Account, fleet: str, now: datetime = NOW) -> None:
        self._account = account
        self._fleet = fleet
        self._now = now

    def uploads(self) -> tuple[Upload, ...]:
        found = self._account.uploads.items()
        return tuple(each for (fleet, _, _), each in sorted(found) if fleet == self._fleet)

    def publish(self, manifest: Manifest, folder: str, tell: Tell) -> Publication:
        name, file = disk_of(manifest)
        key = (self._fleet, manifest.image, manifest.version)
        with self._account.lock:
            upload = self._account.uploads.get(key) or Upload(
                id=f"made-up-{len(self._account.uploads) + 1}",
                image=manifest.image,
                version=manifest.version,
                sha256=file.sha256,
                whole=False,
                since=self._now,
            )
            if upload.sha256 != file.sha256:
                raise PublicationRefused(f"{upload.id} holds another disk")
            if not upload.whole:
                self._account.uploads[key] = upload
                self._move(upload, (Path(folder) / name).read_bytes(), tell)
                self._account.uploads[key] = upload.altered(whole=True)
        return Publication(id=upload.id, at=upload.since, verified=True)

    def delete(self, upload_id: str) -> None:
        found = [key for key, each in self._account.uploads.items() if each.id == upload_id]
        for key in found:
            if key[0] != self._fleet:
                raise PublicationRefused(f"{upload_id} is of fleet {key[0]}")
            del self._account.uploads[key]

    def clean(self, before: datetime, but_for: tuple[str, str] | None = None) -> tuple[str, ...]:
        old = [each for each in self.uploads() if each.was_left(before, but_for)]
        for each in old:
            self.delete(each.id)
        return tuple(each.id for each in old)

    def _move(self, upload: Upload, content: bytes, tell: Tell) -> None:
        there = self._account.content.setdefault(upload.id, bytearray())
        moved = Total(tell, "upload", len(content))
        moved.move(len(there))
        while piece := content[len(there) : len(there) + _PIECE]:
            there += piece
            moved.move(len(piece))
        Total(tell, "read back", len(content)).move(len(content))
