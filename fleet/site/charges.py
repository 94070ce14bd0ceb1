"""The cost of the month so far by pool, scope and team, with budgets and a projection.

Like the sums of budgets, these sums include the ledger and the time since its last charge. The
rows of each grouping add up to the total.

The projection adds the average cost per hour of the last seven days for each remaining hour of the
month. If these days are unknown, it uses the average of this month.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from fleet.model.facts import Charge, Ledger, Unknown, World
from fleet.planner.budgets import HOURS, PERIODS, SpendingLimit, spending_limits
from fleet.planner.inventory import charges_of, take_inventory
from fleet.planner.ledger import as_charge, charge_all, charges_until_now, periods
from fleet.schema.model import Fleet

WEEK = timedelta(days=7)
_MIN_BASIS = timedelta(hours=6)
"""Minimum time on which a projection is based."""
_DAY_INDEX = 1
_MONTH_INDEX = 2
_HOUR = timedelta(hours=1)
PAID_BY_POOLS = "paid by pools"


@dataclass(frozen=True)
class RecentCharges:
    """Charges of the last days; index 1 (day) of `money` and `seconds` has the whole amount."""

    since: datetime
    """Seven days before `until`, or the time of the first charge if that is later."""
    until: datetime
    charges: tuple[Charge, ...]


@dataclass(frozen=True)
class Cost:
    """The cost of one payer, in the currency of the fleet."""

    name: str
    seconds: int
    """Machine time in this month, in seconds."""
    today: Decimal
    month: Decimal
    week: Decimal | None
    """Cost of the last seven days; None if unknown."""
    projected: Decimal | None
    """Projected cost at the end of the month; None if no projection is possible."""


@dataclass(frozen=True)
class MonthCost:
    """The cost of the month so far, and its projection."""

    start: datetime
    end: datetime
    """Start of the next month."""
    until: datetime
    """The time until which the cost is known."""
    week_since: datetime | None
    """Start of the recent charges; None if these are unknown."""
    total: Cost
    pools: tuple[Cost, ...]
    scopes: tuple[Cost, ...]
    teams: tuple[Cost, ...]
    projected: dict[tuple[str | int, ...], Decimal]
    """Path of each monthly budget in fleet.yaml to its projected amount at the month's end."""


def money_of(
    fleet: Fleet, world: World, recent: RecentCharges | None = None
) -> MonthCost | Unknown:
    """Return the cost of this month; Unknown if the ledger is unreadable or was never charged."""
    ledger = world.ledger
    if isinstance(ledger, Unknown):
        return ledger
    if ledger.charged_until is None:
        return Unknown(unknown="nothing was charged yet; `fleet apply` does it")
    month = periods(fleet, world.time)[_MONTH_INDEX]
    inventory = take_inventory(fleet, world)
    charges = charges_until_now(fleet, world, inventory)
    until = max(ledger.charged_until, world.time)
    last: tuple[Charge, ...] | None = None
    if recent is not None:
        # Index 1 (day) of each of these charges has the whole amount.
        kept = Ledger(charged_until=recent.until, charges=recent.charges)
        before = charges_of(fleet, world.altered(ledger=kept))
        # The hour of an entry may have started before a new fleet's first run.
        since = charge_all(fleet, world, inventory).entries
        last = (*before, *(as_charge(entry, [entry.hour] * len(PERIODS)) for entry in since))
    length = min(until, month.end) - month.start if recent is None else until - recent.since
    project = _projection(length, month.end - min(until, month.end), is_month=recent is None)

    def by(name_of: Callable[[Charge], str]) -> tuple[Cost, ...]:
        names = sorted({name_of(each) for each in (*charges, *(last or ()))})
        parts = group_charges(charges, name_of), group_charges(last or (), name_of)
        costs = [
            _cost(name, parts[0][name], None if last is None else parts[1][name], project)
            for name in names
        ]
        return tuple(sorted(costs, key=lambda each: (-each.month, -(each.week or 0), each.name)))

    return MonthCost(
        start=month.start,
        end=month.end,
        until=until,
        week_since=recent.since if recent else None,
        total=_cost("", charges, last, project),
        pools=by(lambda charge: charge.pool),
        scopes=by(lambda charge: name_payer(charge, charge.scope, "scope")),
        teams=by(lambda charge: name_payer(charge, charge.team, "team")),
        projected={
            limit.path: found
            for limit in spending_limits(fleet)
            if limit.period == "month"
            and (found := _project_budget(limit, charges, last, project)) is not None
        },
    )


_Projection = Callable[[Decimal, Decimal | None], Decimal | None]
"""Function (cost this month, cost of the last days or None) -> projected cost or None."""


def _projection(basis: timedelta, left: timedelta, *, is_month: bool) -> _Projection:
    """Return a projection from the average cost in the time `basis`; `is_month`: this month."""

    def project(month: Decimal, last: Decimal | None) -> Decimal | None:
        known = month if is_month else last
        if known is None or basis < _MIN_BASIS:
            return None
        return month + known / Decimal(basis / _HOUR) * Decimal(left / _HOUR)

    return project


def group_charges(
    charges: Iterable[Charge], name_of: Callable[[Charge], str]
) -> defaultdict[str, list[Charge]]:
    """Map the name of each payer to its charges."""
    found: defaultdict[str, list[Charge]] = defaultdict(list)
    for each in charges:
        found[name_of(each)].append(each)
    return found


def _cost(
    name: str, charges: Sequence[Charge], last: Sequence[Charge] | None, project: _Projection
) -> Cost:
    month = _sum(charges, _MONTH_INDEX)
    week = None if last is None else _sum(last, _DAY_INDEX)
    return Cost(
        name=name,
        seconds=sum(charge.seconds[_MONTH_INDEX] for charge in charges),
        today=_sum(charges, _DAY_INDEX),
        month=month,
        week=week,
        projected=project(month, week),
    )


def _sum(charges: Iterable[Charge], period: int) -> Decimal:
    return sum((charge.money[period] for charge in charges), Decimal(0))


def name_payer(charge: Charge, name: str | None, noun: str) -> str:
    """Return the payer's name; for None, a phrase for work without a payer or idle machines."""
    if name is not None:
        return name
    is_work = charge.scope or charge.team or charge.owner or charge.tags
    article = "an" if noun.startswith(("a", "e", "i", "o", "u")) else "a"
    return f"work without {article} {noun}" if is_work else PAID_BY_POOLS


def _project_budget(
    limit: SpendingLimit,
    charges: Iterable[Charge],
    last: Iterable[Charge] | None,
    project: _Projection,
) -> Decimal | None:
    """Return the projected amount of a budget at the end of the month; None if unknown."""

    def total(of: Iterable[Charge], period: int) -> Decimal:
        counted = [charge for charge in of if limit.counts(charge)]
        if limit.unit == HOURS:
            return Decimal(sum(charge.seconds[period] for charge in counted)) / 3600
        return _sum(counted, period)

    return project(total(charges, _MONTH_INDEX), None if last is None else total(last, _DAY_INDEX))
