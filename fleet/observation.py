"""State that all reads of one observation share: deadline, failed servers, and remarks.

An observation reads all inputs of a plan. `fleet.queues.http.Reader` uses the current one, also in
threads of `fleet.apply.observe.Concurrently`. Without one, requests have only their own limits.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OBSERVATION_SECONDS = 600
"""Time limit in seconds for all sources together; a long Debusine list over REST takes 300 s."""


class Observation:
    """The limits and results that all reads of the outside world in one observation share."""

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
        self._remarks: set[str] = set()

    def left(self) -> float:
        """Return the seconds until the deadline of this observation."""
        return self._until - self._clock()

    def note_answer(self, server: str) -> None:
        """Record that a server responded."""
        self._answered.add(server)
        self._failed.pop(server, None)

    def note_failure(self, server: str, because: str) -> None:
        """Record that a server failed, unless it already responded in this observation."""
        if server not in self._answered:
            self._failed[server] = because

    def failure_of(self, server: str) -> str:
        """Return why requests to a server are skipped; empty if the server has not failed."""
        return self._failed.get(server, "")

    def note_repeat(self, server: str, because: str) -> None:
        """Record that a GET request was repeated, with the reason."""
        self._repeated[server][because] += 1

    def add_remark(self, remark: str) -> None:
        """Record a remark by a queue or provider, for example on an incomplete list."""
        self._remarks.add(remark)

    def remarks(self) -> tuple[str, ...]:
        """Return the distinct remarks, and one remark per server with repeated GET requests."""
        repeated = (
            f"{server} was sent {_times(sum(reasons.values()))} again: "
            + ", ".join(f"{because} ({count})" for because, count in sorted(reasons.items()))
            for server, reasons in sorted(self._repeated.items())
        )
        return (*repeated, *sorted(self._remarks))


def _times(count: int) -> str:
    return "1 GET" if count == 1 else f"{count:,} GETs"


_CURRENT: ContextVar[Observation | None] = ContextVar("observation", default=None)


def current_observation() -> Observation | None:
    """Return the observation of this context; None outside of an observation."""
    return _CURRENT.get()


def remark(text: str) -> None:
    """Add a remark to the current observation; the plan and the status print it."""
    observation = current_observation()
    if observation is not None:
        observation.add_remark(text)


@contextmanager
def observing(observation: Observation) -> Iterator[Observation]:
    """Make an observation current within a block, also in threads that copy the context."""
    token = _CURRENT.set(observation)
    try:
        yield observation
    finally:
        _CURRENT.reset(token)
