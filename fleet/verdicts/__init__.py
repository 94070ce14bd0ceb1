"""This module writes the plan down: a verdict on each worker and pool, and the money."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache, partial

from fleet.allocate import Proof
from fleet.allocate.programme import GAP, NODES
from fleet.catalogue import type_names
from fleet.catalogue.listed import find_price_sources
from fleet.census.estimates import estimate_of
from fleet.census.freshness import demand_trouble
from fleet.census.renames import stack_name
from fleet.census.units import State, Unit
from fleet.demand import Signed, required_of
from fleet.draft import Draft, is_going
from fleet.draft.limits import is_booting
from fleet.draft.shortage import Used, find_unserved, used_of, why_stopped
from fleet.draft.staffing import Service
from fleet.exports.in_force import judge_rules, say_whether_in_force
from fleet.facts import World
from fleet.guard.approvals import judge_approvals, warn_of_approvals
from fleet.making.base_changes import find_base_changes
from fleet.plan import (
    Action,
    Create,
    Digests,
    Estimate,
    NotKnown,
    Plan,
    PoolVerdict,
    Reason,
    RefusedTag,
    RuledTag,
    Signature,
    TagDifference,
    Unserved,
    Warning_,
    WorkerVerdict,
    serves,
)
from fleet.plan.digests import config_digest, seal, world_digest
from fleet.plan.limits import LimitVerdict
from fleet.plan.money import BudgetVerdict, Optimum
from fleet.plan.rules import RulesVerdict
from fleet.schema.model import Fleet, Pool, Workers
from fleet.schema.units import write_count
from fleet.verdicts.attention import find_attention, find_unknown, warn_of_durations
from fleet.verdicts.bystanders import (
    find_contradictions,
    find_releases,
    gone_workers,
    static_pools,
    static_workers,
    unseen_workers,
    warn_of_queues,
)
from fleet.verdicts.heartbeats import warn_of_cadence
from fleet.verdicts.keeping import why_kept
from fleet.verdicts.promotions import find_promotions

_ORDER = {"create": 0, "drain": 1, "delete": 2}
_NEAR = (
    "there is so much to choose among that whole requests were only looked for near an answer "
    "that divides them"
)


@dataclass(frozen=True)
class Decided:
    """What was decided over all pools: who is served by what, and at what cost."""

    demand: Sequence[Signed]
    service: Service
    budgets: tuple[BudgetVerdict, ...] = ()
    limits: tuple[LimitVerdict, ...] = ()
    proof: Proof = field(default_factory=Proof)


def assemble(fleet: Fleet, world: World, drafts: Mapping[str, Draft], decided: Decided) -> Plan:
    """Return the plan that the drafts amount to."""
    unserved = tuple(find_unserved(fleet, world, drafts, decided.demand, decided.service))
    waiting, used = _waiting_for(unserved), used_of(decided.budgets)
    images = {name: draft.choice.images for name, draft in drafts.items()}
    pools = (
        *(_judge_pool(draft, waiting[draft.name], used) for draft in drafts.values()),
        *static_pools(fleet, world),
    )
    actions = _in_order(action for draft in drafts.values() for action in draft.actions)
    releases = tuple(find_releases(fleet, world, actions))
    known = {pool.pool for pool in pools} | {each.pool for each in releases}
    approvals = judge_approvals(fleet, world, known)
    moving = find_promotions(fleet, world, drafts)
    rules = tuple(judge_rules(fleet, world))
    plan = Plan(
        fleet=fleet.fleet,
        time=world.time,
        currency=fleet.money.currency,
        actions=actions,
        releases=releases,
        bases=tuple(find_base_changes(fleet, world)),
        promotions=moving.now,
        waiting_versions=moving.waiting,
        workers=tuple(_all_workers(fleet, world, drafts)),
        pools=tuple(sorted(pools, key=lambda pool: pool.pool)),
        signatures=_signatures(fleet, decided, drafts, rules),
        approvals=approvals,
        unserved=unserved,
        budgets=decided.budgets,
        limits=decided.limits,
        optimum=_optimum(decided),
        unknown=tuple(find_unknown(fleet, world, drafts)),
        rules=rules,
        prices=tuple(find_price_sources(fleet, world)),
        warnings=(
            *find_contradictions(fleet, world, images),
            *warn_of_approvals(approvals),
            *_warn(fleet, world, decided),
        ),
        rivals={q: r.rivals for q, r in sorted(world.queues.items()) if r.rivals},
        unread=tuple(q for q in sorted(world.queues) if demand_trouble(fleet, world, q)),
        estimates=tuple(_estimates(fleet, world)),
        attention=tuple(find_attention(world, drafts)),
        cost_before=sum((pool.cost_before for pool in pools), Decimal(0)),
        cost_after=sum((pool.cost_after for pool in pools), Decimal(0)),
        digests=Digests(config=config_digest(fleet), world=world_digest(world)),
    )
    return seal(plan.model_copy(update={"optimum": plan.optimum_of(actions)}))


def _warn(fleet: Fleet, world: World, decided: Decided) -> Iterator[Warning_]:
    yield from warn_of_cadence(fleet, world)
    yield from warn_of_durations(fleet, decided.demand, decided.budgets)
    yield from warn_of_queues(fleet, world, decided.demand)
    yield from _warn_of_longer(decided.proof)


def _warn_of_longer(proof: Proof) -> Iterator[Warning_]:
    """Warn of those who come early and may wait in favour of somebody who comes later."""
    longer: Counter[tuple[int, int]] = Counter()
    for (classed, queued, _), count in proof.longer:
        longer[classed, -queued] += count
    for (classed, priority), count in sorted(longer.items()):
        who = f"{write_count(count, 'request')} of priority {priority}"
        yield Warning_(
            rule="longer-than-necessary",
            message=f"up to {who}{' and tags of low priority' if classed else ''} may wait longer "
            f"than necessary: {_NEAR}",
        )


def _all_workers(
    fleet: Fleet, world: World, drafts: Mapping[str, Draft]
) -> Iterator[WorkerVerdict]:
    censuses = [draft.census for draft in drafts.values()]
    for draft in drafts.values():
        yield from _judge_workers(draft)
    yield from unseen_workers(censuses)
    yield from static_workers(fleet, world)
    seen = {unit.name for census in censuses for unit in (*census.units, *census.unseen)}
    yield from gone_workers(fleet, world, seen)


def _estimates(fleet: Fleet, world: World) -> Iterator[Estimate]:
    for queue in sorted(world.queues):
        estimate = estimate_of(fleet, world, queue)
        if estimate is not None and not demand_trouble(fleet, world, queue):
            yield estimate


def _in_order(actions: Iterator[Action]) -> tuple[Action, ...]:
    """Order actions by pool and kind; within a pool creations keep the order of service."""
    return tuple(sorted(actions, key=lambda action: (action.pool, _ORDER[action.action])))


def _judge_workers(draft: Draft) -> Iterator[WorkerVerdict]:
    actions = {action.worker: action for action in draft.actions}
    pool, staying = draft.name, len(draft.staying)
    for unit in draft.census.units:
        action = actions.pop(unit.name, None)
        reason, because = (
            (action.reason, action.because) if action else why_kept(draft, unit, staying)
        )
        yield WorkerVerdict(
            worker=unit.name,
            pool=pool,
            registry=unit.registry,
            verdict=action.action if action else "keep",
            reason=reason,
            because=because,
            state=unit.state.value,
            running=unit.worker.running if unit.worker else None,
            since=unit.since,
            image=unit.machine.image if unit.machine else None,
            type=unit.machine.type if unit.machine else None,
            cost=draft.cost_of(unit) or Decimal(0),
            cost_known=draft.cost_of(unit) is not None,
            outdated=draft.gives_way(unit),
            inactive=unit.state is State.DISABLED,
        )
    for action in actions.values():
        if isinstance(action, Create):
            yield WorkerVerdict(
                worker=action.worker,
                pool=pool,
                verdict="create",
                reason=action.reason,
                because=action.because,
                state="planned",
                image=action.inputs.image,
                type=action.inputs.type,
                cost=action.cost,
            )


def _judge_pool(draft: Draft, waiting: int, used: Used) -> PoolVerdict:
    census, actions = draft.census, draft.actions
    before = _cost(draft, census.units)
    removed = {a.worker for a in actions if a.action == "delete"}
    saved = _cost(draft, [unit for unit in census.units if unit.name in removed])
    added = sum((a.cost for a in actions if isinstance(a, Create)), Decimal(0))
    counted = {
        "busy": len(census.having(State.BUSY)),
        "idle": len(census.having(State.IDLE)),
        "starting": len(census.having(State.STARTING, State.ASSUMED, State.UNFINISHED)),
    }
    return PoolVerdict(
        pool=draft.name,
        mode=draft.pool.mode if draft.pool else "removed",
        because=_why_so_many(draft, waiting, used),
        **counted,
        other=len(census.units) - sum(counted.values()),
        create=sum(a.action == "create" for a in actions),
        drain=sum(a.action == "drain" for a in actions),
        delete=len(removed),
        served=draft.served,
        max=draft.pool.workers.max if draft.pool else 0,
        price=draft.price or Decimal(0),
        cost_before=before,
        cost_after=before + added - saved,
        provider=census.provider or None,
        type=_types_of(draft.pool) if draft.pool else None,
        image=draft.pool.image if draft.pool else None,
        provides=tuple(sorted(draft.offer.provides)),
        stack=stack_name(draft.fleet, draft.name, census.stack),
        serial=census.stack.serial if census.stack else None,
        unwanted=_unwanted(draft),
        draining=sum(is_going(unit) for unit in census.units),
        not_known=tuple(_not_known(draft)),
    )


def _types_of(pool: Pool) -> str:
    """Return a pool's machine types as text; `own` where only figures are stated."""
    return ", ".join(type_names(pool)) or "own"


def _unwanted(draft: Draft) -> int:
    """Count what goes because of config as soon as its work ends, not only in this run."""
    units = draft.census.units
    if not draft.may_remove:
        return 0
    if draft.pool is None or draft.pool.mode == "drain":
        return len(units)
    # What only one witness saw may be an error: nothing is scaled down because of it.
    seen = [unit for unit in units if unit.state not in (State.MISSING, State.UNRECORDED)]
    return max(0, len(seen) - draft.pool.workers.max)


def _not_known(draft: Draft) -> Iterator[NotKnown]:
    census = draft.census
    made = any(isinstance(action, Create) for action in draft.actions)
    if not census.listed:
        yield "machines"
    if not census.listed or any(map(_is_unheard, census.units)):
        yield "workers"
    priceless = draft.price is None
    unpriced = any(unit.machine and draft.cost_of(unit) is None for unit in census.units)
    if not census.listed or unpriced or (made and priceless):
        yield "cost"
    if priceless:
        yield "price"


def _is_unheard(unit: Unit) -> bool:
    """Say whether nobody can tell what a machine's worker does, its provider included."""
    return unit.state is State.ASSUMED and not is_booting(unit)


def _cost(draft: Draft, units: Sequence[Unit]) -> Decimal:
    machines = [unit for unit in units if unit.machine is not None]
    return sum((draft.cost_of(unit) or Decimal(0) for unit in machines), Decimal(0))


def _waiting_for(unserved: Iterable[Unserved]) -> Counter[str]:
    """Count the requests that would fit each pool and are served nowhere."""
    waiting: Counter[str] = Counter()
    for each in unserved:
        for pool in {blocked.pool for blocked in each.blocked}:
            waiting[pool] += each.count
    return waiting


def _optimum(decided: Decided) -> Optimum | None:
    """Return what is proven of the cost of machines for requests; None where none is made."""
    proof = decided.proof
    if not decided.service.turns:
        return None
    gap = (proof.cost - proof.bound) / proof.cost if proof.cost else 0.0
    because = ""
    if gap > 0:
        because = (
            f"the search ended after {NODES} nodes"
            if proof.unfinished
            else _NEAR
            if proof.rounded
            else f"the search ends when what it found is proven to within {GAP:.1%}"
        )
    return Optimum(
        cost=Decimal(0),
        machines=decided.service.turns,
        model=Decimal(repr(proof.cost)),
        bound=Decimal(repr(proof.bound)),
        relaxed=Decimal(repr(proof.relaxed)),
        gap=round(gap, 6),
        because=because,
    )


def _why_so_many(draft: Draft, waiting: int, used: Used) -> str:
    if draft.pool is None:
        return "it is no longer in fleet.yaml: its machines go as their work ends"
    parts = []
    if draft.served:
        parts.append(serves(draft.served))
    if waiting:
        others = f"{waiting:,} more" if draft.served else write_count(waiting, "request")
        parts.append(f"{others} could run here, but {'waits' if waiting == 1 else 'wait'}")
    if not draft.on_demand:
        parts += _said_of_warm(draft, draft.pool.workers, used)
    late = sum(reason is Reason.WAITS_FOR_WINDOW for reason, _ in draft.kept.values())
    if late:
        parts.append(f"{late} {'worker waits' if late == 1 else 'workers wait'} to be replaced")
    paid = sum(reason is Reason.PAID_FOR for reason, _ in draft.kept.values())
    if paid:
        parts.append(f"{write_count(paid, 'machine')} kept while paid for")
    if not parts:
        unsure = draft.census.blind or draft.census.frozen or draft.census.sampled
        parts.append("what waits for it is not known" if unsure else "nothing waits for it")
    if draft.closed:
        parts.append(f"it makes no machine: {draft.closed}")
    else:
        parts += [draft.choice.said] if draft.choice.said else []
        parts += [f"not made: {o.type}/{o.market}: {o.closed}" for o in draft.options if o.closed]
    return "; ".join(parts)


def _said_of_warm(draft: Draft, workers: Workers, used: Used) -> Iterator[str]:
    """Yield what min and spare hold, and what stops a machine that they ask for."""
    told = (
        ("min", workers.min, Reason.BELOW_MIN),
        ("spare", workers.spare, Reason.BELOW_SPARE),
    )
    for key, figure, reason in told:
        # Why the pool makes no machine at all is said once.
        stop, limit = ("", None) if draft.closed else draft.short.get(reason, ("", None))
        if limit:
            stop += f": {why_stopped(limit.row, limit.need, 'machine', used)}"
        if figure:
            yield f"workers.{key} is {figure}{f', but {stop}' if stop else ''}"


def _signatures(
    fleet: Fleet, decided: Decided, drafts: Mapping[str, Draft], rules: Sequence[RulesVerdict]
) -> tuple[Signature, ...]:
    by_worker = decided.service.by_worker
    said = cache(partial(say_whether_in_force, fleet, rules))
    created = {
        request: action.worker
        for draft in drafts.values()
        for action in draft.actions
        if isinstance(action, Create)
        for request in action.serves
    }
    return tuple(
        Signature(
            id=signed.id,
            queue=signed.queue,
            required=tuple(required_of(signed.ask)),
            provided=tuple(sorted(signed.ask.provided)),
            priority=signed.priority,
            count=len(keys),
            requests=tuple(keys),
            by_worker={k: by_worker[k] for k in filter(by_worker.__contains__, keys)},
            by_create={k: created[k] for k in filter(created.__contains__, keys)},
            pools=signed.machines_of,
            refused=tuple(
                RefusedTag(tag=each.tag, who=each.who, because=each.because, path=each.path)
                for each in signed.refused
            ),
            dropped=tuple(sorted(signed.dropped)),
            differences=tuple(
                TagDifference(
                    tag=each.tag,
                    because="; ".join(filter(None, (each.because, said(signed.queue, each.path)))),
                    path=each.path,
                )
                for each in signed.differences
            ),
            ruled=tuple(RuledTag(tag=each.tag, path=each.path) for each in signed.ruled),
        )
        for signed in decided.demand
        for keys in [[request.key for request in signed.requests]]
    )
