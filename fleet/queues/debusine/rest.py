"""This module reads what waits in Debusine over REST; it never takes silence for emptiness.

What the lists hold is compared with the server's own counts, work already given to a worker
included. REST has no list of workers, so a reading's registry is None.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fleet.errors import SourceUnreachable
from fleet.facts import Demand, QueueReading, Sample, Unknown
from fleet.schema.model import DebusineQueue

if TYPE_CHECKING:
    from fleet.queues.debusine.rows import Page, Row
    from fleet.queues.debusine.walk import Walk
    from fleet.web.reader import Reader

_LISTING = 0.6
"""Share of the time in which lists are read; what is not listed by then is counted only."""
_TURNING = _LISTING / 2
"""Share of the time after which a list that goes on is read from its other, oldest end."""
_LOOKING_AGAIN = 0.85
"""Share of the time after which no list is read any more."""


class DebusineRest:
    """The queue of one Debusine server, read with a viewer's token.

    `paths` are the places in task data that rules of `derive` look at.
    """

    def __init__(  # noqa: PLR0913 - the server, what to keep, and limits that tests shorten
        self,
        queue: DebusineQueue,
        token: str | None,
        *,
        paths: Iterable[str] = (),
        max_age: float = 300,
        silence: float = 30,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = queue.url
        self._scopes = tuple(dict.fromkeys(queue.scopes))
        self._token = token
        self._paths = tuple(paths)
        self._max_age = max_age
        self._silence = silence
        self._clock = clock

    def read(self, now: datetime) -> QueueReading:
        """Return the requests that wait without a worker, in the order Debusine serves them."""
        # httpx is slow to load, and most commands read nothing.
        from fleet.web.reader import Limits, Reader

        limits = Limits(silence=self._silence, total=self._max_age)
        try:
            with Reader(self._url, limits=limits, clock=self._clock) as reader:
                rows, sample = self._rows(reader)
        except SourceUnreachable as error:
            return QueueReading(demand=Unknown(unknown=str(error)), workers=None)
        waiting = sorted((row for row in rows if row.worker is None), key=_order)
        return QueueReading(
            demand=Demand(
                read_at=now,
                requests=tuple(row.to_request(self._paths) for row in waiting),
                stored=True,
                estimate=sample is not None,
                sample=sample,
                environments=_environments(rows),
            ),
            workers=None,
            clock_ahead=reader.clock_ahead,
        )

    def _rows(self, reader: "Reader") -> "tuple[tuple[Row, ...], Sample | None]":
        """Return what is pending in every scope, and what is known of the rest."""
        from fleet.queues.debusine.asking import Asking
        from fleet.queues.debusine.walk import walk_in_turn
        from fleet.queues.debusine.witness import count_pending

        asking = Asking(reader, self._token)
        over, late = self._deadline(reader, _LISTING), self._deadline(reader, _TURNING)
        walks = walk_in_turn(self._scopes, asking.page, over, late)
        listed = {walk.scope: len(walk.rows) for walk in walks}
        pending = count_pending(listed, asking.anyone)
        again = _Again(asking.page, self._deadline(reader, _LOOKING_AGAIN))
        unlisted = {walk.scope: again.confirm(walk, pending[walk.scope]) for walk in walks}
        rows = tuple(row for walk in walks for row in walk.rows.values())
        return rows, _sample(walks, unlisted)

    def _deadline(self, reader: "Reader", share: float) -> Callable[[], bool]:
        """Return what says whether this share of the time is over."""
        return lambda: reader.left() < self._max_age * (1 - share)


@dataclass(frozen=True)
class _Again:
    """Looks again at lists that do not hold what the server counts: a queue moves meanwhile."""

    next_page: "Callable[[Walk], Page]"
    is_over: Callable[[], bool]

    def confirm(self, walk: "Walk", pending: int) -> int:
        """Return how many requests of a scope are pending beside the listed ones.

        Raises SourceUnreachable where more is missing, or too much, than moved between two
        whole looks at the list, the server having counted in between.
        """
        from fleet.queues.debusine.walk import walk_in_turn
        from fleet.queues.debusine.witness import contradicted

        first = frozenset(walk.rows)
        if not walk.done:
            return max(1, pending - len(first))
        if len(first) == pending:
            return 0
        (second,) = walk_in_turn((walk.scope,), self.next_page, self.is_over)
        walk.rows |= second.rows
        if not second.done:
            return max(1, pending - len(walk.rows))
        moved = len(first ^ second.rows.keys())
        if abs(len(second.rows) - pending) > moved:
            raise contradicted(walk.scope, listed=len(second.rows), pending=pending)
        walk.rows = second.rows
        return 0


def _sample(walks: "Sequence[Walk]", unlisted: Mapping[str, int]) -> Sample | None:
    """Return what is known of what was not listed; None where everything was."""
    if not any(unlisted.values()):
        return None
    listed = sum(len(walk.rows) for walk in walks)
    return Sample(
        listed=listed,
        unlisted={scope: count for scope, count in sorted(unlisted.items()) if count},
        longest=listed,
    )


def _environments(rows: "Sequence[Row]") -> dict[str, dict[str, str]]:
    """Return the environments that the server has looked up; one it tells two ways is left out."""
    found: dict[str, dict[str, str]] = {}
    differing = set()
    for number, record in filter(None, (row.environment() for row in rows)):
        if found.setdefault(number, record) != record:
            differing.add(number)
    return {number: record for number, record in found.items() if number not in differing}


def _order(row: "Row") -> tuple[int, datetime, int]:
    """Return the sorting key of Debusine's scheduler: priority, then age."""
    return (-row.priority_base - row.priority_adjustment, row.created_at, row.id)
