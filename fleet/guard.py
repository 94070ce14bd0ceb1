"""This module holds a plan to the limits of fleet.yaml before anything is changed.

What demand causes is throttled: the first N now, the rest next run. What a change of config
or lost knowledge causes is refused above its limit. Every limit counts per pool and for the
whole fleet, by share and by count, and a refusal withholds that pool's actions only.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal

from fleet.catalogue import convert
from fleet.checks.not_yet_supported import unenforced_protections
from fleet.digests import seal
from fleet.plan import (
    Action,
    Blocked,
    Cause,
    Create,
    GuardResult,
    Plan,
    PoolVerdict,
    Signature,
    Unserved,
)
from fleet.schema.model import Fleet, Pool

_Result = tuple[GuardResult, Collection[Action]]
"""What a guard said, and the actions it withholds."""


def guard(fleet: Fleet, plan: Plan) -> Plan:
    """Return the plan with every guard's result, and without the actions they withhold."""
    results: list[GuardResult] = []
    withheld: dict[str, GuardResult] = {}
    for hold in (_observed, _unenforced, _unappliable, _refuse_delete, _refuse_cost, _throttle):
        left = [action for action in plan.actions if action.worker not in withheld]
        for result, actions in hold(fleet, plan, left):
            results.append(result)
            withheld |= {action.worker: result for action in actions}
    kept = tuple(action for action in plan.actions if action.worker not in withheld)
    held = tuple(action for action in plan.actions if action.worker in withheld)
    by_pool: defaultdict[str, list[Action]] = defaultdict(list)
    for action in kept:
        by_pool[action.pool].append(action)
    pools = tuple(_recount(pool, by_pool[pool.pool]) for pool in plan.pools)
    guarded = plan.model_copy(
        update={
            "actions": kept,
            "withheld": held,
            "guards": tuple(results),
            "pools": pools,
            "signatures": tuple(_without(signature, withheld) for signature in plan.signatures),
            "unserved": (*plan.unserved, *_kept_waiting(plan, withheld)),
            "cost_after": sum((pool.cost_after for pool in pools), Decimal(0)),
        }
    )
    return seal(guarded)


def _without(signature: Signature, withheld: Mapping[str, GuardResult]) -> Signature:
    """Return a signature whose requests are not said to be served by what is withheld."""
    coming = {key: name for key, name in signature.by_create.items() if name not in withheld}
    return signature.model_copy(update={"by_create": coming})


def _kept_waiting(plan: Plan, withheld: Mapping[str, GuardResult]) -> Iterator[Unserved]:
    """Yield the requests whose machine a guard withholds, by signature and guard."""
    pools = {action.worker: action.pool for action in plan.actions}
    for signature in plan.signatures:
        by_guard: defaultdict[int, list[str]] = defaultdict(list)
        for key, worker in signature.by_create.items():
            if worker in withheld:
                by_guard[id(withheld[worker])].append(key)
        for keys in by_guard.values():
            worker = signature.by_create[keys[0]]
            result = withheld[worker]
            because = f"a guard keeps the machine back: {result.because}"
            yield Unserved(
                signature=signature.id,
                requests=tuple(keys),
                count=len(keys),
                because=because,
                path=result.path,
                blocked=(Blocked(pool=pools[worker], because=because, path=result.path),),
            )


def _recount(pool: PoolVerdict, own: Sequence[Action]) -> PoolVerdict:
    change = sum(
        (
            action.cost if isinstance(action, Create) else -action.saves
            for action in own
            if action.action != "drain"
        ),
        Decimal(0),
    )
    return pool.model_copy(
        update={
            "create": sum(action.action == "create" for action in own),
            "drain": sum(action.action == "drain" for action in own),
            "delete": sum(action.action == "delete" for action in own),
            "cost_after": pool.cost_before + change,
            "because": f"{pool.because}; a guard keeps back {held} of them"
            if (held := pool.create - sum(action.action == "create" for action in own))
            else pool.because,
        }
    )


def _observed(_: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_Result]:
    """Withhold everything in pools whose mode is observe."""
    observed = {verdict.pool for verdict in plan.pools if verdict.mode == "observe"}
    ours = [action for action in actions if action.pool in observed]
    for pool, _held, own in _by_pool_then_fleet(plan, ours):
        if pool is not None:
            because = f"pool {pool} has mode: observe: {_many(own, 'action')} only shown"
            path = ("pools", pool, "mode")
            yield (
                GuardResult(
                    guard="mode", pool=pool, result="throttled", because=because, path=path
                ),
                own,
            )


def _unenforced(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_Result]:
    """Refuse to buy machines under a limit that this version does not enforce yet."""
    for path, pools in unenforced_protections(fleet):
        for pool in (verdict.pool for verdict in plan.pools if verdict.pool in pools):
            own = [a for a in actions if a.pool == pool and isinstance(a, Create)]
            if own:
                key = ".".join(str(part) for part in path)
                because = (
                    f"{key} limits pool {pool}, and this version does not enforce it yet: "
                    f"{_many(own, 'creation')} withheld"
                )
                way_out = f"remove {key}, or set `mode: observe` on the pool and only plan"
                yield (
                    GuardResult(
                        guard="unenforced",
                        pool=pool,
                        result="refused",
                        because=because,
                        path=path,
                        way_out=way_out,
                    ),
                    own,
                )


def _unappliable(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_Result]:
    """Refuse to buy machines whose workers could never register: they would only cost."""
    ours = [
        action
        for action in actions
        if isinstance(action, Create) and _kind(fleet, action.pool) == "hcloud"
    ]
    for pool, _held, own in _by_pool_then_fleet(plan, ours):
        if pool is not None:
            because = (
                f"machines of pool {pool} would never register: this version plans for "
                f"providers of kind hcloud, but gives their workers no token yet: "
                f"{_many(own, 'creation')} withheld"
            )
            result = GuardResult(
                guard="unappliable",
                pool=pool,
                result="refused",
                because=because,
                path=("pools", pool, "provider"),
                way_out="set `mode: observe` on the pool and only plan",
            )
            yield result, own


def _kind(fleet: Fleet, pool: str) -> str:
    declared = fleet.pools.get(pool)
    provider = fleet.providers.get(declared.provider) if isinstance(declared, Pool) else None
    return provider.kind if provider else ""


def _many(actions: Sequence[Action], word: str) -> str:
    return f"{len(actions)} {word} is" if len(actions) == 1 else f"{len(actions)} {word}s are"


def _refuse_delete(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_Result]:
    """Refuse deletions that a change of config or lost knowledge causes, above share or count."""
    limit = fleet.guards.refuse.delete
    way_out = (
        "check that the change means this; then raise guards.refuse.delete in the same "
        "merge request, and lower it again afterwards"
    )
    removals = [a for a in actions if a.action != "create" and _by_config(a)]
    refused: set[str] = set()
    for pool, held, found in _by_pool_then_fleet(plan, removals):
        ours = [action for action in found if action.worker not in refused]
        share = 100 * len(ours) / held if held else 0
        if len(ours) <= limit.count and share <= limit.share:
            continue
        refused |= {action.worker for action in ours}
        where = f"pool {pool}" if pool else "the fleet"
        because = (
            f"{len(ours)} of {held} machines of {where} would go because of a change of "
            f"config ({share:.0f}%); allowed are {limit.share}% and at most {limit.count}"
        )
        yield (
            GuardResult(
                guard="delete",
                pool=pool,
                result="refused",
                because=because,
                path=("guards", "refuse", "delete"),
                way_out=way_out,
            ),
            ours,
        )


def _refuse_cost(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_Result]:
    """Refuse creations that a change of config causes when they cost too much per hour."""
    limit = fleet.guards.refuse.cost_increase
    if limit is None:
        return
    most = convert(fleet, limit.amount, limit.currency)
    ours = [a for a in actions if isinstance(a, Create) and _by_config(a)]
    cost = sum((action.cost for action in ours), Decimal(0))
    if not ours or (most is not None and cost <= most):
        return
    because = (
        f"{len(ours)} creations caused by config would add {cost.normalize():f} "
        f"{plan.currency}/h; allowed is {limit}/h"
    )
    way_out = "raise guards.refuse.cost_increase in the merge request that means this"
    path = ("guards", "refuse", "cost_increase")
    yield (
        GuardResult(
            guard="cost_increase",
            pool=None,
            result="refused",
            because=because,
            path=path,
            way_out=way_out,
        ),
        ours,
    )


def _throttle(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_Result]:
    """Keep the first in the order of service, and leave the rest to the next run."""
    create, delete = fleet.guards.throttle.create, fleet.guards.throttle.delete

    def may_create(held: int) -> int:
        # A share that comes to less than one machine would keep a small pool from ever growing.
        grown = max(held, create.free_below, 1) * create.share // 100
        return min(create.count, max(grown, min(create.share, 1)))

    def may_delete(_: int) -> int:
        return delete.count

    for kind, most, path in (
        ("create", may_create, ("guards", "throttle", "create")),
        ("drain", may_delete, ("guards", "throttle", "delete")),
        ("delete", may_delete, ("guards", "throttle", "delete")),
    ):
        yield from _throttle_kind(plan, actions, kind=kind, most=most, path=path)


def _throttle_kind(
    plan: Plan,
    actions: Sequence[Action],
    *,
    kind: str,
    most: Callable[[int], int],
    path: tuple[str, ...],
) -> Iterator[_Result]:
    # What config removes is held by `refuse`; what it creates grows in steps like any other.
    ours = [a for a in actions if a.action == kind and (kind == "create" or not _by_config(a))]
    held_back: set[str] = set()
    for pool, held, found in _by_pool_then_fleet(plan, sorted(ours, key=_turn)):
        left = [action for action in found if action.worker not in held_back]
        allowed = most(held)
        later = left[allowed:]
        if not later:
            continue
        held_back |= {action.worker for action in later}
        where = f"pool {pool}" if pool else "the fleet"
        because = (
            f"{len(left)} to {kind} in {where}, which holds {held}: "
            f"the first {allowed} now, the rest next run"
        )
        yield (
            GuardResult(
                guard=f"throttle-{kind}", pool=pool, result="throttled", because=because, path=path
            ),
            later,
        )


def _by_config(action: Action) -> bool:
    return action.cause is Cause.CONFIG


def _turn(action: Action) -> int:
    return action.turn if isinstance(action, Create) else 0


def _by_pool_then_fleet(
    plan: Plan, actions: Sequence[Action]
) -> Iterator[tuple[str | None, int, Sequence[Action]]]:
    """Yield each pool that has such actions, then the fleet (None): machines held, actions."""
    by_pool: defaultdict[str, list[Action]] = defaultdict(list)
    for action in actions:
        by_pool[action.pool].append(action)
    total = 0
    for verdict in plan.pools:
        held = verdict.busy + verdict.idle + verdict.starting + verdict.other
        total += held if verdict.mode != "static" else 0
        if by_pool[verdict.pool]:
            yield verdict.pool, held, by_pool[verdict.pool]
    if actions:
        yield None, total, actions
