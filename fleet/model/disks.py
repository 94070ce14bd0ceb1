"""The disk image to upload for a version, and the progress of the upload."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from fleet.model.images import Manifest, Transfer

Tell = Callable[[Transfer], None]


class Total:
    """The progress of one phase of an upload, in bytes."""

    def __init__(
        self, tell: Tell, phase: Literal["prepare", "upload", "read back"], total: int
    ) -> None:
        self.total = total
        self._tell = tell
        self._phase = phase
        self._done = 0

    def move(self, count: int) -> None:
        """Add transferred bytes. `count` is negative when a transfer restarts."""
        self._done = max(0, min(self._done + count, self.total))
        self._tell(Transfer(phase=self._phase, done=self._done, total=self.total))


@dataclass(frozen=True)
class ImageDisk:
    """The disk of an image version, with the manifest and folder of its build."""

    manifest: Manifest
    folder: str
    content: str
    """Checksum of the disk, or the digest of the manifest for a snapshot without local disk."""
    holder: str
    """Random word in the build's lock file. It identifies the remains of killed runs."""
    raw: Callable[[], AbstractContextManager[str]]
    """Context manager that converts the disk to raw format and yields the path."""
    tell: Tell
