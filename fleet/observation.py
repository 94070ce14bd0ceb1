"""The readings of one observation: their one deadline, failing servers, and repeated GETs.

`fleet.queues.http.Reader` finds the current observation by itself, in the threads of
`fleet.apply.observe.Concurrently` too. A reading outside an observation has only its own limits.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OBSERVATION_SECONDS = 600
"""All sources of one observation together; a long Debusine list over REST takes 300."""


class Observation:
    """What the readings of one observation share."""

    def __init__(
        self,
        seconds: float = OBSERVATION_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._until = clock() + seconds
        self._answered: set[str] = set()
        self._failed: dict[str, str] = {}
        self._repeated: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def left(self) -> float:
        """Return how many seconds of the observation are left."""
        return self._until - self._clock()

    def note_answer(self, server: str) -> None:
        """Remember that a server has answered."""
        self._answered.add(server)
        self._failed.pop(server, None)

    def note_failure(self, server: str, because: str) -> None:
        """Remember that a server failed, unless it has answered in this observation."""
        if server not in self._answered:
            self._failed[server] = because

    def failure_of(self, server: str) -> str:
        """Return why a server is not asked again in this observation; "": it is."""
        return self._failed.get(server, "")

    def note_repeat(self, server: str, because: str) -> None:
        """Remember that a GET is sent again."""
        self._repeated[server][because] += 1

    def notes(self) -> tuple[str, ...]:
        """Return one line for each server that was sent a GET again."""
        return tuple(
            f"{server} was sent {_times(sum(reasons.values()))} again: "
            + ", ".join(f"{because} ({count})" for because, count in sorted(reasons.items()))
            for server, reasons in sorted(self._repeated.items())
        )


def _times(count: int) -> str:
    return "1 GET" if count == 1 else f"{count:,} GETs"


_CURRENT: ContextVar[Observation | None] = ContextVar("observation", default=None)


def current_observation() -> Observation | None:
    """Return the observation that this reading belongs to; None: it stands alone."""
    return _CURRENT.get()


@contextmanager
def observing(observation: Observation) -> Iterator[Observation]:
    """Have all readings in here, and in threads with this context, belong to an observation."""
    token = _CURRENT.set(observation)
    try:
        yield observation
    finally:
        _CURRENT.reset(token)
