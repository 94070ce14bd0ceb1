"""This module starts and ends the process of a helper; it loads nothing that takes a while.

A helper is a process group of its own, which the terminal's Ctrl-C does not reach. What it is told
goes through a pipe: no secret is in its arguments or a file.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Pipe

_SETTLE_STEPS = 600
_SETTLE_SECONDS = 0.1


class HelperProcess:
    """A process that is asked for one thing after the other."""

    def __init__(self, command: Sequence[str]) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                [*command, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.is_asked = False
        """Whether it was asked for anything; before that it has begun nothing."""

    @property
    def is_alive(self) -> bool:
        """Say whether it can be asked for more."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int:
        """Return how it ended; below zero the signal that killed it."""
        return self._process.wait()

    def interrupt(self) -> None:
        """Have it cancel what it does, in good order; a second time at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> None:
        """Have it end, and wait for that and for what it started."""
        if self.connection.closed:
            return
        self.connection.close()
        if not self.is_asked:
            self._process.kill()
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr] # it is a pipe
        self._process.wait()
        # Where it was killed, the CLI that it started goes on until it is told.
        self.interrupt()
        never = threading.Event()
        for _ in range(_SETTLE_STEPS):
            self._reap()
            try:
                os.killpg(self._process.pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            never.wait(_SETTLE_SECONDS)

    def _reap(self) -> None:
        """Take away what ended after it: nobody else does where we are a container's init."""
        with suppress(ChildProcessError):
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass
