"""What is wrong or unwise in budgets, state, and what expires."""

from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from fleet.schema.findings import Finding, Path
from fleet.schema.limits import Budget
from fleet.schema.model import DebusineQueue, Fleet, Pool, StaticPool
from fleet.schema.pools import PoolBudget
from fleet.tagrules.numbers import tag_name
from fleet.tagrules.sources import pool_sources
from fleet.tagrules.vocabulary import mentions


def budget_counts_nothing(fleet: Fleet) -> Iterator[Finding]:
    """Warn of a scope that no queue is read for, and of a tag that nothing provides or asks."""
    scopes = _scopes(fleet)
    provided = {tag_name(p.tag) for name in fleet.pools for p in pool_sources(fleet, name, ())}
    known = provided | {tag_name(m.tag) for m in mentions(fleet)}
    for name, budget in fleet.budgets.items():
        if scopes and budget.scope is not None and budget.scope not in scopes:
            yield Finding(
                "budget-counts-nothing",
                f"no queue is read for scope '{budget.scope}': this budget counts nothing",
                ("budgets", name, "scope"),
                severity="warning",
                hint=f"one of: {', '.join(sorted(scopes))}",
            )
        for number, tag in enumerate(budget.tags):
            if fleet.pools and tag_name(tag) not in known:
                yield Finding(
                    "budget-counts-nothing",
                    f"nothing provides or asks for {tag}: this budget counts none of its work",
                    ("budgets", name, "tags", number),
                    severity="warning",
                    hint="write the tag as `provides` of a pool does, or remove it",
                )


def _scopes(fleet: Fleet) -> frozenset[str]:
    """Return every scope that has work; empty where some queue does not say its own."""
    queues = [queue for queue in fleet.queues.values() if isinstance(queue, DebusineQueue)]
    if len(queues) < len(fleet.queues):
        return frozenset()
    return frozenset(scope for queue in queues for scope in queue.scopes)


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


def state_without_passphrase(fleet: Fleet) -> Iterator[Finding]:
    """Warn where an apply would make no machine: the real engine encrypts what it records."""
    if fleet.state.passphrase is not None:
        return
    used = {pool.provider for pool in fleet.pools.values() if not isinstance(pool, StaticPool)}
    for name, provider in fleet.providers.items():
        if name in used and provider.engine == "pulumi":
            yield Finding(
                "state-without-passphrase",
                f"the engine of provider '{name}' encrypts what it records, and no passphrase is "
                "named for it: `fleet apply` makes no machine there",
                ("providers", name),
                severity="warning",
                at="key",
                hint="add `state: {passphrase: {env: FLEET_PASSPHRASE}}`",
            )


class Dated(NamedTuple):
    """What has a last day, and what to do about it afterwards, in the last week and before."""

    path: Path
    what: str
    day: date
    afterwards: str
    last_week: str
    before: str = ""
    """Empty of an approval, which is for one change: some weeks are as it should be."""


def expired(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Warn of what does nothing any more."""
    for each in dated(fleet):
        if each.day < today:
            message = f"{each.what} expired on {each.day}: it does nothing any more"
            yield Finding("expired", message, each.path, severity="warning", hint=each.afterwards)


def dated(fleet: Fleet) -> Iterator[Dated]:
    """Yield the rules of the allow-list and the approvals that have a last day."""
    for number, rule in enumerate(fleet.powerful):
        if rule.expires is not None:
            whom = rule.contact or "its contact"
            yield Dated(
                path=("powerful", number, "expires"),
                what="this rule",
                day=rule.expires,
                afterwards="remove it, or give it a later date",
                last_week=f"ask {whom} now, then move the date or remove it",
                before=f"ask {whom} whether it is still needed",
            )
    for number, approval in enumerate(fleet.approvals):
        new = "write a new one for the machines that are still to go"
        yield Dated(
            path=("approvals", number, "expires"),
            what="this approval",
            day=approval.expires,
            afterwards=f"remove it, or {new}",
            last_week=f"if it will not be used up, {new}",
        )


_SOON = 30
_VERY_SOON = 7


def expires_soon(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Warn 30 and 7 days before a rule stops working, 7 days before an approval does."""
    for each in dated(fleet):
        left = (each.day - today).days
        if 0 <= left <= _VERY_SOON:
            message = f"{each.what} expires {_when(each.day, left)}: from then on it does nothing"
            yield Finding(
                "expires-soon", message, each.path, severity="warning", hint=each.last_week
            )
        elif 0 <= left <= _SOON and each.before:
            message = f"{each.what} expires {_when(each.day, left)}"
            yield Finding("expires-soon", message, each.path, severity="warning", hint=each.before)


def _when(day: date, left: int) -> str:
    if left == 0:
        return "at the end of today"
    return f"on {day}, in 1 day" if left == 1 else f"on {day}, in {left} days"
