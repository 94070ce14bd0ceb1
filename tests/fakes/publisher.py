"""A fake of the port Publisher: a store in memory."""

import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fleet.images.disk import disk_of
from fleet.model.images import ImageDisk, Tell, Total, Upload
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

    kind, place, noun = "fake", "a made-up place", "upload"

    def __init__(self, account: Account, fleet: str, now: datetime = NOW) -> None:
        self._account = account
        self._fleet = fleet
        self._now = now

    @property
    def fleet(self) -> str:
        return self._fleet

    def find(self, version: tuple[str, str] | None = None) -> Iterator[Upload]:
        for (fleet, _, _), each in sorted(self._account.uploads.items()):
            if fleet == self._fleet and version in (None, (each.image, each.version)):
                yield each

    def upload(self, disk: ImageDisk, known: Upload | None) -> tuple[Upload, None]:
        manifest = disk.manifest
        name, _ = disk_of(manifest)
        key = (self._fleet, manifest.image, manifest.version)
        with self._account.lock:
            upload = known or Upload(
                id=f"made-up-{len(self._account.uploads) + 1}",
                image=manifest.image,
                version=manifest.version,
                sha256=disk.content,
                whole=False,
                since=self._now,
            )
            self._account.uploads[key] = upload
            self._move(upload, Path(disk.folder, name).read_bytes(), disk.tell)
            self._account.uploads[key] = whole = upload.altered(whole=True)
        return whole, None

    def owner(self, upload_id: str) -> str | None:
        found = [key for key, each in self._account.uploads.items() if each.id == upload_id]
        return found[0][0] if found else None

    def remove(self, upload_id: str) -> None:
        for key, each in [*self._account.uploads.items()]:
            if each.id == upload_id:
                del self._account.uploads[key]

    def clean_others(self, before: datetime) -> tuple[str, ...]:  # noqa: ARG002 - it rents nothing
        return ()

    def _move(self, upload: Upload, content: bytes, tell: Tell) -> None:
        there = self._account.content.setdefault(upload.id, bytearray())
        moved = Total(tell, "upload", len(content))
        moved.move(len(there))
        while piece := content[len(there) : len(there) + _PIECE]:
            there += piece
            moved.move(len(piece))
        Total(tell, "read back", len(content)).move(len(content))
