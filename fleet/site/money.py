"""The page of money: this month by pool, scope and team, with budgets and a projection."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from fleet.model.facts import Unknown
from fleet.model.figures import amount_of
from fleet.model.money import in_cents
from fleet.model.plan import BudgetVerdict
from fleet.schema.findings import yaml_key
from fleet.site.charges import Cost, MonthCost
from fleet.site.history import past_of
from fleet.site.links import MONEY
from fleet.site.pages import Page, Shown
from fleet.words import figures as words

_MAX_ROWS = 100
"""Maximum payers with their own row in each table; the last row is the sum of all others."""


class BudgetRow(NamedTuple):
    """A budget in its current period, and its projection to the end of the month."""

    name: str
    path: str
    when: str
    spent: str
    reserved: str
    """Expected cost of existing machines and assigned work, including this plan."""
    used: float | None
    """Used percentage of the limit; None if unknown."""
    projected: str
    """Projected amount at the end of the month; empty if the budget is not monthly."""
    left: str
    limit: str
    note: str
    """The current or expected problem; empty without a problem."""


class PayerRow(NamedTuple):
    """The cost of one payer, rounded to cents so that each column adds up to its total."""

    cost: Cost
    month: str
    projected: str
    week: str
    today: str


class Grouping(NamedTuple):
    """The month by one kind of payer, for example by pool; the rows add up to the total."""

    noun: str
    rows: tuple[PayerRow, ...]
    hidden: int
    """Number of payers that the last row contains."""


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
            _grouping("pool", known.pools),
            _grouping("scope", known.scopes),
            _grouping("team", known.teams),
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
    is_month, spent = budget.period == "month", amount_of(budget.spent)
    return BudgetRow(
        name=budget.budget,
        path=yaml_key(budget.path),
        when=budget.when,
        spent=words.amount(budget.spent),
        reserved=words.UNKNOWN
        if spent is None
        else words.amount(budget.reserved + budget.planned),
        used=None if spent is None else _share(spent, budget.limit),
        projected=("" if not is_month else words.UNKNOWN)
        if projected is None
        else f"{projected:.2f}",
        left=words.amount(budget.left),
        limit=f"{words.rate(budget.limit)} {budget.unit}",
        note=_note(budget, projected),
    )


def _share(spent: Decimal, limit: Decimal) -> float:
    return round(float(min(Decimal(100), 100 * spent / limit)), 1) if limit else 100.0


def _note(budget: BudgetVerdict, projected: Decimal | None) -> str:
    if amount_of(budget.spent) is None:
        return "spending unknown: no new machines under this budget"
    if budget.exceeded:
        return "exceeded: no new machines under this budget"
    if projected is not None and projected > budget.limit:
        return f"above the limit by {projected - budget.limit:.2f} at the end of the month"
    return words.near_limit(budget)


def _grouping(noun: str, costs: Sequence[Cost]) -> Grouping:
    rest = costs[_MAX_ROWS:]
    if not rest:
        return Grouping(noun, _payer_rows(costs), 0)
    others = Cost(
        name=f"{len(rest):,} other {noun}s",
        seconds=sum(each.seconds for each in rest),
        today=sum((each.today for each in rest), Decimal(0)),
        month=sum((each.month for each in rest), Decimal(0)),
        week=_total([each.week for each in rest]),
        projected=_total([each.projected for each in rest]),
    )
    return Grouping(noun, _payer_rows([*costs[:_MAX_ROWS], others]), len(rest))


def _payer_rows(costs: Sequence[Cost]) -> tuple[PayerRow, ...]:
    columns = (_column([getattr(each, name) for each in costs]) for name in PayerRow._fields[1:])
    return tuple(PayerRow(*cells) for cells in zip(costs, *columns, strict=True))


def _column(amounts: Sequence[Decimal | None]) -> list[str]:
    """Round amounts to cents that add up to the rounded total; keep unknown amounts."""
    shown = iter(in_cents([amount for amount in amounts if amount is not None]))
    return [words.cents(None if amount is None else next(shown)) for amount in amounts]


def _total(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if len(known) == len(amounts) else None
