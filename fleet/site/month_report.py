"""Render the report of a month as tables and plots, or as CSV.

Money is shown in cents, rounded so that the rows of a table add up to its total.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial

from fleet.explain.history import STATES, Slot, SlotGrid
from fleet.model.values import CENT, in_cents
from fleet.report.document import Block, Plots, Section, Table, Title, bold, figures, line
from fleet.report.plots import Key, Panel, stacked, stepped
from fleet.report.terminal import clean
from fleet.site.month import CostRow, CountRow, MonthReport
from fleet.words import figures as words

_DAY = timedelta(days=1)


def month_blocks(
    report: MonthReport, slots: Sequence[Slot] = (), length: timedelta = _DAY
) -> Iterator[Block]:
    """Yield the report; `slots` has the machines of the month, empty if unknown."""
    first, *others = _headline(report)
    yield Title(bold(first))
    yield from map(line, others)
    yield Plots(partial(_panels, report, slots, length))
    yield from sections(report)


def month_to_csv(report: MonthReport) -> str:
    """Return the report as CSV, with a line per figure: month, section, name, column and value.

    A name that a spreadsheet would parse as a formula gets a leading apostrophe.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("month", "section", "name", "column", "value"))
    for section in sections(report):
        for name, heading, value in _values(section):
            cell = clean(f"'{name}" if name.startswith(("=", "+", "-", "@")) else name)
            writer.writerow((report.month, section.id, cell, heading, value))
    return file.getvalue().removesuffix("\n")


def _values(section: Section) -> Iterator[tuple[str, ...]]:
    """Yield row name, column heading and text of each cell in a section."""
    for table in (block for block in section.blocks if isinstance(block, Table)):
        names = [column.name for column in table.columns[1:]] or [""]
        for row in table.rows:
            first, *texts = map(str, row.cells)
            yield from ((first, *each) for each in zip(names, texts or [""], strict=True))


def _headline(report: MonthReport) -> Iterator[str]:
    """Yield sentences on the cost of the month, the gaps in the records, and the idle time."""
    cost = report.money.quantize(CENT, ROUND_HALF_EVEN)
    figure = f"{cost:,.2f} {report.currency}" if report.charged_until else "cost unknown"
    yield f"{report.fleet}, {report.month}: {'no data' if report.is_empty else figure}"
    if report.charged_until is None:
        yield "The ledger has no charge of this month: its cost is unknown."
    elif not report.complete:
        yield f"The month so far: charged until {words.time(report.charged_until)}."
    if report.charged_since:
        yield f"The first charge was {words.time(report.charged_since)}; before that is unknown."
    if report.idle_share is not None:
        idle = in_cents([report.idle_money])[0]
        hours = f"{report.seconds / 3600:,.1f} machine hours"
        share = f"{report.idle_share:.1f} % of {hours}"
        yield f"Boot and idle time: {share}, {idle:,.2f} {report.currency}."


def sections(report: MonthReport) -> Iterator[Section]:
    """Yield every table of the report."""
    for noun, rows in (
        ("pool", report.pools),
        ("scope", report.scopes),
        ("team", report.teams),
        ("owner", report.owners),
    ):
        yield _costs(f"by-{noun}", f"Cost by {noun}", noun.capitalize(), report, rows)
    yield _packages(report)
    yield _waits(report)
    yield from _limits(report)
    yield _needless(report)
    yield _draw_optimum(report)
    changes = _counts(("What", "count"), report.changes)
    yield _section("changes", "Runs and changes of machines", changes, _NO_LOG)


_NO_LOG = "Unknown: the log has no entry of this month."
_NOT_COUNTED = "Unknown: no run of this month counted that."


def _section(id_: str, title: str, table: Table, none: str, note: str = "") -> Section:
    """Return a table with a note; if the table has no rows, the note is the reason `none`."""
    note = note if table.rows else none
    return Section(title, [table, *([line(f"  {note}")] if note else [])], id_)


def _costs(
    key: str, heading: str, noun: str, report: MonthReport, rows: Sequence[CostRow]
) -> Section:
    cents = in_cents([row.money for row in rows])
    shown = [
        (
            row.name + (" (no longer in fleet.yaml)" if row.gone else ""),
            f"{amount:.2f}",
            f"{row.seconds / 3600:.1f}",
        )
        for row, amount in zip(rows, cents, strict=True)
    ]
    if shown:
        shown.append(("all", f"{sum(cents):.2f}", f"{report.seconds / 3600:.1f}"))
    nothing = "Nothing was charged." if report.charged_until else "Unknown: nothing was charged."
    return _section(key, heading, figures((noun, report.currency, "hours"), shown), nothing)


def _packages(report: MonthReport) -> Section:
    named = [row.money for row in report.packages]
    rest = report.money - sum(named, Decimal(0)) - report.other_packages
    cents = in_cents([*named, report.other_packages, rest])
    shown = [
        (row.name, f"{amount:.2f}", f"{row.seconds / 3600:.1f}")
        for row, amount in zip(report.packages, cents, strict=False)
    ]
    if shown:
        shown.append(("all other packages", f"{cents[-2]:.2f}", ""))
        shown.append(("boot, idle, and work without a package", f"{cents[-1]:.2f}", ""))
    none = "Unknown: no queue named the package of work in this month."
    table = figures(("Package", report.currency, "hours"), shown)
    return _section("packages", "Packages that cost most", table, none)


def _waits(report: MonthReport) -> Section:
    shown = tuple(
        (row.name, str(row.count), _seconds(row.half), _seconds(row.most)) for row in report.waits
    )
    note = "A wait is known to a tenth of it, of requests that a run saw waiting and then running."
    if report.unseen:
        note += f" Unknown: the wait of {words.many(report.unseen, 'more request')}."
    table = figures(("Class", "requests", "p50", "p95"), shown)
    return _section("waits", "Waits by class", table, note, note)


def _seconds(seconds: int | None) -> str:
    return "unknown" if seconds is None else words.duration(timedelta(seconds=seconds))


def _limits(report: MonthReport) -> Iterator[Section]:
    none = _NOT_COUNTED if report.never_bound is None else "No limit bound in this month."
    bound = _counts(("Limit", "runs"), report.bound)
    yield _section("bound", "Limits that bound", bound, none)
    for key, heading, noun, names in (
        ("never-bound", "Limits that were never reached", "Limit", report.never_bound),
        ("never-matched", "Rules that never matched", "Pattern", report.never_matched),
    ):
        none = _NOT_COUNTED if names is None else "None."
        yield _section(key, heading, figures((noun,), [(name,) for name in names or ()]), none)


def _counts(headings: Sequence[str], rows: Sequence[CountRow]) -> Table:
    return figures(headings, [(row.name, str(row.count)) for row in rows])


def _needless(report: MonthReport) -> Section:
    unknown = report.needless is None
    note = "Unknown: no queue recorded the peak memory of powerful builds." if unknown else "None."
    heading = "Powerful builds whose peak memory was below a quarter of the machine"
    table = _counts(("Package", "runs"), report.needless or ())
    return _section("needless", heading, table, note)


def _draw_optimum(report: MonthReport) -> Section:
    amounts = [
        ("new machines for requests, as planned", report.planned),
        ("the same at least, with any machines (proven bound)", report.best),
        ("difference", None if report.planned is None else report.planned - (report.best or 0)),
        *((f"difference: {row.name}", row.money) for row in report.gaps),
        ("planned in runs in which guards kept part back: no bound", report.withheld),
        ("boot and idle time, by the ledger", report.idle_money if report.pools else None),
    ]
    rows = [(name, f"{amount:.4f}") for name, amount in amounts if amount is not None]
    note = (
        "Planned and bound count each new machine until its idle time-out; the ledger counts what "
        "was billed."
    )
    if report.planned is None:
        note = "The bound is unknown: no run of this month planned machines for requests."
    heading = "Cost of the cheapest fleet"
    return _section("best", heading, figures(("What", report.currency), rows), note, note)


def _panels(report: MonthReport, slots: Sequence[Slot], length: timedelta) -> Iterator[Panel]:
    if any(day is not None for day in report.days):
        span = SlotGrid(report.start, _DAY, len(report.days), _DAY)
        days = [None if day is None else float(day) for day in report.days]
        plot = stepped("Cost per day", span, days)
        told = f"{plot.low} to {plot.high} {report.currency} a day"
        yield Panel("cost", "Cost per day", (Key("", f"{report.currency} a day"),), plot, told)
    if any(slot.busy is not None for slot in slots):
        span = SlotGrid(report.start, length, len(slots), length)
        kinds = [(state, [getattr(slot, state) for slot in slots]) for state in STATES]
        plot = stacked("Machines", span, kinds)
        keys = tuple(Key(area.kind, area.kind) for area in plot.areas)
        told = f"{plot.low} to {plot.high} machines"
        yield Panel("machines", "Machines by state", keys, plot, told)
