"""This module says what budgets limit: how much, in which period, of whose machine time."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from fleet.catalogue import convert
from fleet.demand.choices import Group, Path
from fleet.facts import Work
from fleet.facts.ledger import Charge, Entry
from fleet.plan.money import PeriodName
from fleet.schema.limits import Budget
from fleet.schema.model import Fleet, Money, Pool

HOURS = "machine hours"
PERIODS: tuple[PeriodName, ...] = ("hour", "day", "month")


@dataclass(frozen=True)
class SpendingLimit:
    """One figure of one budget, in the currency of the file or in machine hours."""

    budget: str
    path: Path
    period: PeriodName
    amount: Decimal | None
    """None where its currency has no exchange rate."""
    unit: str
    pool: str | None = None
    """The pool whose budget it is; None: it is one of `budgets`."""
    only: Budget | None = None
    """Whose work it counts; None: all machine time, boot and idle included."""

    def counts(self, of: Charge | Entry) -> bool:
        """Say whether what was charged counts here."""
        if self.pool is not None:
            return of.pool == self.pool
        return self.only is None or _is_of(self.only, of, frozenset(of.tags))

    def counts_work(self, work: Work | None) -> bool:
        """Say whether running work counts here, where only work does."""
        if work is None or self.only is None:
            return False
        return _is_of(self.only, work, frozenset(work.required))

    def counts_group(self, group: Group) -> bool:
        """Say whether waiting requests count here, where only work does."""
        return self.only is not None and _is_of(self.only, group.payer, group.tags)


def _is_of(only: Budget, who: object, tags: frozenset[str]) -> bool:
    wanted = ((field, getattr(only, field)) for field in ("scope", "team", "owner"))
    if any(value is not None and getattr(who, field) != value for field, value in wanted):
        return False
    return not only.tags or not tags.isdisjoint(only.tags)


def spending_limits(fleet: Fleet) -> tuple[SpendingLimit, ...]:
    """Return every figure of every budget: those of pools, then `budgets`, by name."""
    return (*_pool_limits(fleet), *_limits(fleet))


def _pool_limits(fleet: Fleet) -> Iterator[SpendingLimit]:
    for name, pool in sorted(fleet.pools.items()):
        if isinstance(pool, Pool) and pool.budget is not None:
            for period in PERIODS:
                amount: Money | None = getattr(pool.budget, f"per_{period}")
                if amount is not None:
                    path = ("pools", name, "budget", f"per_{period}")
                    converted = convert(fleet, amount.amount, amount.currency)
                    yield SpendingLimit(
                        name, path, period, converted, fleet.money.currency, pool=name
                    )


def _limits(fleet: Fleet) -> Iterator[SpendingLimit]:
    for name, budget in sorted(fleet.budgets.items()):
        only = budget if _filters(budget) else None
        for period in PERIODS:
            amount: Money | None = getattr(budget, f"per_{period}")
            if amount is not None:
                path = ("budgets", name, f"per_{period}")
                converted = convert(fleet, amount.amount, amount.currency)
                yield SpendingLimit(name, path, period, converted, fleet.money.currency, only=only)
            hours: int | None = getattr(budget, f"machine_hours_per_{period}")
            if hours is not None:
                path = ("budgets", name, f"machine_hours_per_{period}")
                yield SpendingLimit(name, path, period, Decimal(hours), HOURS, only=only)


def _filters(budget: Budget) -> bool:
    return bool(budget.scope or budget.team or budget.owner or budget.tags)
