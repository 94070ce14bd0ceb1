"""The page of money: this month by pool, scope and team, with budgets and a projection."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from fleet.model.facts import Unknown
from fleet.model.plan import BudgetVerdict
from fleet.model.values import amount_of, in_cents
from fleet.site.charges import Cost, MonthCost
from fleet.site.history import past_of
from fleet.site.pages import MONEY, Page, Shown
from fleet.words import figures as words

_MAX_ROWS = 100
"""Maximum payers with their own row in each table; the last row is the sum of all others."""


BudgetRow = tuple[BudgetVerdict, str, float | None, str]
"""A budget, its projection for the end of the month, used percentage, and problem, if any.

The projection is empty if the budget is not monthly. The percentage is None if it is unknown.
"""
PayerRow = tuple[Cost, *tuple[str, ...]]
"""The cost of a payer, and its amounts in cents, so that each column adds up to its total."""


def money(shown: Shown) -> Iterator[Page]:
    """Yield the page of money."""
    found = shown.money
    known = None if isinstance(found, Unknown) else found
    history = shown.history
    plots = None
    if not isinstance(history, Unknown):
        plots = past_of(history.fleet, shown.plan.currency)
        plots = plots._replace(panels=plots.panels[-1:])
    values = {
        "money": known,
        "because": found.unknown if isinstance(found, Unknown) else "",
        "groupings": [
            ("pool", _payer_rows("pool", known.pools)),
            ("scope", _payer_rows("scope", known.scopes)),
            ("team", _payer_rows("team", known.teams)),
        ]
        if known
        else (),
        "powerful": shown.powerful[:_MAX_ROWS],
        "more_powerful": len(shown.powerful[_MAX_ROWS:]),
        "budgets": [budget_row(each, known) for each in shown.plan.budgets if not each.coming],
        "past": plots,
        "no_past": history.unknown if isinstance(history, Unknown) else "",
    }
    yield Page(MONEY, "money.html", values)


def budget_row(budget: BudgetVerdict, money: MonthCost | None) -> BudgetRow:
    """Return the row of a budget."""
    projected = money.projected.get(budget.path) if money else None
    spent, limit, used = amount_of(budget.spent), budget.limit, None
    if spent is not None:
        used = round(float(min(Decimal(100), 100 * spent / limit)), 1) if limit else 100.0
    said = words.UNKNOWN if budget.period == "month" else ""
    said = said if projected is None else f"{projected:.2f}"
    return budget, said, used, _note(budget, projected)


def _note(budget: BudgetVerdict, projected: Decimal | None) -> str:
    if amount_of(budget.spent) is None:
        return "spending unknown: no new machines under this budget"
    if budget.exceeded:
        return "exceeded: no new machines under this budget"
    if projected is not None and projected > budget.limit:
        return f"above the limit by {projected - budget.limit:.2f} at the end of the month"
    return words.near_limit(budget)


def _payer_rows(noun: str, costs: Sequence[Cost]) -> Sequence[PayerRow]:
    """Return the rows of the payers of one kind. The last row is the sum of those not shown."""
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
    columns = ("month", "projected", "week", "today")
    return [
        *zip(costs, *(_column([getattr(e, name) for e in costs]) for name in columns), strict=True)
    ]


def _column(amounts: Sequence[Decimal | None]) -> list[str]:
    """Round amounts to cents that add up to the rounded total; keep unknown amounts."""
    shown = iter(in_cents([amount for amount in amounts if amount is not None]))
    return [words.cents(None if amount is None else next(shown)) for amount in amounts]


def _total(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if len(known) == len(amounts) else None
