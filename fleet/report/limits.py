"""Tables of budgets and limits, the same for text, Markdown and HTML.

The current period of a budget is always shown, the next one only where its limit is exceeded.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from fleet.model.plan import BudgetVerdict, LimitVerdict
from fleet.report import words
from fleet.report.terminal import Line, Span, Style, line, table

BUDGET_HEADINGS = ("Budget", "When", "Spent", "Reserved", "Planned", "Left", "Limit")
_MOST = 12
LIMIT_HEADINGS = ("Limit", "For", "In use", "New", "Waiting", "Max")


class ShownBudget(NamedTuple):
    """One budget in one period as the cells of a row."""

    budget: str
    when: str
    spent: str
    reserved: str
    planned: str
    left: str
    limit: str
    note: str
    """What is wrong; empty where nothing is."""


def budgets_section(budgets: Sequence[BudgetVerdict]) -> Iterator[Line]:
    """Yield the lines of a table of budgets; none where there are none."""
    rows, hidden = shown_budgets(budgets)
    if not rows:
        return
    heading, *lines = _table(BUDGET_HEADINGS, [row[:-1] for row in rows])
    yield heading
    for text, row in zip(lines, rows, strict=True):
        yield text
        if row.note:
            yield line("      ", Span(row.note, Style.RED))
    if hidden:
        yield line(f"  … and {words.many(hidden, 'budget')} with more left")


def shown_budgets(
    budgets: Sequence[BudgetVerdict], most: int = _MOST
) -> tuple[list[ShownBudget], int]:
    """Return the most used budgets, and how many are left out."""
    wanted = [each for each in budgets if not each.coming or each.exceeded]
    tight = sorted(range(len(wanted)), key=lambda nth: (_use(wanted[nth]), -nth), reverse=True)
    kept = sorted(tight[:most])
    return [_format_budget(wanted[nth]) for nth in kept], len(wanted) - len(kept)


def _use(budget: BudgetVerdict) -> Decimal:
    if budget.exceeded or not budget.known or not budget.limit:
        return Decimal("Infinity")
    return (budget.spent + budget.reserved + budget.planned) / budget.limit


def _format_budget(budget: BudgetVerdict) -> ShownBudget:
    return ShownBudget(
        budget=words.place(budget.path),
        when=budget.when,
        spent=_figure(budget.spent if budget.known else None),
        reserved=_figure(budget.reserved),
        planned=_figure(budget.planned),
        left=_figure(budget.left),
        limit=f"{words.rate(budget.limit)} {budget.unit}",
        note=_note(budget),
    )


def _figure(amount: Decimal | None) -> str:
    return words.UNKNOWN if amount is None else f"{amount:.2f}"


def _note(budget: BudgetVerdict) -> str:
    if not budget.known:
        return "spending unknown: no new machines under this budget"
    if budget.exceeded:
        return "exceeded: no new machines under this budget, running work ends normally"
    return ""


class ShownLimit(NamedTuple):
    """One limit as the cells of a row."""

    limit: str
    whose: str
    in_use: str
    given: str
    waiting: str
    most: str


def limits_section(limits: Sequence[LimitVerdict]) -> Iterator[Line]:
    """Yield the lines of a table of limits; none where nothing counts to any."""
    rows, hidden = shown_limits(limits)
    if not rows:
        return
    yield from _table(LIMIT_HEADINGS, rows)
    if hidden:
        yield line(f"  … and {words.many(hidden, 'limit')} with more left")


def shown_limits(
    limits: Sequence[LimitVerdict], most: int = _MOST
) -> tuple[list[ShownLimit], int]:
    """Return the most used limits, and how many are left out."""
    tight = sorted(range(len(limits)), key=lambda nth: (_left(limits[nth]), nth))
    return [_format_limit(limits[nth]) for nth in sorted(tight[:most])], len(limits[most:])


def _left(limit: LimitVerdict) -> tuple[bool, int]:
    """Return the sort key: limits with waiting requests first, then the least left."""
    return not limit.waiting, limit.limit - limit.in_use - limit.given


def _format_limit(limit: LimitVerdict) -> ShownLimit:
    is_of_all = limit.path[-1] == "total"
    return ShownLimit(
        limit=words.place(limit.path),
        whose="all" if is_of_all else limit.who or words.UNKNOWN,
        in_use=str(limit.in_use),
        given=str(limit.given),
        waiting=str(limit.waiting),
        most=str(limit.limit),
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Line]:
    first, *others = headings
    heading = [Span(f"{first}s", Style.BOLD), *(Span(each.lower(), Style.DIM) for each in others)]
    cells = [[Span(f"  {name}"), *map(Span, figures)] for name, *figures in rows]
    return table([heading, *cells], right=range(2, len(headings)))
