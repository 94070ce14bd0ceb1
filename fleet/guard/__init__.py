"""Decide which actions of a plan may run now, by the guards of fleet.yaml.

Guards throttle actions that demand causes: a limited number now, the others in later runs. Guards
refuse actions that a change of config or image, or lost data, causes, if they exceed a limit and
have no approval. Every limit applies per pool and to the whole fleet, by share and by count. A
refusal withholds only the actions of its pool. All guards decide before the first change.

Start reading with `guard` below, which also has the freezes of operators. `refusals.py` has the
limits, `approvals.py` the exceptions.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from fleet.guard.refusals import (
    GuardDecision,
    by_pool,
    decide,
    pools_with,
    refuse_cost,
    refuse_delete,
    refuse_rivalled,
    throttle,
    withhold_untested,
)
from fleet.model.decisions import Decision, NoMachineReason, SizeReason
from fleet.model.digests import seal
from fleet.model.orders import Freeze, Frozen, Hold, Order
from fleet.model.plan import (
    Action,
    Blocked,
    Cause,
    Create,
    Delete,
    Drain,
    GuardResult,
    Plan,
    PoolVerdict,
    Reason,
    Release,
    Unserved,
)
from fleet.schema.model import DebusineQueue, Fleet, has_no_usable_queue
from fleet.words import guards as words
from fleet.words.pools import describe_size, size_decision

_ADMIN_HINT = (
    "add `admin: {dsn: {env: FLEET_DEBUSINE_ADMIN_DSN}}` to the queue, or its admin "
    "command as a list: `admin: [ssh, debusine.example.org, debusine-admin]`"
)
_SERVE_HINT = (
    "let the pool serve a queue of kind debusine or tickets, or set `mode: observe` on it"
)
_Guard = Callable[[Fleet, Plan, Sequence[Action]], Iterator[GuardDecision]]


def guard(fleet: Fleet, plan: Plan) -> Plan:
    """Return the plan with the result of every guard, and without the withheld actions.

    If the plan has digests, compute them again.
    """
    results: list[GuardResult] = []
    withheld: dict[str, GuardDecision] = {}
    approved: defaultdict[str, set[str]] = defaultdict(set)
    guards: tuple[_Guard, ...] = (
        *(_withhold_observed, _withhold_frozen, _refuse_unregistrable, refuse_rivalled),
        *(withhold_untested, refuse_delete, refuse_cost, throttle),
    )
    left: Sequence[Action] = plan.actions
    for hold in guards:
        for held in hold(fleet, plan, left):
            results.append(held.result)
            for worker, approval in held.approved.items():
                approved[worker].add(approval)
            withheld |= {action.worker: held for action in held.withheld}
        if withheld:
            left = [action for action in left if action.worker not in withheld]
    if not results:
        return plan
    kept, releases = tuple(left), [r for r in plan.releases if r.worker not in withheld]
    stopped = tuple(action for action in plan.actions if action.worker in withheld)
    unserved: Counter[str] = Counter()
    for action in stopped:
        unserved[action.pool] += len(action.serves) if isinstance(action, Create) else 0
    own = by_pool(kept)
    pools = tuple(
        _recount(each, own[each.pool], unserved[each.pool]) if each.pool in unserved else each
        for each in plan.pools
    )
    passed = [(each.worker, approved[each.worker]) for each in (*kept, *releases)]
    approvals = tuple(
        each.altered(passes=tuple(worker for worker, digests in passed if each.digest in digests))
        for each in plan.approvals
    )
    guarded = plan.altered(
        actions=kept,
        withheld=stopped,
        releases=tuple(releases),
        unreleased=tuple(release for release in plan.releases if release.worker in withheld),
        guards=tuple(results),
        approvals=approvals,
        pools=pools,
        signatures=tuple(
            each.altered(
                by_create={k: name for k, name in each.by_create.items() if name not in withheld}
            )
            for each in plan.signatures
        ),
        unserved=(*plan.unserved, *_find_unserved(plan, withheld)),
        optimum=plan.optimum_of(kept),
        cost_after=sum((pool.cost_after for pool in pools), Decimal(0)),
    )
    return seal(guarded) if plan.digests.plan else guarded


def _find_unserved(plan: Plan, withheld: Mapping[str, GuardDecision]) -> Iterator[Unserved]:
    """Yield an entry, per signature and guard, for requests whose new machine is withheld."""
    pools = {action.worker: action.pool for action in plan.actions}
    for signature in plan.signatures:
        by_guard: defaultdict[int, list[str]] = defaultdict(list)
        for key, worker in signature.by_create.items():
            if worker in withheld:
                by_guard[id(withheld[worker])].append(key)
        for keys in by_guard.values():
            worker = signature.by_create[keys[0]]
            result, until = withheld[worker].result, withheld[worker].until
            because = words.explain_withheld(result.because)
            blocked = Blocked(
                pool=pools[worker], because=because, path=result.path, code="guard", until=until
            )
            yield Unserved(
                signature=signature.id,
                requests=tuple(keys),
                count=len(keys),
                because=because,
                path=result.path,
                blocked=(blocked,),
                decisions=(
                    Decision(
                        code=NoMachineReason.GUARD,
                        subject=(pools[worker],),
                        key=result.path,
                        message=because,
                    ),
                ),
            )


def _recount(pool: PoolVerdict, own: Sequence[Action], unserved: int) -> PoolVerdict:
    """Return a pool's entry for the passing actions. `unserved` counts the waiting requests."""
    change = sum(
        (
            action.cost if isinstance(action, Create) else -action.saves
            for action in own
            if action.action != "drain"
        ),
        Decimal(0),
    )
    kinds = Counter(action.action for action in own)
    served = pool.served - unserved
    size = [each for each in pool.decisions if each.code is not SizeReason.SERVES]
    size[:0] = [size_decision(SizeReason.SERVES, pool.pool, served)] if served else []
    if unmade := pool.create - kinds["create"]:
        size.append(size_decision(SizeReason.GUARD_WITHHOLDS, pool.pool, unmade, waiting=unserved))
    if kept := pool.drain + pool.delete - kinds["drain"] - kinds["delete"]:
        size.append(size_decision(SizeReason.GUARD_KEEPS, pool.pool, kept))
    return pool.altered(
        create=kinds["create"],
        drain=kinds["drain"],
        delete=kinds["delete"],
        cost_after=pool.cost_before + change,
        because=describe_size(size),
        decisions=tuple(size),
        served=served,
    )


def _withhold_observed(_: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[GuardDecision]:
    """Withhold all actions in pools with `mode: observe`."""
    observed = {verdict.pool for verdict in plan.pools if verdict.mode == "observe"}
    shown = [action for action in actions if action.pool in observed] if observed else []
    for verdict, own in pools_with(plan, shown):
        because = words.explain_observe_mode(verdict.pool, len(own))
        path = ("pools", verdict.pool, "mode")
        result = GuardResult(guard="mode", result="throttled", because=because, path=path)
        yield decide(plan, verdict, own, result)


def _withhold_frozen(
    fleet: Fleet, plan: Plan, actions: Sequence[Action]
) -> Iterator[GuardDecision]:
    """Withhold the actions that a freeze forbids; yield a decision per freeze and pool.

    A freeze never prevents the enforcement of a budget: workers that a used-up budget cannot pay
    for are drained, and if existing machines exceed it, unneeded machines are drained and deleted.
    """
    found: defaultdict[tuple[str, str], list[Action | Release]] = defaultdict(list)
    orders = [each for each in plan.orders if isinstance(each, Freeze)]
    # Report the freeze that ends last, because it withholds the actions longest.
    orders.sort(key=lambda order: (order.is_precaution, order.until), reverse=True)
    freezes = {each.key: each for each in orders}
    for order, action in find_stopped(fleet, plan, freezes.values(), (*actions, *plan.releases)):
        found[order.key, action.pool].append(action)
    sizes = {verdict.pool: verdict.machines for verdict in plan.pools}
    for (key, pool), own in sorted(found.items()):
        order = freezes[key]
        result = GuardResult(
            guard="freeze",
            pool=pool,
            result="throttled",
            because=words.explain_freeze(order.sentence, len(own)),
            way_out=command_to_end(order),
            count=len(own),
            of=sizes.get(pool, 0),
            withheld=len(own),
        )
        yield GuardDecision(result, own, until=order.ends)


def find_stopped(
    fleet: Fleet, plan: Plan, orders: Iterable[Order], actions: Iterable[Action | Release]
) -> Iterator[tuple[Freeze | Hold, Action | Release]]:
    """Yield (order, action) for each action that a freeze or hold forbids, by the first order."""
    # Pools whose existing machines, without new machines, exceed a budget.
    paths = {budget.path[:2] for budget in plan.budgets if budget.exceeded}
    of_all = [fleet.budgets[str(name)] for section, name in paths if section == "budgets"]
    over = {str(name) for section, name in paths if section == "pools"}
    if not all(budget.is_filtered for budget in of_all):
        over = {verdict.pool for verdict in plan.pools}
    stopping = [each for each in orders if isinstance(each, Freeze | Hold)]
    for action in actions:
        kind = _kind_to_freeze(action, over)
        for order in stopping:
            if isinstance(order, Hold):
                stops = order.machine == action.worker and isinstance(action, Delete)
            else:
                stops = order.pool in (None, action.pool) and kind in order.stops
            if stops:
                yield order, action
                break


def _kind_to_freeze(action: Action | Release, over: Collection[str]) -> Frozen | None:
    """Return the kind of freeze that forbids an action; None if no freeze may forbid it.

    That is the drain of a held machine, or an action that saves money of a budget that is used up,
    or exceeded in one of the pools `over`.
    """
    if isinstance(action, Create | Release):
        return "creates" if isinstance(action, Create) else "deletes"
    if isinstance(action, Drain) and action.reason is Reason.HELD:
        return None
    is_unneeded = action.cause is Cause.DEMAND and action.pool in over
    return None if is_unneeded or action.reason is Reason.BUDGET_USED_UP else "deletes"


def command_to_end(order: Freeze) -> str:
    """Return the command that ends a freeze, or that shows why fleet cannot read the orders."""
    if order.is_precaution:
        return "fleet doctor"
    return f"fleet freeze --pool {order.pool} --end" if order.pool else "fleet freeze --end"


def _refuse_unregistrable(
    fleet: Fleet, plan: Plan, actions: Sequence[Action]
) -> Iterator[GuardDecision]:
    """Refuse creations of machines whose workers could not register at a queue."""
    creates = [action for action in actions if isinstance(action, Create)]
    refused = GuardResult(guard="unappliable", result="refused", because="")
    for verdict, own in pools_with(plan, creates):
        by_registry: defaultdict[str, list[Action]] = defaultdict(list)
        for action in own:
            by_registry[action.registry or ""].append(action)
        for queue, lacking in sorted(by_registry.items()):
            declared = fleet.queues.get(queue)
            if queue and (not isinstance(declared, DebusineQueue) or declared.admin is None):
                because = words.explain_no_admin(queue, verdict.pool, len(lacking))
                ways = {"path": ("queues", queue), "way_out": _ADMIN_HINT}
            elif not queue and has_no_usable_queue(fleet, fleet.pools.get(verdict.pool)):
                because = words.explain_no_registry(verdict.pool, len(lacking))
                ways = {"path": ("pools", verdict.pool, "provider"), "way_out": _SERVE_HINT}
            else:
                continue
            yield decide(plan, verdict, lacking, refused.altered(because=because, **ways))
