"""Compute plots over time, which templates draw as SVG: paths, ticks, gaps and texts.

A drawing is `width` time slots wide and 100 units high. The page stretches the drawing. Texts are
next to the drawing, at positions in percent. Unknown values are gaps, never zeros.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import accumulate, groupby
from typing import NamedTuple

from fleet.explain.history import SlotGrid

_HEIGHT = 100
_MIN_LABEL_WIDTH = 14
"""Minimum width of a gap that has a label, in percent of the plot."""


class Tick(NamedTuple):
    """A tick of an axis: position in percent of the plot, and text."""

    percent: float
    text: str


class ValuePath(NamedTuple):
    """An SVG path, and the kind of values that the path draws."""

    kind: str
    path: str


class Gap(NamedTuple):
    """Consecutive time slots with unknown values. `is_wide` means that a label fits there."""

    start: int
    width: int
    middle: float
    """Middle of the gap, in percent of the plot."""
    is_wide: bool


class Key(NamedTuple):
    """A kind of value in a plot, with its current value as text."""

    kind: str
    text: str


class Plot(NamedTuple):
    """A plot of stacked, filled `areas` with a `line` on top."""

    name: str
    width: int
    areas: tuple[ValuePath, ...]
    line: str
    gaps: tuple[Gap, ...]
    levels: tuple[Tick, ...]
    days: tuple[Tick, ...]
    mark: float | None
    """Position of the limit, in percent from the top; None if there is no limit."""
    low: float | None
    high: float | None
    """Minimum and maximum of the known values; None if all values are unknown."""
    unknown: int
    """Number of slots with unknown values."""


class Panel(NamedTuple):
    """A plot with its heading, its key and a summary in words."""

    id: str
    heading: str
    keys: tuple[Key, ...]
    plot: Plot
    told: str


def stacked(
    name: str,
    span: SlotGrid,
    rows: Sequence[tuple[str, Sequence[float | None]]],
    limit: float | None = None,
) -> Plot:
    """Return a plot of stacked kinds, the first kind at the bottom, with a line at `limit`."""
    sums: list[list[float] | None] = []
    for column in zip(*(values for _, values in rows), strict=True):
        known = [value for value in column if value is not None]
        sums.append([*accumulate(known, initial=0.0)] if len(known) == len(column) else None)
    totals = [None if each is None else each[-1] for each in sums]
    top = nice_top(max((total for total in totals if total is not None), default=0), limit)
    areas = []
    for nth, (kind, values) in enumerate(rows):
        if any(values):
            upper = [None if each is None else each[nth + 1] for each in sums]
            lower = [None if each is None else each[nth] for each in sums]
            areas.append(ValuePath(kind, _area(upper, lower, top)))
    plot = _plot(name, span, totals, top)
    mark = None if limit is None else round(100 - 100 * limit / top, 2)
    return plot._replace(areas=tuple(areas), mark=mark)


def stepped(name: str, span: SlotGrid, values: Sequence[float | None]) -> Plot:
    """Return a plot of one figure, filled below its line."""
    top = nice_top(max((value for value in values if value is not None), default=0))
    plot = _plot(name, span, values, top)
    floor = [None if value is None else 0.0 for value in values]
    area = ValuePath("one", _area(values, floor, top))
    return plot._replace(
        areas=(area,),
        line="".join(
            f"M{begin} {_steps(values, range(begin, end), top)}".replace(" V", " ")
            for begin, end in _runs([value is not None for value in values])
        ),
    )


def nice_top(most: float, limit: float | None = None) -> float:
    """Return a round number, at least `most` and `limit`, for the top of an axis."""
    most = max(most, limit or 0)
    if most <= 0:
        return 1
    step = 1e-4
    while True:
        for factor in (1, 2, 4, 6, 8):
            if step * factor >= most:
                return float(f"{step * factor:.6g}")
        step *= 10


def _plot(name: str, span: SlotGrid, values: Sequence[float | None], top: float) -> Plot:
    known = [value for value in values if value is not None]
    levels = [0, top / 2, top] if top > 1 or top != int(top) else [0, top]
    return Plot(
        name=name,
        width=span.slots,
        areas=(),
        line="",
        gaps=tuple(_gaps(values)),
        levels=tuple(Tick(round(100 - 100 * level / top, 2), f"{level:g}") for level in levels),
        days=tuple(_days(span)),
        mark=None,
        low=min(known, default=None),
        high=max(known, default=None),
        unknown=len(values) - len(known),
    )


def _days(span: SlotGrid) -> Iterator[Tick]:
    """Yield a tick per start of a day in UTC. Only the first day and new months show the month.

    A plot of at most two days has at most eight ticks at full hours instead.
    """
    whole, step = span.length * span.slots, timedelta(days=1)
    is_short = whole <= timedelta(days=2)
    if is_short:
        step = timedelta(hours=next(n for n in (1, 2, 3, 6) if whole <= timedelta(hours=8 * n)))
    at = span.start.replace(hour=0, minute=0, second=0, microsecond=0)
    while (at := at + step) < span.start + whole:
        if at > span.start:
            is_named = at.day == 1 or at - span.start <= timedelta(days=1)
            day = f"{at.day} {at:%b}" if is_named else f"{at.day}"
            percent = round(100 * ((at - span.start) / whole), 2)
            yield Tick(percent, f"{at:%H:%M}" if is_short else day)


def _gaps(values: Sequence[float | None]) -> Iterator[Gap]:
    for start, end in _runs([value is None for value in values]):
        share = 100 / len(values)
        middle = round((start + end) / 2 * share, 2)
        yield Gap(start, end - start, middle, (end - start) * share >= _MIN_LABEL_WIDTH)


def _runs(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the start and the exclusive end of each run of true flags."""
    for flag, run in groupby(range(len(flags)), flags.__getitem__):
        if flag:
            first, *others = run
            yield first, first + 1 + len(others)


def _area(upper: Sequence[float | None], lower: Sequence[float | None], top: float) -> str:
    parts = [
        f"M{begin} {_steps(upper, range(begin, end), top)}"
        f"{_steps(lower, range(end - 1, begin - 1, -1), top)}Z"
        for begin, end in _runs([value is not None for value in upper])
    ]
    return "".join(parts).replace(" V", " ")


def _steps(values: Sequence[float | None], slots: range, top: float) -> str:
    """Return the SVG path of a step function over slots. A descending range draws to the left."""
    parts: list[str] = []
    before = None
    for nth in slots:
        value = values[nth] or 0
        height = f"{_HEIGHT - _HEIGHT * value / top:.1f}".removesuffix(".0")
        across = f"H{nth + (slots.step > 0)}"
        if height == before:
            parts[-1] = across
        else:
            parts += [f"V{height}", across]
        before = height
    return "".join(parts)
