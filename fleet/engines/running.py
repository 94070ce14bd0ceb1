"""This module knows whether this process runs a program for an engine, and lets it run the last.

A helper that whoever started it has left must begin nothing more: others may hold the lock now.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fleet.errors import StackFailed

_LOOK_SECONDS = 0.01


class Running:
    """How many programs run, and whether another may be started."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_over = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Start and await a program; raises StackFailed where no other may be started."""
        with self._changed:
            if self._is_over:
                raise StackFailed("whoever asked for this has ended, so nothing more is begun")
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def stop(self, cancel: Callable[[], None]) -> None:
        """Let no other be started, cancel once what runs, and wait until it has ended."""
        with self._changed:
            self._is_over = True
            # One that is about to be started would not be reached.
            while self._count and not _has_child():
                self._changed.wait(_LOOK_SECONDS)
            cancel()
            self._changed.wait_for(lambda: not self._count)


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


running = Running()
"""The programs of this process."""
