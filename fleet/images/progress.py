"""This module counts the bytes of an upload for whoever watches it."""

from collections.abc import Callable
from typing import Literal

from fleet.facts.versions import Transfer

Tell = Callable[[Transfer], None]


class Total:
    """How far one phase of an upload is."""

    def __init__(
        self, tell: Tell, phase: Literal["prepare", "upload", "read back"], total: int
    ) -> None:
        self.total = total
        self._tell = tell
        self._phase = phase
        self._done = 0

    def move(self, count: int) -> None:
        """Add bytes that were moved; a try that begins anew takes some away."""
        self._done = max(0, min(self._done + count, self.total))
        self._tell(Transfer(phase=self._phase, done=self._done, total=self.total))
