"""The recent history of a fleet: one sample of each plan, and samples folded into equal slots.

A sample stands until the next one, but not for longer than `HOLDS` times `cadence`: where runs
stopped, the time is unknown. So is what a run could not read; neither counts as zero.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.model.history import NANO, Figures, Sample
from fleet.model.plan import NotKnown, Plan, PoolVerdict
from fleet.schema.model import Fleet

HOLDS = 3
"""So many times `cadence` a sample stands at most: runs that are later have stopped."""


def sample_of(fleet: Fleet, plan: Plan) -> Sample:
    """Return what a plan saw of each pool and of the whole fleet, before its changes."""
    unsure = {*plan.unread, *(each.queue for each in plan.estimates)}
    waiting: Counter[str] = Counter()
    for signature in plan.signatures:
        waiting.update(dict.fromkeys(signature.pools, signature.count))
    pools = {
        verdict.pool: _figures(
            verdict, None if unsure & _served(fleet, verdict.pool) else waiting[verdict.pool]
        )
        for verdict in plan.pools
    }
    total = None if unsure else sum(signature.count for signature in plan.signatures)
    columns = list(zip(*pools.values(), strict=True)) or [()] * len(Figures._fields)
    return Sample(
        at=plan.time,
        fleet=Figures(*map(_sum, columns))._replace(waiting=total),
        pools=pools,
    )


def _served(fleet: Fleet, pool: str) -> set[str]:
    found = fleet.pools.get(pool)
    if found is None:
        return set()
    return set(fleet.queues if found.serves is None else found.serves)


def _figures(verdict: PoolVerdict, waiting: int | None) -> Figures:
    def known(what: NotKnown, figure: int) -> int | None:
        return None if what in verdict.not_known else figure

    return Figures(
        busy=known("workers", verdict.busy),
        idle=known("workers", verdict.idle),
        starting=known("workers", verdict.starting),
        other=known("machines", verdict.other),
        waiting=waiting,
        nanos=known("cost", int(verdict.cost_before * NANO)),
    )


def _sum(figures: Sequence[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None


class Slot(NamedTuple):
    """Figures of a length of time: averages of what is known, and the most that waited.

    None: unknown in all of it.
    """

    start: datetime
    busy: float | None
    idle: float | None
    starting: float | None
    other: float | None
    waiting: int | None
    rate: float | None
    """Money per hour."""


class Span(NamedTuple):
    """Slots of one length that cover a time, and for how long a sample stands."""

    start: datetime
    length: timedelta
    slots: int
    hold: timedelta

    @property
    def end(self) -> datetime:
        """Return when the last slot ends."""
        return self.start + self.length * self.slots


def span_of(fleet: Fleet, now: datetime, *, days: int, length: timedelta) -> Span:
    """Return the slots of the last days up to now; they begin at multiples of their length."""
    begin = now - timedelta(days=days)
    start = begin - (begin - datetime.min.replace(tzinfo=begin.tzinfo)) % length
    slots = -((start - now) // length)
    return Span(start, length, slots, HOLDS * timedelta(seconds=fleet.cadence))


def fold(samples: Sequence[tuple[datetime, Figures]], span: Span) -> tuple[Slot, ...]:
    """Return the slots of samples, which are sorted by time."""
    sums = [[0.0] * len(Figures._fields) for _ in range(span.slots)]
    known = [[0.0] * len(Figures._fields) for _ in range(span.slots)]
    most: list[int | None] = [None] * span.slots
    for nth, seconds, figures in _pieces(samples, span):
        for column, figure in enumerate(figures):
            if figure is not None:
                sums[nth][column] += seconds * figure
                known[nth][column] += seconds
        if figures.waiting is not None:
            most[nth] = max(most[nth] or 0, figures.waiting)
    return tuple(
        _slot(span.start + nth * span.length, sums[nth], known[nth], most[nth])
        for nth in range(span.slots)
    )


def _pieces(
    samples: Sequence[tuple[datetime, Figures]], span: Span
) -> Iterator[tuple[int, float, Figures]]:
    """Yield the parts of slots in which samples stand: which slot, for how many seconds."""
    length = span.length.total_seconds()
    for nth, (at, figures) in enumerate(samples):
        following = samples[nth + 1][0] if nth + 1 < len(samples) else span.end
        begin = (max(at, span.start) - span.start).total_seconds()
        end = (min(following, at + span.hold, span.end) - span.start).total_seconds()
        while begin < end:
            slot = int(begin // length)
            until = min(end, (slot + 1) * length)
            yield slot, until - begin, figures
            begin = until


def _slot(
    start: datetime, sums: Sequence[float], known: Sequence[float], most: int | None
) -> Slot:
    means = [total / time if time else None for total, time in zip(sums, known, strict=True)]
    busy, idle, starting, other, _, nanos = means
    rate = None if nanos is None else nanos / NANO
    return Slot(start, busy, idle, starting, other, most, rate)
