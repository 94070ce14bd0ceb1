"""This module says what a fleet.yaml looks at in Debusine's requests; alike in that are one group.

Which tags a request requires, its task and its priority are always looked at: they decide what
may run it, how long it takes and when. Who asked for a tag Debusine does not tell, so of the
people of `asked_by` nothing is looked at here. Of a request's name, which the allow-list and
histories look at, only what they make of it matters: see `packages`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fleet.demand.durations import patterns_of
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.told import ENVIRONMENTS

_SOURCE_BUILD = "build_components"
ARCHITECTURE_FIELDS = ("build_architecture", "host_architecture")
NAMED_PATHS = (*ARCHITECTURE_FIELDS, _SOURCE_BUILD)
"""Places in task data that a request's name may be made of, sorted."""


@dataclass(frozen=True)
class Looks:
    """What is looked at."""

    provided: Collection[str] = frozenset()
    """Tags that some worker or pool requires of requests; others of theirs decide nothing."""
    paths: tuple[str, ...] = ()
    """Places in task data, sorted."""
    scope: bool = False
    submitter: bool = False
    environments: bool = False
    named: bool = False
    history: bool = False


def looks_of(fleet: Fleet, required_by_workers: Iterable[str] = ()) -> Looks:
    """Return what this fleet.yaml looks at, beside workers that require these tags."""
    pools = (pool for pool in fleet.pools.values() if isinstance(pool, Pool))
    by_pools = {tag for pool in pools for tag in pool.requires}
    paths = {rule.from_ for rule in fleet.derive if rule.from_ is not None}
    if any(rule.source_build is not None for rule in fleet.derive):
        paths.add(_SOURCE_BUILD)
    per = {
        field
        for rule in fleet.tags.values()
        for field, most in rule.limits.per
        if most is not None
    }
    return Looks(
        provided=frozenset(by_pools | set(required_by_workers)),
        paths=tuple(sorted(paths)),
        scope="scope" in per or any(b.scope is not None for b in fleet.budgets.values()),
        submitter="submitter" in per,
        environments=any(rule.lookup == ENVIRONMENTS for rule in fleet.derive),
        named=bool(fleet.powerful or patterns_of(fleet)),
        history=any(rule.history is not None for rule in fleet.derive),
    )
