"""The recent history of a fleet: samples of runs, averaged over time slots of equal length.

A run has a sample before its actions; a run that creates or deletes machines has a second sample
at its end. A sample is valid until the next sample, but at most `HOLDS` times `cadence`. Time
after that is unknown, as are figures that a run could not read. Unknown time does not count as
zero.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from fleet.model.history import NANO, MomentFigures, Outcome, RunSample
from fleet.model.plan import Action, Create, Delete, NotKnown, Plan, PoolVerdict
from fleet.schema.model import Fleet, serves_queue

DAYS = 7
FINE, COARSE = timedelta(minutes=30), timedelta(hours=4)
"""Slot lengths of plots and of the tables below the plots. COARSE is a multiple of FINE."""
YOUNG = timedelta(hours=12)
"""A history shorter than this gets shorter slots, so that its plots have enough steps."""
YOUNG_FINE, YOUNG_COARSE = timedelta(minutes=5), timedelta(minutes=30)
HOLDS = 3
"""Maximum validity of a sample in multiples of `cadence`. Runs have stopped after that."""


def sample_of(fleet: Fleet, plan: Plan) -> RunSample:
    """Return the figures of each pool and of the fleet before the actions of the plan."""
    unsure = {*plan.unread, *(each.queue for each in plan.estimates)}
    waiting: Counter[str] = Counter()
    for signature in plan.signatures:
        waiting.update(dict.fromkeys(signature.pools, signature.count))
    pools = {}
    for row in plan.pools:
        declared = fleet.pools.get(row.pool)
        is_sure = declared is None or not any(serves_queue(declared, queue) for queue in unsure)
        pools[row.pool] = _figures(row, waiting[row.pool] if is_sure else None)
    total = None if unsure else sum(signature.count for signature in plan.signatures)
    return RunSample(at=plan.time, fleet=_sum_pools(pools.values(), total), pools=pools)


def sample_after(
    before: RunSample, plan: Plan, actions: Iterable[Action], outcome: Outcome, at: datetime
) -> RunSample:
    """Return the figures at the end of a run, after the creations and deletions that succeeded.

    `actions` are those of the plan and of earlier runs that were under way. A machine that the
    plan already counts is not counted again.
    """
    pools = dict(before.pools)
    done = {name for stack in outcome.stacks for name in (*stack.created, *stack.deleted)}
    states = {each.worker: each.state for each in plan.workers if each.verdict != "create"}
    for action in actions:
        if action.worker not in done or action.pool not in pools:
            continue
        if isinstance(action, Create) and action.worker not in states:
            change, state, rate = 1, "starting", action.cost
        elif isinstance(action, Delete) and action.worker in states:
            change, state, rate = -1, states[action.worker], -action.saves
        else:
            continue
        column = state if state in STATES else "other"
        found = pools[action.pool]
        count = getattr(found, column)
        pools[action.pool] = found._replace(
            nanos=None if found.nanos is None else max(0, found.nanos + int(rate * NANO)),
            **{column: None if count is None else max(0, count + change)},
        )
    return RunSample(at=at, fleet=_sum_pools(pools.values(), before.fleet.waiting), pools=pools)


def _sum_pools(pools: Iterable[MomentFigures], waiting: int | None) -> MomentFigures:
    columns = list(zip(*pools, strict=True)) or [()] * len(MomentFigures._fields)
    sums = [None if None in column else sum(filter(None, column)) for column in columns]
    return MomentFigures(*sums)._replace(waiting=waiting)


def _figures(verdict: PoolVerdict, waiting: int | None) -> MomentFigures:
    def known(what: NotKnown, figure: int) -> int | None:
        return None if what in verdict.not_known else figure

    return MomentFigures(
        busy=known("workers", verdict.busy),
        idle=known("workers", verdict.idle),
        starting=known("workers", verdict.starting),
        other=known("machines", verdict.other),
        waiting=waiting,
        nanos=known("cost", int(verdict.cost_before * NANO)),
    )


STATES = ("busy", "idle", "starting", "other")
"""The machine states that the figures of past runs count."""


class Slot(NamedTuple):
    """Figures of a time slot: averages of known values, and the maximum of waiting requests.

    None if a figure is unknown in the whole slot.
    """

    start: datetime
    busy: float | None
    idle: float | None
    starting: float | None
    other: float | None
    waiting: int | None
    rate: float | None
    """Average cost per hour, in the currency of fleet.yaml."""


class SlotGrid(NamedTuple):
    """Consecutive time slots of equal length, and the maximum validity of a sample."""

    start: datetime
    length: timedelta
    slots: int
    hold: timedelta

    @property
    def end(self) -> datetime:
        """Return the end of the last slot."""
        return self.start + self.length * self.slots


def fold(samples: Sequence[tuple[datetime, MomentFigures]], span: SlotGrid) -> tuple[Slot, ...]:
    """Average samples over each slot. The samples are sorted by time."""
    parts = [*_split_at_slots([at for at, _ in samples], span)]
    return _fold_parts([figures for _, figures in samples], parts, span)


_SlotPart = tuple[int, float, int]
"""The number of a time slot, and the seconds in which the sample of a number is valid there."""


def _fold_parts(
    figures: Sequence[MomentFigures], parts: Iterable[_SlotPart], span: SlotGrid
) -> tuple[Slot, ...]:
    sums = [[0.0] * len(MomentFigures._fields) for _ in range(span.slots)]
    known = [[0.0] * len(MomentFigures._fields) for _ in range(span.slots)]
    most: list[int | None] = [None] * span.slots
    for nth, seconds, sample in parts:
        found, total, time = figures[sample], sums[nth], known[nth]
        for column, figure in enumerate(found):
            if figure is not None:
                total[column] += seconds * figure
                time[column] += seconds
        if found.waiting is not None:
            most[nth] = max(most[nth] or 0, found.waiting)
    slots = []
    for nth, columns in enumerate(zip(sums, known, strict=True)):
        means = [total / time if time else None for total, time in zip(*columns, strict=True)]
        busy, idle, starting, other, _, nanos = means
        rate = None if nanos is None else nanos / NANO
        start = span.start + nth * span.length
        slots.append(Slot(start, busy, idle, starting, other, most[nth], rate))
    return tuple(slots)


def _split_at_slots(times: Sequence[datetime], span: SlotGrid) -> Iterator[_SlotPart]:
    """Yield the parts of slots in which samples taken at these times are valid."""
    length = span.length.total_seconds()
    for nth, at in enumerate(times):
        following = times[nth + 1] if nth + 1 < len(times) else span.end
        begin = (max(at, span.start) - span.start).total_seconds()
        end = (min(following, at + span.hold, span.end) - span.start).total_seconds()
        while begin < end:
            slot = int(begin // length)
            until = min(end, (slot + 1) * length)
            yield slot, until - begin, nth
            begin = until


@dataclass(frozen=True)
class Trend:
    """The recent figures of a pool or fleet, averaged over fine and over coarse time slots."""

    span: SlotGrid
    fine: tuple[Slot, ...]
    coarse: tuple[Slot, ...]
    step: timedelta
    """Length of a coarse slot."""
    now: MomentFigures
    """The figures at the time of the plan."""


@dataclass(frozen=True)
class FleetHistory:
    """The figures of the last days, for a fleet and for each of its pools."""

    fleet: Trend
    pools: Mapping[str, Trend]


def history_of(fleet: Fleet, plan: Plan, samples: Sequence[RunSample]) -> FleetHistory:
    """Return the figures of the last `DAYS` days before a plan. `samples` are sorted by time."""
    begin = plan.time - timedelta(days=DAYS)
    if samples:
        begin = max(begin, samples[0].at)
    is_young = plan.time - begin < YOUNG
    fine, coarse = (YOUNG_FINE, YOUNG_COARSE) if is_young else (FINE, COARSE)
    spans = []
    for length in (fine, coarse):
        start = begin - (begin - _ZERO) % length
        slots = -((start - plan.time) // length)
        spans.append(SlotGrid(start, length, slots, HOLDS * timedelta(seconds=fleet.cadence)))
    now = sample_of(fleet, plan)
    # The time after this plan is unknown, even in the last slot.
    times = [*(each.at for each in samples), plan.time]
    parts = [[*_split_at_slots(times, span)] for span in spans]

    def trend(figures: Iterable[MomentFigures], current: MomentFigures) -> Trend:
        every = [*figures, _ABSENT]
        slots, longer = (_fold_parts(every, *each) for each in zip(parts, spans, strict=True))
        return Trend(spans[0], slots, longer, coarse, current)

    return FleetHistory(
        fleet=trend((each.fleet for each in samples), now.fleet),
        pools={
            name: trend((each.pools.get(name, _ABSENT) for each in samples), current)
            for name, current in now.pools.items()
        },
    )


_ABSENT = MomentFigures(None, None, None, None, None, None)


_ZERO = datetime.min.replace(tzinfo=UTC)
