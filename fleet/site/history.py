"""The last days as plots, each with a summary in words, and a table below the plots."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from fleet.explain.history import STATES, Slot, Trend
from fleet.model.facts import Unknown
from fleet.model.history import NANO
from fleet.report.document import (
    Fold,
    Line,
    Plots,
    Section,
    Style,
    StyledText,
    Table,
    figures,
    line,
)
from fleet.report.plots import Key, Panel, Plot, stacked, stepped
from fleet.words import figures as words

RECORDED = Unknown(unknown="A recorded world holds none.")
"""In place of the history and the log, which only a store has."""


def unread_line(what: str, why: Unknown) -> Line:
    """Return a line that something is unknown, in red unless a recorded world cannot have it."""
    return line(
        StyledText(f"{what}: unknown. {why.unknown}", Style.DIM if why == RECORDED else Style.RED)
    )


def history_section(
    trend: Trend | Unknown | None,
    currency: str,
    limit: int | None = None,
    *,
    money_only: bool = False,
) -> Section:
    """Return the plots of a trend, and a table of the same days with the newest row first.

    `limit` is the maximum number of machines, if any; `money_only` leaves out the other plots.
    """
    if trend is None:
        return Section("", [])
    if isinstance(trend, Unknown):
        return Section("History", [unread_line("History", trend)], "past")
    steps = (
        f"Since {words.time(trend.span.start)}; a step is {words.duration(trend.span.length)}: "
        "machines and money on average, requests at most."
    )
    heading = f"The same as a table, in steps of {words.duration(trend.step)}"
    return Section(
        "History",
        [
            line(StyledText(steps, Style.DIM)),
            Plots(lambda: _panels(trend, currency, limit, money_only=money_only)),
            Fold(heading, [_table(trend.coarse, currency)]),
        ],
        "past",
    )


def _panels(
    trend: Trend, currency: str, limit: int | None, *, money_only: bool
) -> Iterator[Panel]:
    if not money_only:
        yield _machines(trend, limit)
        plot = stepped("Waiting requests", trend.span, [slot.waiting for slot in trend.fine])
        yield _panel("waiting", plot, [Key("", f"now {words.figure(trend.now.waiting)}")], trend)
    money = stepped(f"{currency} per hour", trend.span, [slot.rate for slot in trend.fine])
    nanos = trend.now.nanos
    rate = words.UNKNOWN if nanos is None else words.rate(Decimal(nanos) / NANO)
    yield _panel("money", money, [Key("", f"now {rate}")], trend)


def _machines(trend: Trend, limit: int | None) -> Panel:
    by_state = [(state, [getattr(slot, state) for slot in trend.fine]) for state in STATES]
    plot = stacked("Machines", trend.span, by_state, limit)
    drawn = {area.kind for area in plot.areas} | {"busy", "idle"}
    keys = [Key("", "now")]
    keys += [
        Key(state, f"{state} {words.figure(getattr(trend.now, state))}")
        for state in STATES
        if state in drawn or getattr(trend.now, state)
    ]
    if limit is not None:
        keys.append(Key("max" if plot.mark is not None else "", f"max {limit:,}"))
    return _panel("machines", plot, keys, trend)


def _panel(id_: str, plot: Plot, keys: Sequence[Key], trend: Trend) -> Panel:
    when = f"from {words.time(trend.span.start)} to {words.time(trend.span.end)}"
    if plot.high is None or plot.low is None:
        told = f"{plot.name} {when}: {words.UNKNOWN}."
    else:
        told = f"{plot.name} {when}: between {plot.low:.4g} and {plot.high:.4g}."
        if plot.unknown:
            unknown = words.duration(plot.unknown * trend.span.length)
            told += f" {words.UNKNOWN.capitalize()} for {unknown}."
    gaps = [Key("gap", words.UNKNOWN)] if plot.gaps else []
    return Panel(id_, plot.name, (*keys, *gaps), plot, told)


def _table(slots: Sequence[Slot], currency: str) -> Table:
    most = max((slot.rate for slot in slots if slot.rate is not None), default=0)
    rows = [
        (
            words.time(slot.start),
            *(_figure(getattr(slot, state), 1) for state in STATES),
            words.figure(slot.waiting),
            _figure(slot.rate, 4 if most < 1 else 2),
        )
        for slot in reversed(slots)
    ]
    return figures(("From", *STATES, "waiting", f"{currency}/h"), rows)


def _figure(value: float | None, decimals: int) -> str:
    return words.UNKNOWN if value is None else f"{value:,.{decimals}f}"
