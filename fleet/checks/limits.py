"""Checks of budgets, of state settings, and of expiry dates."""

from collections.abc import Iterator, Mapping
from datetime import date
from decimal import ROUND_UP, Decimal
from typing import NamedTuple

from fleet.model.prices import bill, convert, find_types, markets_of, tariff_of
from fleet.schema.findings import Finding, Path, nearest, unwise
from fleet.schema.model import Budget, DebusineQueue, Fleet, Money
from fleet.schema.pools import PoolBudget
from fleet.tagrules.sources import pool_sources
from fleet.tagrules.vocabulary import Vocabulary, mentions, tag_name

_ZERO = Decimal(0)
_CENT = Decimal("0.01")


def budget_counts_nothing(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a budget whose scope or tag no queue, pool or request has."""
    if not fleet.budgets:
        return
    scopes = _scopes(fleet)
    provided = {tag_name(p.tag) for name in fleet.pools for p in pool_sources(fleet, name, ())}
    known = provided | {tag_name(m.tag) for m in mentions(fleet) if m.role == "asked"}
    numeric = Vocabulary(fleet).numeric
    for name, budget in fleet.budgets.items():
        if scopes and budget.scope is not None and budget.scope not in scopes:
            yield unwise(
                f"no queue has scope '{budget.scope}', so this budget never applies",
                ("budgets", name, "scope"),
                hint=f"one of: {', '.join(sorted(scopes))}",
            )
        for number, tag in enumerate(budget.tags):
            if tag_name(tag) in numeric:
                yield unwise(
                    f"{tag_name(tag)} is a number, so this budget never counts it",
                    ("budgets", name, "tags", number),
                    hint="name a plain tag, which requests with such a minimum ask for too",
                )
            elif fleet.pools and tag_name(tag) not in known:
                yield unwise(
                    f"nothing provides or asks for {tag}, so this budget never counts it",
                    ("budgets", name, "tags", number),
                    hint=f"did you mean '{near}'?"
                    if (near := nearest(tag_name(tag), known))
                    else "spell it as in `provides` of a pool, or remove it",
                )


def _scopes(fleet: Fleet) -> frozenset[str]:
    """Return the scopes of all queues; empty if a queue has unknown scopes."""
    queues = [queue for queue in fleet.queues.values() if isinstance(queue, DebusineQueue)]
    if len(queues) < len(fleet.queues):
        return frozenset()
    return frozenset(scope for queue in queues for scope in queue.scopes)


_POOL_KEYS = "per_hour, per_day or per_month"
_FLEET_KEYS = "per_hour, per_day, per_month or machine_hours_per_day"


def budget_without_limit(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a budget without a limit, in a pool or under `budgets`."""
    for name, pool in fleet.dynamic_pools.items():
        if pool.budget is not None:
            yield from _check_budget(pool.budget, ("pools", name, "budget"), _POOL_KEYS)
    for name, budget in fleet.budgets.items():
        yield from _check_budget(budget, ("budgets", name), _FLEET_KEYS)


def _check_budget(budget: Budget | PoolBudget, path: Path, keys: str) -> Iterator[Finding]:
    if any("per_" in key and value is not None for key, value in budget):
        return
    message, hint = "this budget sets no limit", f"add {keys}, or remove the budget"
    yield unwise(message, path, at="key", hint=hint)


class BudgetNeed(NamedTuple):
    """Waiting builds that each need more than a whole budget."""

    builds: int
    needed: Decimal
    """The largest amount that one of them needs."""
    unit: str


def budget_below_one_build(needs: Mapping[Path, BudgetNeed]) -> Iterator[Finding]:
    """Warn about a budget that is smaller than one recorded build needs, so that it never starts.

    `needs` has the budgets that stop builds in the plan of a recorded world.
    """
    for path, need in sorted(needs.items()):
        least = f"{need.needed.quantize(_CENT, ROUND_UP)} {need.unit}"
        builds = f"{need.builds:,} recorded builds" if need.builds > 1 else "1 recorded build"
        one = "one needs up to" if need.builds > 1 else "it needs"
        yield unwise(
            f"{builds} can never start: {one} {least}, more than {path[-1]}",
            path,
            hint=f"raise {path[-1]} to at least {least}",
        )


_HOURS = {"per_hour": 1, "per_day": 24, "per_month": 28 * 24}
"""Period to its minimum number of hours; a month has at least 28 days."""


def min_above_budget(fleet: Fleet) -> Iterator[Finding]:
    """Warn if the machines of `workers.min` or `workers.spare` alone exceed their budget."""
    warm = {
        name: max(pool.workers.min, pool.workers.spare)
        for name, pool in fleet.dynamic_pools.items()
        if pool.mode in {"apply", "observe"} and pool.workers.min + pool.workers.spare > 0
    }
    for name, count in warm.items():
        budget = fleet.dynamic_pools[name].budget
        if budget is not None:
            yield from _check_warm(fleet, {name: count}, budget, ("pools", name, "budget"))
    for name, shared in fleet.budgets.items() if warm else ():
        if not shared.is_filtered:
            yield from _check_warm(fleet, warm, shared, ("budgets", name))


def _check_warm(
    fleet: Fleet, warm: Mapping[str, int], budget: Budget | PoolBudget, path: Path
) -> Iterator[Finding]:
    """Yield a warning for each limit of a budget that the permanent machines alone exceed."""
    machines = sum(warm.values())
    noun = "machine" if machines == 1 else "machines"
    whose = f"pool {next(iter(warm))} keeps" if len(warm) == 1 else f"{len(warm)} pools keep"
    for key, hours in _HOURS.items():
        per = key.removeprefix("per_")
        limits: list[tuple[str, Decimal | None, Decimal, str]] = []
        amount: Money | None = getattr(budget, key)
        if amount is not None:
            limit = convert(fleet, amount.amount, amount.currency)
            cost = sum((count * _least_cost(fleet, n, hours) for n, count in warm.items()), _ZERO)
            limits.append((key, limit, cost, fleet.money.currency))
        most: int | None = getattr(budget, f"machine_hours_{key}", None)
        if most is not None:
            used = Decimal(machines * hours)
            limits.append((f"machine_hours_{key}", Decimal(most), used, "machine hours"))
        for field, limit, cost, unit in limits:
            if limit is not None and cost > limit:
                enough = cost.quantize(_CENT, ROUND_UP)
                yield unwise(
                    f"{whose} {machines} {noun} for workers.min or workers.spare: at least "
                    f"{enough} {unit} per {per}, more than {field}; fleet creates fewer",
                    (*path, field),
                    hint=f"raise {field} to at least {enough} {unit}, or lower min and spare",
                )


def _least_cost(fleet: Fleet, name: str, hours: int) -> Decimal:
    """Return the cost of the pool's cheapest machine for some hours; 0 if unknown."""
    pool = fleet.dynamic_pools[name]
    tariffs = [
        tariff_of(fleet, pool, each.name, market)
        for each in find_types(fleet, pool)
        for market in markets_of(pool)
    ]
    return min((bill(each, hours * 3600) for each in tariffs if each), default=_ZERO)


def state_without_passphrase(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a provider whose engine needs a passphrase that is not configured."""
    if fleet.state.passphrase is not None:
        return
    used = {pool.provider for pool in fleet.dynamic_pools.values()}
    for name, provider in fleet.providers.items():
        if name in used and provider.engine == "pulumi":
            yield unwise(
                f"provider '{name}' needs a passphrase to encrypt stack state; until then "
                "`fleet apply` creates no machines there",
                ("providers", name),
                at="key",
                hint="add `state: {passphrase: {env: FLEET_PASSPHRASE}}`",
            )


class Dated(NamedTuple):
    """An entry that expires, and the advice in its last weeks, its last week and afterwards."""

    path: Path
    what: str
    day: date
    afterwards: str
    last_week: str
    before: str = ""
    """Advice before the last week; empty for an approval, which is always short."""


def expired(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Warn about rules and approvals whose last day is over."""
    for each in dated(fleet):
        if each.day < today:
            message = f"{each.what} expired on {each.day} and has no effect"
            yield unwise(message, each.path, hint=each.afterwards)


def dated(fleet: Fleet) -> Iterator[Dated]:
    """Yield the rules of the allow-list and the approvals that have a last day."""
    for number, rule in enumerate(fleet.powerful):
        if rule.expires is not None:
            whom = rule.contact or "its contact"
            yield Dated(
                path=("powerful", number, "expires"),
                what="this rule",
                day=rule.expires,
                afterwards="remove it, or set a later date",
                last_week=f"ask {whom} now, then set a later date or remove it",
                before=f"ask {whom} whether it is still needed",
            )
    for number, approval in enumerate(fleet.approvals):
        new = "write a new one for the remaining machines"
        yield Dated(
            path=("approvals", number, "expires"),
            what="this approval",
            day=approval.expires,
            afterwards=f"remove it, or {new}",
            last_week=f"if it will not be used up by then, {new}",
        )


_SOON = 30
_VERY_SOON = 7
_TODAY = "at the end of today"


def expires_soon(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Warn 30 and 7 days before a rule expires, and 7 days before an approval expires."""
    for each in dated(fleet):
        left = (each.day - today).days
        hint = each.last_week if left <= _VERY_SOON else each.before
        if 0 <= left <= _SOON and hint:
            when = f"on {each.day}, in {left} day{'s' * (left > 1)}" if left else _TODAY
            then = ", then it has no effect" if left <= _VERY_SOON else ""
            yield unwise(f"{each.what} expires {when}{then}", each.path, hint=hint)
