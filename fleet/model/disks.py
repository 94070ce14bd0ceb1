"""The disk of a version to upload, and the progress of its upload."""

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
        """Add moved bytes; the count is negative when a transfer restarts."""
        self._done = max(0, min(self._done + count, self.total))
        self._tell(Transfer(phase=self._phase, done=self._done, total=self.total))


@dataclass(frozen=True)
class ImageDisk:
    """The disk of a version, and the folder of its build."""

    manifest: Manifest
    folder: str
    content: str
    """The checksum of the disk; of a snapshot without a local disk, the digest of its manifest."""
    holder: str
    """Word of the lock file: an object with this word was left by a dead run."""
    raw: Callable[[], AbstractContextManager[str]]
    """Opens the disk as a raw one, and returns its path."""
    tell: Tell
