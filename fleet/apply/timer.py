"""This module waits between two runs, and no longer than until somebody rings."""

import threading
import time

from fleet.apply.signals import Signals

_IN_A_ROW = 5
"""How many runs may follow each other at once: whoever rings seldom waits for nothing."""


class WakeableTimer(Signals):
    """A waiter that is woken, from any thread; runs begin `apart` seconds apart on average."""

    def __init__(self, apart: float) -> None:
        super().__init__()
        self._apart = apart
        self._rung = threading.Event()
        self._began = time.monotonic()
        self._due = self._began + apart
        """When the next run would begin if all of them had kept apart."""
        self._again = False

    def ring(self) -> None:
        """Have the next run begin as soon as it may."""
        self._rung.set()

    def look_again(self) -> None:
        """Have the next run begin so much apart from this one, although nobody rings."""
        self._again = True

    def wait(self, seconds: float) -> bool:
        """Wait that long or until somebody rings; False, at once, where somebody asked to end."""
        now = time.monotonic()
        if self._again:
            seconds = min(seconds, max(self._began + self._apart - now, 0))
        early = min(max(self._due - _IN_A_ROW * self._apart - now, 0), seconds)
        self._doze(early, time.sleep)
        self._doze(seconds - early, self._rung.wait)
        # What rings from here on is for the run after the next.
        self._rung.clear()
        self._again = False
        self._began = time.monotonic()
        self._due = max(self._due, self._began) + self._apart
        return not self.is_ending()
