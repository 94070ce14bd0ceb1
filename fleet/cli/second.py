"""Replay what was before in a second process, while this one replays what is after.

It is forked before anything is read, and sends how long requests waited as it goes: neither side
gets far ahead of the other, so that no more of them are kept than a bounded number.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe

from fleet.errors import FleetError
from fleet.explain.simulation.figures import Pairs, Simulation
from fleet.model.facts import Unknown

_TOGETHER = 500
"""Waits that are sent at once."""
_AHEAD = 20_000
"""Waits that one side knows and the other does not yet, at most."""


class Sender:
    """The first process, seen from the second."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waits: list[tuple[str, int | None]] = []

    def waited(self, key: str, seconds: int | None) -> None:
        """Send how long a request waited."""
        self._waits.append((key, seconds))
        if len(self._waits) == _TOGETHER:
            self._flush()

    def end(self, found: Simulation | Unknown) -> None:
        """Send what it all came to."""
        self._flush()
        self._connection.send(found)

    def _flush(self) -> None:
        self._connection.send(self._waits)
        self._waits = []


class Receiver:
    """The second process, seen from the first."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._found: Simulation | Unknown | None = None
        self.pairs = Pairs()

    def waited(self, key: str, seconds: int | None) -> None:
        """Note how long a request waited here, and what the other side has sent."""
        self.pairs.add(1, key, seconds)
        while self._found is None and (
            self.pairs.alone(1) > _AHEAD
            or (self.pairs.alone(0) < _AHEAD and self._connection.poll())
        ):
            self._take()

    def found(self) -> Simulation | Unknown:
        """Await what it all came to there."""
        while self._found is None:
            self._take()
        return self._found

    def _take(self) -> None:
        try:
            said = self._connection.recv()
        except EOFError:
            raise FleetError("the process that replayed what was before was ended") from None
        if isinstance(said, list):
            for key, seconds in said:
                self.pairs.add(0, key, seconds)
        else:
            self._found = said


@contextmanager
def second_process() -> Iterator[Sender | Receiver]:
    """Go on in two processes, each of which knows the other; the second one says nothing."""
    receiving, sending = Pipe(duplex=False)
    child = os.fork()
    if not child:
        code = 1
        try:
            receiving.close()
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            yield Sender(sending)
            code = 0
        finally:
            os._exit(code)
    sending.close()
    try:
        with receiving:
            yield Receiver(receiving)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
