"""Render the results of recorded demand under one fleet.yaml, or of two side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TypeVar

from fleet.explain.history import SlotGrid
from fleet.report.document import Block, Fold, Plots, Section, Title, bold, figures, line
from fleet.report.markdown import document_to_markdown
from fleet.report.plots import Key, Panel, Tick, stepped
from fleet.schema.units import write_duration
from fleet.simulate.figures import (
    GuardFigures,
    Point,
    PoolFigures,
    Side,
    Simulation,
    WaitFigures,
)
from fleet.words import figures as words

Row = TypeVar("Row")
_HOUR = 3600
_NO_FIGURE = "-"
_FOLD_TITLE = "Cost, payers and assumptions"


def simulation_blocks(simulation: Simulation, *, latest: bool = True) -> Iterator[Block]:
    """Yield a simulation with plots; `latest`: it ends at the last recorded moment."""
    first, *others = _headline(simulation, latest=latest)
    yield Title(bold(first))
    yield from map(line, others)
    yield Plots(partial(_panels, simulation))
    yield from _sections(simulation)


def simulation_to_block(simulation: Simulation) -> str:
    """Return a simulation as Markdown: a summary line and all figures in a folded section."""
    headline = next(_headline(simulation, latest=True))
    whole = Fold(_FOLD_TITLE, [*simulation_blocks(simulation)])
    return document_to_markdown([bold(headline), whole], level=1)


def _headline(simulation: Simulation, *, latest: bool) -> Iterator[str]:
    """Yield sentences on the effect of the change, or on the cost if there is no change."""
    before, after, currency = simulation.before, simulation.after, simulation.currency
    length = _length(simulation.end - simulation.start)
    over = f"the last {length}" if latest else length
    short = " (less than a day, too short to judge by)" if simulation.is_short else ""
    if before is None:
        yield f"{simulation.fleet}: {words.cents(after.money)} {currency} in {length}{short}"
    else:
        refusal = _describe_refusal(before, after)
        yield (
            f"{refusal}Over {over}{short} this change would have cost "
            f"{words.cents(before.money)} -> "
            f"{words.cents(after.money)} {currency}"
            f"{'' if short else _share(before.money, after.money)}; p95 of "
            f"waits {_wait(before.waits.most)} -> {_wait(after.waits.most)}"
        )
    yield (
        f"{words.many(simulation.requests, 'request')} from {words.time(simulation.start)} to "
        f"{words.time(simulation.end)}, from {words.many(simulation.worlds, 'recorded moment')}; "
        f"fleet runs every {write_duration(simulation.cadence)}"
    )
    if before is not None:
        changes = f" with {', '.join(simulation.changed)}" if simulation.changed else ""
        yield f"Before is {simulation.against}, after is this fleet.yaml{changes}."


def _describe_refusal(before: Side, after: Side) -> str:
    """State the guard that refuses most machines of the change; empty if no guard refuses it."""
    old, new = (
        {(each.guard, each.pool): each for each in side.guards if each.result == "refused"}
        for side in (before, after)
    )
    refused = [new[key] for key in new if key not in old or new[key].most > old[key].most]
    if not refused:
        return ""
    worst = max(refused, key=lambda each: each.most)
    runs = f"{worst.runs:,} of {words.many(after.runs, 'run')}"
    return f"`fleet apply` refuses this change (guard {worst.guard}, {runs}): {worst.because}. "


def _sections(simulation: Simulation) -> Iterator[Section]:
    """Yield every table of a simulation."""
    sides = [side for side in (simulation.before, simulation.after) if side is not None]
    yield _figures(simulation, sides)
    yield _waits("classes", "Waits by class", "Class", [side.classes for side in sides])
    yield _waits("owners", "Waits by owner", "Owner", [side.owners for side in sides])
    yield _pools(simulation, sides)
    yield _guards([side.guards for side in sides])
    if simulation.before is not None:
        yield _worse(simulation)
    limits = " ".join(f"{each}." for each in simulation.unknown)
    yield Section("Limits of this simulation", [line(f"  {limits}")], "unknown")


_QUANTILES = (25, 50, 75, 95)


def _panels(simulation: Simulation) -> Iterator[Panel]:
    """Yield the plots of each figure, first before the change, then after it."""
    kinds: list[tuple[str, str, str, Callable[[Point], float]]] = [
        ("waiting", "Requests that wait", "requests", lambda point: point.waiting),
        ("machines", "Machines", "machines", lambda point: point.machines),
        ("rate", "Cost", f"{simulation.currency}/h", lambda point: float(point.rate)),
    ]
    sides = [("before", simulation.before), ("after", simulation.after)]
    shown = [(when, side) for when, side in sides if side is not None]
    for key, heading, unit, figure in kinds:
        for when, side in shown:
            if not side.points:
                continue
            name = heading if simulation.before is None else f"{heading}, {when}"
            span = _span(simulation, side)
            plot = stepped(name, span, [figure(point) for point in side.points])
            told = f"{plot.low} to {plot.high} {unit}"
            yield Panel(f"{key}-{when}", name, (Key("", unit),), plot, told)
    for when, side in shown:
        if side.waits.shares:
            name = "Waits" if simulation.before is None else f"Waits, {when}"
            yield _distribution(name, f"waits-{when}", side.waits.shares)


def _span(simulation: Simulation, side: Side) -> SlotGrid:
    first, *more = side.points
    length = more[0].at - first.at if more else simulation.end - simulation.start
    return SlotGrid(first.at, length or timedelta(seconds=1), len(side.points), length)


def _distribution(name: str, key: str, shares: Sequence[int]) -> Panel:
    """Return a plot of the maximum wait (seconds) over the percentage of requests."""
    minutes = [seconds / 60 for seconds in shares]
    span = SlotGrid(_ANY_TIME, timedelta(hours=1), len(minutes), timedelta(hours=1))
    ticks = tuple(Tick(float(share), f"{share} %") for share in _QUANTILES)
    plot = stepped(name, span, minutes)._replace(days=ticks)
    told = ", ".join(f"{share} % wait at most {_wait(shares[share - 1])}" for share in _QUANTILES)
    return Panel(
        key, name, (Key("", "minutes that a share of the requests waits at most"),), plot, told
    )


_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""Placeholder for a start time, because the axis of percentages has no time."""


def _figures(simulation: Simulation, sides: Sequence[Side]) -> Section:
    currency = simulation.currency
    rows: list[tuple[str, Callable[[Side], str]]] = [
        (f"cost, {currency}", lambda side: words.cents(side.money)),
        ("machine hours", lambda side: _hours(side.seconds)),
        ("boot and idle share", lambda side: _percent(side.idle_share)),
        ("machines, maximum", lambda side: str(side.most)),
        ("requests that started", lambda side: str(side.waits.requests)),
        ("requests never served", lambda side: str(side.waits.never)),
        ("wait, p50", lambda side: _wait(side.waits.half)),
        ("wait, p95", lambda side: _wait(side.waits.most)),
        ("wait, longest", lambda side: _wait(side.waits.longest)),
    ]
    headings = ("What", *(("figure",) if len(sides) == 1 else ("before", "after")))
    table = figures(headings, [(name, *map(figure, sides)) for name, figure in rows])
    return Section("Figures", [table], "figures")


def _waits(key: str, heading: str, noun: str, sides: Sequence[Sequence[WaitFigures]]) -> Section:
    rows = {row.name: None for side in reversed(sides) for row in side}
    by_name = [{row.name: row for row in side} for side in sides]
    columns: list[tuple[str, Callable[[WaitFigures], str]]] = [
        ("requests", lambda row: str(row.requests)),
        ("p50", lambda row: _wait(row.half)),
        ("p95", lambda row: _wait(row.most)),
        ("longest", lambda row: _wait(row.longest)),
        ("never", lambda row: str(row.never)),
    ]
    return _side_by_side(key, heading, noun, (list(rows), by_name), columns)


def _pools(simulation: Simulation, sides: Sequence[Side]) -> Section:
    rows = sorted({pool.pool for side in sides for pool in side.pools})
    by_name = [{pool.pool: pool for pool in side.pools} for side in sides]
    columns: list[tuple[str, Callable[[PoolFigures], str]]] = [
        (simulation.currency, lambda pool: words.cents(pool.money)),
        ("hours", lambda pool: _hours(pool.seconds)),
        ("idle", lambda pool: _percent(pool.idle_share)),
        ("most", lambda pool: str(pool.most)),
    ]
    if any(pool.refused for side in sides for pool in side.pools):
        columns.append(("refused", lambda pool: str(pool.refused)))
    return _side_by_side("pools", "Pools", "Pool", (rows, by_name), columns)


def _side_by_side(
    key: str,
    heading: str,
    noun: str,
    found: tuple[Sequence[str], Sequence[Mapping[str, Row]]],
    columns: Sequence[tuple[str, Callable[[Row], str]]],
) -> Section:
    """Return a table with one row per name; cells show both figures if the sides differ."""
    names, sides = found

    def cell(name: str, figure: Callable[[Row], str]) -> str:
        texts = [figure(side[name]) if name in side else _NO_FIGURE for side in sides]
        return texts[0] if len(set(texts)) == 1 else " -> ".join(texts)

    rows = [(name, *(cell(name, figure) for _, figure in columns)) for name in names]
    table = figures((noun, *(name for name, _ in columns)), rows)
    return Section(heading, [table if rows else line("  None.")], key)


def _guards(sides: Sequence[Sequence[GuardFigures]]) -> Section:
    def name(each: GuardFigures) -> str:
        return f"{each.guard} {each.result}, {each.pool or 'whole fleet'}"

    by_name = [{name(each): each for each in side} for side in sides]
    names = sorted({name(each) for side in sides for each in side})
    columns: list[tuple[str, Callable[[GuardFigures], str]]] = [
        ("runs", lambda each: str(each.runs)),
        ("machines at most", lambda each: str(each.most)),
    ]
    return _side_by_side(
        "guards", "Guards that kept something back", "Guard", (names, by_name), columns
    )


def _worse(simulation: Simulation) -> Section:
    rows = tuple(
        (
            each.request,
            _wait(each.before, "never served"),
            _wait(each.after, "never served"),
        )
        for each in simulation.worse
    )
    longer, shorter = simulation.worse_count, simulation.better_count
    more = longer - len(rows)
    note = f"{words.many(longer, 'request')} wait longer, {shorter:,} shorter"
    note += f"; {more:,} more are not shown." if more else "."
    table = figures(("Request", "before", "after"), rows)
    return Section("Requests that wait longer", [table, line(f"  {note}")], "worse")


def _length(span: timedelta) -> str:
    """Return a duration as text, in whole days if possible."""
    days, rest = divmod(span, timedelta(days=1))
    return words.many(days, "day") if days and not rest else words.duration(span)


def _share(before: Decimal | None, after: Decimal | None) -> str:
    if not before or after is None:
        return ""
    return f" ({100 * (after - before) / before:+.1f} %)"


def _hours(seconds: int) -> str:
    return f"{seconds / _HOUR:,.1f}"


def _percent(share: float | None) -> str:
    return _NO_FIGURE if share is None else f"{share:.1f} %"


def _wait(seconds: int | None, none: str = _NO_FIGURE) -> str:
    """Return a wait in two units, such as hours and minutes; `none` if unknown."""
    return none if seconds is None else words.duration(timedelta(seconds=seconds))
