"""The page of money, and the report of a month: costs by payer, budgets, waits and limits.

Money is shown in cents, rounded so that the rows of a table add up to its total.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial

from fleet.explain.history import STATES, Slot, SlotGrid
from fleet.model.facts import PlaceFacts, Unknown
from fleet.model.plan import BudgetVerdict
from fleet.model.values import CENT, in_cents
from fleet.report.document import (
    Block,
    Cell,
    Items,
    Plots,
    Section,
    StyledText,
    Table,
    TableOf,
    Title,
    bold,
    figures,
    line,
    link,
)
from fleet.report.plots import Key, Panel, stacked, stepped
from fleet.report.status import budgets_section, share_bar
from fleet.report.terminal import clean
from fleet.schema.units import write_duration
from fleet.site.charges import Cost, CostRow, CountRow, MonthCost, MonthReport
from fleet.site.history import history_section
from fleet.site.pages import MONEY, Page, Shown, alarm, quiet
from fleet.words import figures as words

_MAX_ROWS = 100
"""Maximum payers with their own row in each table; the last row is the sum of all others."""
_DAY = timedelta(days=1)
_NO_LOG = "Unknown: the log has no entry of this month."
_NOT_COUNTED = "Unknown: no run of this month counted that."


def money(shown: Shown) -> Iterator[Page]:
    """Yield the page of money."""
    found, history, currency = shown.money, shown.history, shown.plan.currency
    payers: list[Block] = []
    if isinstance(found, Unknown):
        unread = alarm(f"The cost of this month: unknown. {found.unknown}")
        known: list[Block] = [unread]
    else:
        known = _figures(found, currency)
        groups = (("pool", found.pools), ("scope", found.scopes), ("team", found.teams))
        payers = [
            Section(f"By {noun}", [payer_table(shown, noun, costs, found)], f"by-{noun}")
            for noun, costs in groups
        ]
    about = quiet(
        "The allow-list gave them a tag. Without it: the cheapest pool that fits, by its cost per "
        "hour."
    )
    powerful: list[Block] = [about, _powerful_table(shown)]
    trend = history if isinstance(history, Unknown) else history.fleet
    blocks: list[Block] = [
        Title(line("Money")),
        *known,
        project_budgets(shown, shown.plan.budgets),
        Section("Builds on powerful machines", powerful if shown.powerful else [], "powerful"),
        *payers,
        history_section(trend, currency, money_only=True),
    ]
    yield Page(MONEY, blocks)


def _figures(money: MonthCost, currency: str) -> list[Block]:
    """Return the main figures, and the meaning of the projection."""
    lately, total = _name_week(money), money.total
    tiles = (
        (total.month, f"{currency} this month, until {words.time(money.until)}"),
        (total.projected, f"{currency} expected at the end of the month"),
        (total.week, f"{currency} in the {lately}"),
        (total.today, f"{currency} today"),
    )
    basis = f"the {lately}" if money.week_since else "this month"
    about = (
        "Expected: the cost of the month so far, and for each hour that is left the average cost "
        f"of an hour in {basis}. The month began at {words.time(money.start)} and ends at "
        f"{words.time(money.end)}."
    )
    texts = [line(*bold(words.cents(amount)), text) for amount, text in tiles]
    return [Items(texts, has_figures=True), quiet(about)]


def _name_week(money: MonthCost) -> str:
    return (
        f"last {words.since(money.week_since, money.until)}" if money.week_since else "last 7 days"
    )


def project_budgets(shown: Shown, budgets: Sequence[BudgetVerdict]) -> Section:
    """Return budgets as a table, with the amounts that are expected at the end of the month."""
    projected = {} if isinstance(shown.money, Unknown) else shown.money.projected
    return budgets_section([each for each in budgets if not each.coming], projected)


def _powerful_table(shown: Shown) -> Table:
    return (
        TableOf(shown.powerful)
        .name("Request", lambda each: each.worker.running or "")
        .text("Package", lambda each: each.package or words.UNKNOWN)
        .text(
            "Worker",
            lambda each: line(
                StyledText(each.worker.worker, target=shown.addresses.of_worker(each.worker)),
                f" ({each.worker.type})" if each.worker.type else "",
            ),
        )
        .text("Runs for", lambda each: words.since(each.since, shown.status.time), fold=1)
        .text("Expected end", lambda each: words.time(each.ends) if each.ends else words.UNKNOWN)
        .figure("Cost so far", lambda each: words.cents(each.cost))
        .figure("Expected cost", lambda each: words.cents(each.expected))
        .text("Without the allow-list", lambda each: _describe_place(shown, each.elsewhere))
    )


def _describe_place(shown: Shown, place: PlaceFacts | None) -> Cell:
    """Return the pool, machine type, cost and time of a build without the allow-list."""
    if place is None:
        return "unknown, or no pool fits"
    cost = f"{words.cents(place.cost)} {shown.status.currency}"
    takes = write_duration(place.seconds or 0)
    name = StyledText(place.pool, target=shown.addresses.of_pool(place.pool))
    return line("pool ", name, f" ({place.type}): {cost} in {takes}")


def payer_table(shown: Shown, noun: str, costs: Sequence[Cost], money: MonthCost) -> Block:
    """Return the payers of one kind as a table. Each column adds up to its last row."""
    if not costs:
        return line("Nothing was charged.")
    if rest := costs[_MAX_ROWS:]:
        others = Cost(
            name=f"{len(rest):,} other {noun}s",
            seconds=sum(each.seconds for each in rest),
            today=sum((each.today for each in rest), Decimal(0)),
            month=sum((each.month for each in rest), Decimal(0)),
            week=_total([each.week for each in rest]),
            projected=_total([each.projected for each in rest]),
        )
        costs = [*costs[:_MAX_ROWS], others]
    everyone = (*costs, replace(money.total, name="All"))
    month, expected, week, today = (
        iter(_column([getattr(each, name) for each in everyone]))
        for name in ("month", "projected", "week", "today")
    )
    of_pool = shown.addresses.of_pool if noun == "pool" else lambda _: ""
    return (
        TableOf(everyone)
        .name(noun, lambda each: link(each.name, of_pool(each.name)))
        .figure("This month", lambda _: next(month))
        .text("Share", lambda each: share_bar(each.month, money.total.month))
        .figure("Expected", lambda _: next(expected))
        .figure(_name_week(money), lambda _: next(week))
        .figure("Today", lambda _: next(today))
        .figure("Hours", lambda each: f"{each.seconds / 3600:,.1f}")
    )


def _column(amounts: Sequence[Decimal | None]) -> list[str]:
    """Round amounts to cents that add up to the rounded total, the last; keep unknown amounts."""
    *parts, total = amounts
    shown = iter(in_cents([amount for amount in parts if amount is not None]))
    return [words.cents(None if each is None else next(shown)) for each in parts] + [
        words.cents(total)
    ]


def _total(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if len(known) == len(amounts) else None


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
    """Yield every table of the report, or in place of an empty table the reason."""
    money, waits = report.currency, "A wait is known to a tenth of it, of requests that a run saw "
    waits += "waiting and then running."
    if report.unseen:
        waits += f" Unknown: the wait of {words.many(report.unseen, 'more request')}."
    charged = "Nothing was charged." if report.charged_until else "Unknown: nothing was charged."
    best = "The bound is unknown: no run of this month planned machines for requests."
    if report.planned is not None:
        best = "Planned and bound count each new machine until its idle time-out; the ledger "
        best += "counts what was billed."
    needless = "None."
    if report.needless is None:
        needless = "Unknown: no queue recorded the peak memory of powerful builds."
    tables: tuple[tuple[str, str, Table, str], ...] = (
        *(
            (
                f"by-{noun}",
                f"Cost by {noun}",
                figures((noun.capitalize(), money, "hours"), _costs(report, rows)),
                charged,
            )
            for noun, rows in (
                ("pool", report.pools),
                ("scope", report.scopes),
                ("team", report.teams),
                ("owner", report.owners),
            )
        ),
        (
            "packages",
            "Packages that cost most",
            figures(("Package", money, "hours"), _packages(report)),
            "Unknown: no queue named the package of work in this month.",
        ),
        (
            "waits",
            "Waits by class",
            figures(
                ("Class", "requests", "p50", "p95"),
                [
                    (each.name, str(each.count), _seconds(each.half), _seconds(each.most))
                    for each in report.waits
                ],
            ),
            waits,
        ),
        (
            "bound",
            "Limits that bound",
            _counts("Limit", "runs", report.bound),
            "No limit bound in this month." if report.never_bound is not None else _NOT_COUNTED,
        ),
        *(
            (
                key,
                title,
                figures((noun,), [(name,) for name in names or ()]),
                "None." if names is not None else _NOT_COUNTED,
            )
            for key, title, noun, names in (
                ("never-bound", "Limits that were never reached", "Limit", report.never_bound),
                ("never-matched", "Rules that never matched", "Pattern", report.never_matched),
            )
        ),
        (
            "needless",
            "Powerful builds whose peak memory was below a quarter of the machine",
            _counts("Package", "runs", report.needless or ()),
            needless,
        ),
        ("best", "Cost of the cheapest fleet", figures(("What", money), _optimum(report)), best),
        (
            "changes",
            "Runs and changes of machines",
            _counts("What", "count", report.changes),
            _NO_LOG,
        ),
    )
    for id_, title, table, note in tables:
        notes = [line(f"  {note}")] if not table.rows or id_ in _EXPLAINED else []
        yield Section(title, [table, *notes], id_)


_EXPLAINED = ("waits", "best")
"""The tables whose note is drawn below their rows too."""


def _costs(report: MonthReport, costs: Sequence[CostRow]) -> Iterator[tuple[str, ...]]:
    cents = in_cents([row.money for row in costs])
    for row, amount in zip(costs, cents, strict=True):
        gone = " (no longer in fleet.yaml)" * row.gone
        yield row.name + gone, *_write_cost(amount, row.seconds)
    if costs:
        yield "all", *_write_cost(sum(cents), report.seconds)


def _write_cost(amount: Decimal | int, seconds: int) -> tuple[str, str]:
    return f"{amount:.2f}", f"{seconds / 3600:.1f}"


def _seconds(seconds: int | None) -> str:
    return words.UNKNOWN if seconds is None else words.duration(timedelta(seconds=seconds))


def _counts(noun: str, what: str, rows: Iterable[CountRow]) -> Table:
    return figures((noun, what), [(row.name, str(row.count)) for row in rows])


def _packages(report: MonthReport) -> list[tuple[str, ...]]:
    named = [row.money for row in report.packages]
    rest = report.money - sum(named, Decimal(0)) - report.other_packages
    *cents, others, left = in_cents([*named, report.other_packages, rest])
    rows: list[tuple[str, ...]] = [
        (row.name, *_write_cost(amount, row.seconds))
        for row, amount in zip(report.packages, cents, strict=True)
    ]
    last = [
        ("all other packages", f"{others:.2f}", ""),
        ("boot, idle, and work without a package", f"{left:.2f}", ""),
    ]
    return [*rows, *last] if rows else []


def _optimum(report: MonthReport) -> list[tuple[str, ...]]:
    planned, best = report.planned, report.best
    amounts = [
        ("new machines for requests, as planned", planned),
        ("the same at least, with any machines (proven bound)", best),
        ("difference", None if planned is None else planned - (best or 0)),
        *((f"difference: {row.name}", row.money) for row in report.gaps),
        ("planned in runs in which guards kept part back: no bound", report.withheld),
        ("boot and idle time, by the ledger", report.idle_money if report.pools else None),
    ]
    return [(name, f"{amount:.4f}") for name, amount in amounts if amount is not None]


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
