"""Stop an apply when a person or a service manager asks for it.

SIGINT (Ctrl-C) and SIGTERM end it at once while nothing is being changed, else after the steps
that were begun. A second one in the middle of a step cuts that short too.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_LONGEST_SLEEP = 0.5


class Signals:
    """Waits between runs, and hears when to end."""

    def __init__(self) -> None:
        self._asked = False
        self._changing = False
        self._cut: Callable[[], None] | None = None
        self.was_cut = False
        """Whether a step was interrupted in its middle."""

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen; afterwards signals do again what they did before."""
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        for each in before:
            signal.signal(each, self._hear)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def changing(self, cut: Callable[[], None] | None = None) -> Iterator[None]:
        """Let what is done in here come to the end of its step.

        `cut` ends it early, in good order, where somebody asks a second time; without it that
        interrupts whatever is being done.
        """
        self._changing, self._cut = True, cut
        try:
            yield
        except KeyboardInterrupt:
            self.was_cut = True
            raise
        finally:
            self._changing, self._cut = False, None

    def is_ending(self) -> bool:
        """Say whether somebody asked to end."""
        return self._asked

    def end_if_asked(self) -> None:
        """Raise KeyboardInterrupt where somebody asked to end while something was changed."""
        if self._asked:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> bool:
        """Wait that long; False, at once, where somebody asked to end before."""
        self._doze(seconds, time.sleep)
        return not self._asked

    def _doze(self, seconds: float, doze: Callable[[float], bool | None]) -> None:
        """Doze that long, until that says true, or until somebody asks to end."""
        until = time.monotonic() + seconds
        while not self._asked and (left := until - time.monotonic()) > 0:
            # A signal that arrives right before a sleep does not end it: none is long.
            if doze(min(left, _LONGEST_SLEEP)):
                return

    def _hear(self, _: int, __: FrameType | None) -> None:
        was_asked, self._asked = self._asked, True
        if self._changing and not was_asked:
            return
        if self._cut is None:
            raise KeyboardInterrupt
        self.was_cut = True
        self._cut()
