"""Tell the time, and wait between two runs until somebody wakes the timer."""

import threading
import time
from datetime import UTC, datetime

from fleet.apply.signals import Signals

_IN_A_ROW = 5
"""How many runs may follow each other at once: whoever wakes it seldom waits for nothing."""


class SystemClock:
    """The computer's clock."""

    def now(self) -> datetime:
        """Return the present moment, in UTC."""
        return datetime.now(UTC)


class WakeableTimer(Signals):
    """A waiter that is woken, from any thread; runs begin `apart` seconds apart on average."""

    def __init__(self, apart: float) -> None:
        super().__init__()
        self._apart = apart
        self._woken = threading.Event()
        self._began = time.monotonic()
        self._due = self._began + apart
        """When the next run would begin if all of them had kept apart."""
        self._again = False

    def wake(self) -> None:
        """Have the next run begin as soon as it may."""
        self._woken.set()

    def look_again(self) -> None:
        """Have the next run begin so much apart from this one, although nobody wakes it."""
        self._again = True

    def wait(self, seconds: float) -> bool:
        """Wait that long or until woken; False, at once, where somebody asked to end."""
        now = time.monotonic()
        if self._again:
            seconds = min(seconds, max(self._began + self._apart - now, 0))
        early = min(max(self._due - _IN_A_ROW * self._apart - now, 0), seconds)
        self._doze(early, time.sleep)
        self._doze(seconds - early, self._woken.wait)
        # What wakes it from here on is for the run after the next.
        self._woken.clear()
        self._again = False
        self._began = time.monotonic()
        self._due = max(self._due, self._began) + self._apart
        return not self.is_ending()
