"""This module says what a fleet.yaml looks at in Debusine's requests; alike in that are one group.

Which tags a request requires, its task and its priority are always looked at: they decide what
may run it, how long it takes and when. Who asked for a tag Debusine does not tell, so of the
people of `asked_by` nothing is looked at here.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fleet.schema.model import Fleet, Pool
from fleet.tagrules.told import ENVIRONMENTS

_SOURCE_BUILD = ("build_components",)
_ARCHITECTURE = ("build_architecture", "host_architecture")


@dataclass(frozen=True)
class Looks:
    """What is looked at."""

    provided: Collection[str] = frozenset()
    """Tags that some worker or pool requires of requests; others of theirs decide nothing."""
    paths: tuple[str, ...] = ()
    """Places in task data, sorted."""
    package: bool = False
    workspace: bool = False
    scope: bool = False
    submitter: bool = False
    environments: bool = False
    history: bool = False


def looks_of(fleet: Fleet, required_by_workers: Iterable[str] = ()) -> Looks:
    """Return what this fleet.yaml looks at, beside workers that require these tags."""
    pools = (pool for pool in fleet.pools.values() if isinstance(pool, Pool))
    by_pools = {tag for pool in pools for tag in pool.requires}
    named = bool(fleet.powerful)
    history = any(rule.history is not None for rule in fleet.derive)
    per = {
        field
        for rule in fleet.tags.values()
        for field, most in rule.limits.per
        if most is not None
    }
    return Looks(
        provided=frozenset(by_pools | set(required_by_workers)),
        paths=_paths(fleet, named=named),
        package=named or history,
        workspace=named,
        scope=named or "scope" in per or any(b.scope is not None for b in fleet.budgets.values()),
        submitter="submitter" in per,
        environments=any(rule.lookup == ENVIRONMENTS for rule in fleet.derive),
        history=history,
    )


def _paths(fleet: Fleet, *, named: bool) -> tuple[str, ...]:
    paths = {rule.from_ for rule in fleet.derive if rule.from_ is not None}
    if named or any(rule.source_build is not None for rule in fleet.derive):
        paths |= set(_SOURCE_BUILD)
    if named:
        paths |= set(_ARCHITECTURE)
    return tuple(sorted(paths))
