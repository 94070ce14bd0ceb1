"""Explain why a pool has its number of machines, and no fewer or more."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from fleet.explain.edits import Edit, apply_edits
from fleet.explain.request import FIRST_READ
from fleet.explain.tags import enforcement_facts, enforcer_of_limit
from fleet.explain.troubles import list_freeze_ends, list_retries
from fleet.explain.values import ExplainedReason, Explanation
from fleet.explain.what_if import Replans, is_served
from fleet.model.facts import World
from fleet.model.plan import Plan, PoolVerdict
from fleet.model.pool_limits import size_of
from fleet.model.values import rate, rates
from fleet.planner.inventory import take_inventory
from fleet.schema.model import Fleet, Pool, serves_queue
from fleet.schema.units import write_count
from fleet.tagrules.sources import enforcement_of, pools_providing
from fleet.words import answers


def explain_pool(fleet: Fleet, world: World, plan: Plan, name: str) -> Explanation | None:
    """Explain the number of machines of a pool; None if the pool does not exist."""
    verdict = next((pool for pool in plan.pools if pool.pool == name), None)
    if verdict is None:
        return None
    pool = fleet.pools.get(name)
    inventory = take_inventory(fleet, world).get(name)
    blind = inventory.blind if inventory else ()
    wanted = verdict.machines_after
    margins: list[ExplainedReason] = []
    if isinstance(pool, Pool):
        margins += [_explain_fewer(fleet, world, plan, verdict, pool)] if wanted else []
        margins += _explain_more(fleet, plan, verdict, pool, blind)
    return Explanation(
        kind="pool",
        name=name,
        headline=answers.describe_pool_size(name, wanted, verdict.max, verdict.because),
        facts=(*_pool_facts(plan, verdict, blind), *_list_enforcement(fleet, name)),
        reasons=(*_pool_reasons(plan, name), *margins),
        next_steps=(*([FIRST_READ] if blind else ()), *_next_for_pool(fleet, plan, name)),
    )


def _explain_fewer(
    fleet: Fleet, world: World, plan: Plan, verdict: PoolVerdict, pool: Pool
) -> ExplainedReason:
    """Explain why one machine fewer is too few: waiting requests, `min`, or a machine to keep."""
    name, fewer = verdict.pool, verdict.machines_after - 1
    workers = ("pools", name, "workers")
    least = size_of(pool).min
    less = [Edit((*workers, "max"), fewer), Edit((*workers, "min"), min(least, fewer))]
    without = Replans().plan(apply_edits(fleet, less), world)
    waiting = [key for s in plan.signatures for key in s.requests if is_served(plan, key)]
    lost = [key for key in waiting if without is not None and not is_served(without, key)]
    if lost:
        would_wait = answers.explain_lost(fewer, lost)
        return ExplainedReason(because=would_wait, path=(*workers, "max"))
    if fewer < least:
        minimum = answers.explain_least(fewer, least)
        return ExplainedReason(because=minimum, path=(*workers, "min"))
    held = {action.worker for action in plan.withheld if action.action != "create"}
    kept = [
        each
        for each in plan.workers
        if each.pool == name and each.verdict in ("keep", "create") and not each.inactive
    ]
    kept += [v for v in plan.workers if v.pool == name and v.worker in held]
    last = next((each for each in kept if each.state != "busy"), kept[-1] if kept else None)
    if last is None:
        return ExplainedReason(because=answers.explain_leaving(fewer), path=workers)
    kept_for = answers.explain_kept(fewer, last.worker, last.because)
    return ExplainedReason(because=kept_for, path=workers)


def _explain_more(
    fleet: Fleet, plan: Plan, verdict: PoolVerdict, pool: Pool, blind: Sequence[str]
) -> Iterator[ExplainedReason]:
    """Yield the limits that prevent an additional machine, or why the machine would be idle."""
    name, more = verdict.pool, verdict.machines_after + 1
    stopped: dict[tuple[str | int, ...], tuple[int, str]] = {}
    for unserved in plan.unserved:
        for blocked in unserved.blocked:
            if blocked.pool == name:
                count = stopped.get(blocked.path, (0, ""))[0] + unserved.count
                stopped[blocked.path] = (count, blocked.because)
    claims = enforcement_of(fleet) if stopped else ()
    queues = [queue for queue in fleet.queues if serves_queue(pool, queue)]
    for path, (count, why) in stopped.items():
        because = answers.explain_stopped(more, count, why)
        by = enforcer_of_limit(claims, path, queues)
        yield ExplainedReason(because=because, path=path, by=by)
    for why in blind:
        yield ExplainedReason(because=answers.explain_blind(more, why))
    if not stopped and not blind:
        price = verdict.price if "price" not in verdict.not_known else Decimal(0)
        cost = f"{rate(price)} {plan.currency}/h" if price else ""
        full = verdict.max if more > verdict.max else None
        unsure = (*plan.unread, *(estimate.queue for estimate in plan.estimates))
        is_sure = not any(serves_queue(pool, q) for q in unsure)
        because = answers.explain_idle(more, cost, full, sure=is_sure)
        path = ("pools", name, "workers", *([] if full is None else ["max"]))
        yield ExplainedReason(because=because, path=path)


def _pool_facts(plan: Plan, verdict: PoolVerdict, blind: Sequence[str]) -> Iterator[str]:
    machines = _machines(verdict, "known so far:" if blind else "now")
    yield (
        f"{machines}; this plan creates {verdict.create}, drains {verdict.drain}, "
        f"deletes {verdict.delete}"
    )
    before, after = rates([verdict.cost_before, verdict.cost_after])
    cost = (
        "cost unknown"
        if "cost" in verdict.not_known
        else f"costs {before} {plan.currency}/h now and {after} after"
    )
    known = "price" not in verdict.not_known
    price = f"{rate(verdict.price)} {plan.currency}/h" if known else "unknown"
    yield f"{cost}; one machine: {price}"


def _machines(verdict: PoolVerdict, now: str) -> str:
    if "machines" in verdict.not_known:
        return "machines unknown"
    if "workers" in verdict.not_known:
        return f"{now} {write_count(verdict.machines, 'machine')}, state unknown"
    return (
        f"{now} {verdict.busy} busy, {verdict.idle} idle, {verdict.starting} starting, "
        f"{verdict.other} other"
    )


def _list_enforcement(fleet: Fleet, name: str) -> Iterator[str]:
    if name in fleet.pools:
        providing = pools_providing(fleet)
        tags = [tag for tag in fleet.tags if name in providing[tag]]
        served = [queue for queue in fleet.queues if serves_queue(fleet.pools[name], queue)]
        yield from enforcement_facts(fleet.tags, enforcement_of(fleet), tags, served)


def _pool_reasons(plan: Plan, name: str) -> Iterator[ExplainedReason]:
    ours = {verdict.worker for verdict in plan.workers if verdict.pool == name}
    for signature in plan.signatures:
        made = [worker for worker in signature.by_create.values() if worker in ours]
        used = [worker for worker in signature.by_worker.values() if worker in ours]
        if made or used:
            of = signature.queue, signature.count, signature.priority, signature.required
            yield ExplainedReason(because=answers.explain_group(*of, (len(used), len(made))))
    for guard in plan.guards:
        if guard.pool == name and guard.result != "passed":
            yield ExplainedReason(because=guard.because, path=guard.path, by="capacity")


def _next_for_pool(fleet: Fleet, plan: Plan, name: str) -> Iterator[str]:
    pool = fleet.pools.get(name)
    limit = ("pools", name, "workers", "max")
    if isinstance(pool, Pool) and any(
        blocked.path == limit for unserved in plan.unserved for blocked in unserved.blocked
    ):
        yield f"another machine needs pools.{name}.workers.max above {size_of(pool).max}"
    steps = [*_list_ends(plan, name)]
    yield from steps
    if not steps and any(each.pool == name for each in plan.workers):
        yield "`fleet explain worker NAME` explains each worker"


def _list_ends(plan: Plan, name: str) -> Iterator[str]:
    """Yield how and when the stops of a pool end."""
    # The order of a person and a problem that needs an operator precede the waits.
    yield from list_freeze_ends(plan, (name,))
    yield from (each for each in plan.attention if each.startswith(f"pool {name}: "))
    decisions = (each for pool in plan.pools if pool.pool == name for each in pool.decisions)
    yield from list_retries(plan, (each.figures.until for each in decisions))
