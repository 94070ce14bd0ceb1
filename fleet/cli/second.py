"""Share a replay with processes that are forked before anything is read.

One reads the history. Where two sides are compared another one replays what was before, and passes
on what it receives, with how long requests waited there: neither side gets far ahead of the other.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from fleet.errors import FleetError
from fleet.explain.simulation.figures import Pairs, Simulation
from fleet.explain.simulation.replay import Told
from fleet.model.facts import Unknown

First = TypeVar("First")
Second = TypeVar("Second")

_TOGETHER = 2000
"""Events that are sent at once: both sides wait for each other at each of these."""


class Reader:
    """Who listens, seen from the process that reads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def tell(self, told: Iterator[Told]) -> None:
        """Send all of it."""
        while some := list(islice(told, _TOGETHER)):
            self._connection.send(some)
        self._connection.send([])


class Listener:
    """The process that reads, seen from who replays."""

    task = "reads the history"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def told(self) -> Iterator[Told]:
        """Yield what it reads."""
        while some := self.received():
            yield from some

    def received(self) -> Any:  # noqa: ANN401 - what the other sends
        """Return what it sends next; raises an error that it sends."""
        try:
            said = self._connection.recv()
        except EOFError:
            raise FleetError(f"the process that {self.task} was ended") from None
        if isinstance(said, Exception):
            raise said
        return said


class Sender:
    """The first process, seen from the one that replays what was before."""

    def __init__(self, listener: Listener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._waits: list[tuple[str, int | None]] = []

    def told(self) -> Iterator[Told]:
        """Yield what is read, once it is passed on."""
        while some := self._passed_on():
            yield from some

    def waited(self, key: str, seconds: int | None) -> None:
        """Note how long a request waited, to be sent before what is read next."""
        self._waits.append((key, seconds))

    def end(self, found: Simulation | Unknown) -> None:
        """Send what it all came to."""
        self._flush()
        self._connection.send(found)

    def _passed_on(self) -> list[Told]:
        some: list[Told] = self._listener.received()
        self._flush()
        self._connection.send(some)
        return some

    def _flush(self) -> None:
        self._connection.send(tuple(self._waits))
        self._waits = []


class Receiver(Listener):
    """The process that replays what was before, seen from the first."""

    task = "replays what was before"

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.pairs = Pairs()

    def waited(self, key: str, seconds: int | None) -> None:
        """Note how long a request waited here."""
        self.pairs.add(1, key, seconds)

    def received(self) -> Any:  # noqa: ANN401 - what the other sends
        """Return what it sends next, and note how long requests waited there."""
        while isinstance(said := super().received(), tuple):
            for key, seconds in said:
                self.pairs.add(0, key, seconds)
        return said

    def found(self) -> Simulation | Unknown:
        """Await what it all came to there."""
        found: Simulation | Unknown = self.received()
        return found


@contextmanager
def processes(*, compared: bool) -> Iterator[Reader | Listener | Sender | Receiver]:
    """Go on in a process that reads and in one that replays, or in two that replay a side each."""
    with _forked(Reader, Listener) as other:
        if compared and isinstance(other, Listener):
            with _forked(partial(Sender, other), Receiver) as second:
                yield second
        else:
            yield other


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
        except (FleetError, OSError) as error:
            sending.send(error)
        except Exception as error:  # noqa: BLE001 - this process cannot say it
            sending.send(FleetError(f"a second process failed: {error!r}"))
        finally:
            os._exit(code)
    sending.close()
    try:
        with receiving:
            yield first(receiving)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
