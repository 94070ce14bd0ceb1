"""This module holds what the guards share: what they withhold, and what each pool holds.

Growth is measured from at least `free_below`, so that a pool can start from zero and return to
it. Fleet-wide each pool gets its first one before any gets more, so that a pool whose machines
cannot be had does not use up the growth of all others run after run. What an apply that was
killed had begun passed these limits then, and is never held back.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.model.plan import Action, Cause, Create, GuardResult, Plan, PoolVerdict, Reason, Release
from fleet.schema.limits import ThrottleCreate
from fleet.schema.model import Fleet


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


_CREATE = ("guards", "throttle", "create")
_DELETE = ("guards", "throttle", "delete")


def throttle(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[Held]:
    """Keep the first in the order of service, and leave the rest to the next run."""
    create, delete = fleet.guards.throttle.create, fleet.guards.throttle.delete
    limits = (
        ("create", lambda held: _may_create(create, held), _CREATE, _said(create)),
        ("drain", lambda _: delete.count, _DELETE, f"at most {delete.count}"),
        ("delete", lambda _: delete.count, _DELETE, f"at most {delete.count}"),
    )
    for kind, most, path, limit in limits:
        # What config removes is held by `refuse`; what it creates grows in steps like any other.
        ours = [a for a in actions if a.action == kind and _is_paced(a)]
        blank = GuardResult(
            guard=f"throttle-{kind}", result="throttled", because="", path=path, limit=limit
        )
        yield from _throttle_kind(plan, ours, most, blank)


def _may_create(limit: ThrottleCreate, held: int) -> int:
    # A share that comes to less than one machine would keep a small pool from ever growing.
    grown = max(held, limit.free_below, 1) * limit.share // 100
    return min(limit.count, max(grown, min(limit.share, 1)))


def _said(limit: ThrottleCreate) -> str:
    return f"{limit.share}% of at least {limit.free_below}, and at most {limit.count}"


def _is_paced(action: Action) -> bool:
    return isinstance(action, Create) or action.cause is Cause.DEMAND


def _throttle_kind(
    plan: Plan, ours: Sequence[Action], most: Callable[[int], int], blank: GuardResult
) -> Iterator[Held]:
    kept: list[Action] = []
    for verdict, found in pools_with(plan, ours):
        passing, later = _split(found, most(held_by(verdict)))
        kept += passing
        if later:
            yield _held(blank, verdict.pool, (len(found), held_by(verdict)), later)
    total = held_by_fleet(plan)
    passing, later = _split(kept, most(total))
    if later:
        yield _held(blank, None, (len(kept), total), later)


def _split(actions: Sequence[Action], allowed: int) -> tuple[list[Action], list[Action]]:
    """Return what goes now and what goes later: begun before, each pool's first, then the rest."""
    if len(actions) <= allowed:
        return [*actions], []
    in_turn = sorted(actions, key=_turn)
    begun = [action for action in in_turn if action.reason is Reason.INTERRUPTED]
    fresh = [action for action in in_turn if action.reason is not Reason.INTERRUPTED]
    firsts = list({action.pool: action for action in reversed(fresh)}.values())
    firsts.sort(key=_turn)
    first_names = {action.worker for action in firsts}
    rest = [action for action in fresh if action.worker not in first_names]
    allowed = max(0, allowed - len(begun))
    return [*begun, *[*firsts, *rest][:allowed]], [*firsts, *rest][allowed:]


def _held(
    blank: GuardResult, pool: str | None, count_of: tuple[int, int], later: Sequence[Action]
) -> Held:
    count, of = count_of
    kind = blank.guard.removeprefix("throttle-")
    where = f"pool {pool}" if pool else "the fleet"
    result = blank.model_copy(
        update={
            "pool": pool,
            "because": f"{count} to {kind} in {where}, which holds {of}: "
            f"the first {count - len(later)} now, the rest next run",
            "count": count,
            "of": of,
            "withheld": len(later),
        }
    )
    return Held(result, later)


def _turn(action: Action) -> int:
    return action.turn if isinstance(action, Create) else 0
