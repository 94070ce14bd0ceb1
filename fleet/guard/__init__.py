"""Decide which actions of a plan may run now, by the guards of fleet.yaml.

Guards throttle actions that demand causes: a limited number now, the others in later runs. Guards
refuse actions that a change of config or image, or lost data, causes, if they exceed a limit and
have no approval. Every limit applies per pool and to the whole fleet, by share and by count. A
refusal withholds only the actions of its pool. All guards decide before the first change.

Start reading with `guard` below. `refusals.py` has the limits, `freezes.py` the freezes of
operators, `approvals.py` the exceptions.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal

from fleet.guard.freezes import withhold_frozen
from fleet.guard.refusals import (
    GuardDecision,
    pools_with,
    refuse_cost,
    refuse_delete,
    refuse_rivalled,
    throttle,
    withhold_untested,
)
from fleet.model.decisions import Decision, NoMachineReason, SizeReason
from fleet.model.digests import seal
from fleet.model.plan import (
    Action,
    ApprovalVerdict,
    Blocked,
    Create,
    GuardResult,
    Plan,
    PoolVerdict,
    Release,
    Signature,
    Unserved,
)
from fleet.schema.model import DebusineQueue, Fleet, has_no_usable_queue
from fleet.words import guards as words
from fleet.words.pools import describe_size, size_decision

_ADMIN_HINT = (
    "add `admin: {dsn: {env: FLEET_DEBUSINE_ADMIN_DSN}}` to the queue, or its admin "
    "command as a list: `admin: [ssh, debusine.example.org, debusine-admin]`"
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
        *(_withhold_observed, withhold_frozen, _refuse_unregistrable, refuse_rivalled),
        *(withhold_untested, refuse_delete, refuse_cost, throttle),
    )
    for hold in guards:
        left: Sequence[Action] = plan.actions
        if withheld:
            left = [action for action in left if action.worker not in withheld]
        for held in hold(fleet, plan, left):
            results.append(held.result)
            for worker, approval in held.approved.items():
                approved[worker].add(approval)
            withheld |= {action.worker: held for action in held.withheld}
    if not results:
        return plan
    kept = tuple(action for action in plan.actions if action.worker not in withheld)
    releases = tuple(release for release in plan.releases if release.worker not in withheld)
    by_pool: defaultdict[str, list[Action]] = defaultdict(list)
    unserved: Counter[str] = Counter()
    for action in plan.actions:
        if action.worker not in withheld:
            by_pool[action.pool].append(action)
        elif isinstance(action, Create):
            unserved[action.pool] += len(action.serves)
    reduced = {action.pool for action in plan.actions if action.worker in withheld}
    pools = tuple(
        _recount(each, by_pool[each.pool], unserved[each.pool]) if each.pool in reduced else each
        for each in plan.pools
    )
    approvals = tuple(
        _add_passes(approval, approved, (*kept, *releases)) for approval in plan.approvals
    )
    guarded = plan.altered(
        actions=kept,
        withheld=tuple(action for action in plan.actions if action.worker in withheld),
        releases=releases,
        unreleased=tuple(release for release in plan.releases if release.worker in withheld),
        guards=tuple(results),
        approvals=approvals,
        pools=pools,
        signatures=tuple(_remove_withheld(signature, withheld) for signature in plan.signatures),
        unserved=(*plan.unserved, *_find_unserved(plan, withheld)),
        optimum=plan.optimum_of(kept),
        cost_after=sum((pool.cost_after for pool in pools), Decimal(0)),
    )
    return seal(guarded) if plan.digests.plan else guarded


def _add_passes(
    approval: ApprovalVerdict,
    approved: Mapping[str, Collection[str]],
    kept: Sequence[Action | Release],
) -> ApprovalVerdict:
    """Return an approval that lists the actions it passes, except withheld actions."""
    passes = [each.worker for each in kept if approval.digest in approved.get(each.worker, ())]
    return approval.altered(passes=tuple(passes))


def _remove_withheld(signature: Signature, withheld: Mapping[str, GuardDecision]) -> Signature:
    """Return a signature without assignments of its requests to withheld creations."""
    coming = {key: name for key, name in signature.by_create.items() if name not in withheld}
    return signature.altered(by_create=coming)


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
        yield _withhold_all(result, verdict, own)


def _refuse_unregistrable(
    fleet: Fleet, plan: Plan, actions: Sequence[Action]
) -> Iterator[GuardDecision]:
    """Refuse creations of machines whose workers could not register at a queue."""
    creates = [action for action in actions if isinstance(action, Create)]
    for verdict, own in pools_with(plan, creates):
        registries = {action.registry for action in own}
        if None in registries and has_no_usable_queue(fleet, fleet.pools.get(verdict.pool)):
            without = [action for action in own if action.registry is None]
            because = words.explain_no_registry(verdict.pool, len(without))
            path = ("pools", verdict.pool, "provider")
            way_out = (
                "let the pool serve a queue of kind debusine or tickets, or set `mode: observe` "
                "on it"
            )
            yield _withhold_all(
                _build_refusal("unappliable", because, path, way_out), verdict, without
            )
        for queue in sorted(filter(None, registries)):
            if not _has_admin(fleet, queue):
                lacking = [action for action in own if action.registry == queue]
                because = words.explain_no_admin(queue, verdict.pool, len(lacking))
                refused = _build_refusal("unappliable", because, ("queues", queue), _ADMIN_HINT)
                yield _withhold_all(refused, verdict, lacking)


def _has_admin(fleet: Fleet, queue: str) -> bool:
    """Return True if fleet has admin access to a queue and can register workers there."""
    declared = fleet.queues.get(queue)
    return isinstance(declared, DebusineQueue) and declared.admin is not None


def _build_refusal(
    guard: str, because: str, path: tuple[str | int, ...], way_out: str
) -> GuardResult:
    return GuardResult(guard=guard, result="refused", because=because, path=path, way_out=way_out)


def _withhold_all(
    blank: GuardResult, verdict: PoolVerdict, own: Sequence[Action]
) -> GuardDecision:
    """Return a decision that withholds the actions `own` of a pool, with their number."""
    result = blank.altered(
        pool=verdict.pool, count=len(own), of=verdict.machines, withheld=len(own)
    )
    return GuardDecision(result, own)
