"""The page of money: this month by pool, scope and team, with budgets and a projection."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from fleet.model.facts import PlaceFacts, Unknown
from fleet.model.plan import BudgetVerdict
from fleet.model.values import in_cents
from fleet.report.document import (
    Block,
    Cell,
    Items,
    Section,
    StyledText,
    Table,
    TableOf,
    Title,
    bold,
    line,
    link,
)
from fleet.report.status import budgets_section, share_bar
from fleet.schema.units import write_duration
from fleet.site.charges import Cost, MonthCost
from fleet.site.history import history_section
from fleet.site.pages import MONEY, Page, Shown, alarm, quiet
from fleet.words import figures as words

_MAX_ROWS = 100
"""Maximum payers with their own row in each table; the last row is the sum of all others."""


def money(shown: Shown) -> Iterator[Page]:
    """Yield the page of money."""
    found, history, currency = shown.money, shown.history, shown.plan.currency
    payers: list[Block] = []
    if isinstance(found, Unknown):
        unread = alarm(f"The cost of this month: unknown. {found.unknown}")
        figures: list[Block] = [unread]
    else:
        figures = _figures(found, currency)
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
        *figures,
        project_budgets(shown, shown.plan.budgets),
        Section("Builds on powerful machines", powerful if shown.powerful else [], "powerful"),
        *payers,
        history_section(trend, currency, money_only=True),
    ]
    yield Page(MONEY, blocks)


def _figures(money: MonthCost, currency: str) -> list[Block]:
    """Return the main figures, and the meaning of the projection."""
    lately, total = _name_week(money), money.total
    figures = (
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
    tiles = [line(*bold(words.cents(amount)), text) for amount, text in figures]
    return [Items(tiles, has_figures=True), quiet(about)]


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
