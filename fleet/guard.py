"""This module holds a plan to the limits of fleet.yaml before anything is changed.

What demand causes is throttled: the first N now, the rest next run. What a change of config
or lost knowledge causes is refused above its limit. Every limit counts per pool and for the
whole fleet, by share and by count, and a refusal withholds that pool's actions only.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal

from fleet.catalogue import convert
from fleet.checks.not_yet_supported import unenforced_protections
from fleet.digests import seal
from fleet.plan import Action, Cause, Create, GuardResult, Plan, PoolVerdict
from fleet.schema.model import Fleet

_Result = tuple[GuardResult, Collection[Action]]
"""What a guard said, and the actions it withholds."""


def guard(fleet: Fleet, plan: Plan) -> Plan:
    """Return the plan with every guard's result, and without the actions they withhold."""
    results: list[GuardResult] = []
    withheld: set[str] = set()
    for hold in (_observed, _unenforced, _refuse_delete, _refuse_cost, _throttle):
        left = [action for action in plan.actions if action.worker not in withheld]
        for result, actions in hold(fleet, plan, left):
            results.append(result)
            withheld |= {action.worker for action in actions}
    kept = tuple(action for action in plan.actions if action.worker not in withheld)
    held = tuple(action for action in plan.actions if action.worker in withheld)
    pools = tuple(_recount(pool, kept) for pool in plan.pools)
    guarded = plan.model_copy(
        update={
            "actions": kept,
            "withheld": held,
            "guards": tuple(results),
            "pools": pools,
            "cost_after": sum((pool.cost_after for pool in pools), Decimal(0)),
        }
    )
    return seal(guarded)


def _recount(pool: PoolVerdict, kept: Sequence[Action]) -> PoolVerdict:
    own = [action for action in kept if action.pool == pool.pool]
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
        }
    )


def _observed(_: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_Result]:
    """Withhold everything in pools whose mode is observe."""
    for pool in plan.pools:
        own = [action for action in actions if action.pool == pool.pool]
        if pool.mode == "observe" and own:
            because = f"pool {pool.pool} has mode: observe: {len(own)} actions are only shown"
            path = ("pools", pool.pool, "mode")
            yield (
                GuardResult(
                    guard="mode", pool=pool.pool, result="throttled", because=because, path=path
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
                    f"{len(own)} creations are withheld"
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


def _refuse_delete(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_Result]:
    """Refuse deletions that a change of config or lost knowledge causes, above share or count."""
    limit = fleet.guards.refuse.delete
    way_out = (
        "check that the change means this; then raise guards.refuse.delete in the same "
        "merge request, and lower it again afterwards"
    )
    refused: set[str] = set()
    for pool in [*(verdict.pool for verdict in plan.pools), None]:
        removals = [a for a in actions if _is_removal_by_config(a) and a.worker not in refused]
        held, ours = _count(plan, removals, pool)
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
    ours = [a for a in actions if isinstance(a, Create) and a.cause is Cause.CONFIG]
    cost = sum((action.cost for action in ours), Decimal(0))
    if most is not None and cost <= most:
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
    """Keep the first of what demand causes, and leave the rest to the next run."""
    create, delete = fleet.guards.throttle.create, fleet.guards.throttle.delete

    def may_create(held: int) -> int:
        return min(create.count, max(held, create.free_below) * create.share // 100)

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
    held_back: set[str] = set()

    def is_ours(action: Action) -> bool:
        by_demand = action.cause is not Cause.CONFIG
        return action.action == kind and by_demand and action.worker not in held_back

    for pool in [*(verdict.pool for verdict in plan.pools), None]:
        (held, ours) = _count(plan, [a for a in actions if is_ours(a)], pool)
        allowed = most(held)
        if len(ours) <= allowed:
            continue
        where = f"pool {pool}" if pool else "the fleet"
        because = (
            f"{len(ours)} to {kind} in {where}, which holds {held}: "
            f"the first {allowed} now, the rest next run"
        )
        later = ours[allowed:]
        held_back |= {action.worker for action in later}
        yield (
            GuardResult(
                guard=f"throttle-{kind}", pool=pool, result="throttled", because=because, path=path
            ),
            later,
        )


def _count(plan: Plan, ours: Sequence[Action], pool: str | None) -> tuple[int, list[Action]]:
    held = sum(
        verdict.busy + verdict.idle + verdict.starting + verdict.other
        for verdict in plan.pools
        if verdict.mode != "static" and pool in (None, verdict.pool)
    )
    return held, [action for action in ours if pool in (None, action.pool)]


def _is_removal_by_config(action: Action) -> bool:
    return action.action != "create" and action.cause is Cause.CONFIG
