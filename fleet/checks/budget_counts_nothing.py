"""This module finds budgets of work that there is none of: a scope or a tag that nothing has."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import DebusineQueue, Fleet
from fleet.tagrules.mentions import mentions
from fleet.tagrules.numbers import tag_name
from fleet.tagrules.sources import pool_sources


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
