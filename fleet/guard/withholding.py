"""This module holds what the guards share: what they withhold, and what each pool holds."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.plan import Action, Plan, PoolVerdict, Release
from fleet.plan.guard_results import GuardResult


@dataclass(frozen=True)
class Held:
    """What a guard said, what it withholds, and the workers that approvals let pass."""

    result: GuardResult
    withheld: Collection[Action | Release] = ()
    approved: Mapping[str, str] = field(default_factory=dict)
    """Worker to the digest of the approval that lets it pass."""


def held_by(verdict: PoolVerdict) -> int:
    """Return how many machines a pool holds."""
    return verdict.busy + verdict.idle + verdict.starting + verdict.other


def held_by_fleet(plan: Plan) -> int:
    """Return how many machines the fleet holds, static ones aside."""
    return sum(held_by(verdict) for verdict in plan.pools if verdict.mode != "static")


def by_pool(actions: Sequence[Action]) -> Mapping[str, list[Action]]:
    """Return actions by pool; a pool without any has an empty list."""
    found: defaultdict[str, list[Action]] = defaultdict(list)
    for action in actions:
        found[action.pool].append(action)
    return found


def pools_with(
    plan: Plan, actions: Sequence[Action]
) -> Iterator[tuple[PoolVerdict, Sequence[Action]]]:
    """Yield each pool that has such actions, with them."""
    found = by_pool(actions)
    for verdict in plan.pools:
        if found[verdict.pool]:
            yield verdict, found[verdict.pool]


def many(count: int, word: str) -> str:
    """Return a count with its word and verb: 1 action is, 2 actions are."""
    return f"{count} {word} is" if count == 1 else f"{count} {word}s are"
