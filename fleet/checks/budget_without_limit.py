"""This module finds budgets that limit nothing."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, Path
from fleet.schema.limits import Budget
from fleet.schema.model import Fleet, Pool
from fleet.schema.pools import PoolBudget

_MONEY = "per_hour, per_day or per_month"
_BOTH = "per_hour, per_day, per_month or machine_hours_per_day"


def budget_without_limit(fleet: Fleet) -> Iterator[Finding]:
    """Warn of each budget, of a pool or under `budgets`, that has no figure."""
    for name, pool in fleet.pools.items():
        if isinstance(pool, Pool) and pool.budget is not None:
            yield from _figureless(pool.budget, ("pools", name, "budget"), _MONEY)
    for name, budget in fleet.budgets.items():
        yield from _figureless(budget, ("budgets", name), _BOTH)


def _figureless(budget: Budget | PoolBudget, path: Path, keys: str) -> Iterator[Finding]:
    if any("per_" in key and value is not None for key, value in budget):
        return
    message, hint = "this budget has no figure: it limits nothing", f"add {keys}, or remove it"
    yield Finding("budget-without-limit", message, path, severity="warning", at="key", hint=hint)
