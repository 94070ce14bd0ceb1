"""Share a replay with a second process, forked before anything is read.

Where two sides are compared it replays what was before, and sends how long requests waited as it
goes: neither side gets far ahead of the other, so that no more of them are kept than a bounded
number. Where there is one side it reads for it.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from fleet.errors import FleetError
from fleet.explain.simulation.figures import Pairs, Simulation
from fleet.explain.simulation.replay import Told
from fleet.model.facts import Unknown

First = TypeVar("First")
Second = TypeVar("Second")

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
        said = _received(self._connection, "replayed what was before")
        if isinstance(said, list):
            for key, seconds in said:
                self.pairs.add(0, key, seconds)
        else:
            self._found = said


class Reader:
    """The first process, seen from the second, which reads for it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def tell(self, told: Iterator[Told]) -> None:
        """Send all of it; an error goes to the first process too."""
        try:
            while some := list(islice(told, _TOGETHER)):
                self._connection.send(some)
            self._connection.send([])
        except (FleetError, OSError) as error:
            self._connection.send(error)
        except Exception as error:  # noqa: BLE001 - this process cannot say it
            self._connection.send(FleetError(f"the history could not be read: {error!r}"))


class Listener:
    """The second process, seen from the first, for which it reads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def told(self) -> Iterator[Told]:
        """Yield what it reads."""
        while some := _received(self._connection, "read the history"):
            if isinstance(some, Exception):
                raise some
            yield from some


def _received(connection: Connection, task: str) -> Any:  # noqa: ANN401 - what the other sends
    try:
        return connection.recv()
    except EOFError:
        raise FleetError(f"the process that {task} was ended") from None


def second_process() -> AbstractContextManager[Sender | Receiver]:
    """Go on in two processes that replay one side each."""
    return _forked(Sender, Receiver)


def reading_process() -> AbstractContextManager[Reader | Listener]:
    """Go on in two processes, of which the second reads what the first replays."""
    return _forked(Reader, Listener)


@contextmanager
def _forked(
    second: Callable[[Connection], Second], first: Callable[[Connection], First]
) -> Iterator[Second | First]:
    """Go on in two processes, each of which knows the other; the second one says nothing."""
    receiving, sending = Pipe(duplex=False)
    child = os.fork()
    if not child:
        code = 1
        try:
            receiving.close()
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            yield second(sending)
            code = 0
        finally:
            os._exit(code)
    sending.close()
    try:
        with receiving:
            yield first(receiving)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
