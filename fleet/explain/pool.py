"""Explain why a pool has its number of machines, and no fewer or more."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from fleet.explain.case import Case
from fleet.explain.edits import Edit, apply_edits
from fleet.explain.request import FIRST_READ
from fleet.explain.search import Replans
from fleet.explain.tags import enforcement_facts, enforcer_of_limit
from fleet.explain.troubles import list_freeze_ends, list_retries
from fleet.explain.values import ExplainedReason, Explanation
from fleet.model.plan import Plan, PoolVerdict
from fleet.model.pool_limits import size_of
from fleet.model.values import rate, rates
from fleet.schema.findings import Path, listed
from fleet.schema.model import Pool, serves_queue
from fleet.schema.units import write_count
from fleet.tagrules.sources import pools_providing
from fleet.words import answers


def explain_pool(case: Case, name: str) -> Explanation | None:
    """Explain the number of machines of a pool; None if the pool does not exist."""
    fleet, plan = case.fleet, case.plan
    verdict = next((pool for pool in plan.pools if pool.pool == name), None)
    if verdict is None:
        return None
    pool = fleet.pools.get(name)
    blind = case.inventory[name].blind if name in case.inventory else ()
    wanted = verdict.machines_after
    margins: list[ExplainedReason] = []
    if isinstance(pool, Pool):
        margins += [_explain_fewer(case, verdict, size_of(pool).min)] if wanted else []
        margins += _explain_more(case, verdict, pool, blind)
    served = [queue for queue in fleet.queues if pool and serves_queue(pool, queue)]
    providing = pools_providing(fleet)
    tags = [tag for tag in fleet.tags if name in providing[tag]]
    return Explanation(
        kind="pool",
        name=name,
        headline=answers.POOL_SIZE(
            pool=name, wanted=wanted, most=verdict.max, reason=verdict.because
        ),
        facts=(
            *_describe(plan, verdict, blind),
            *enforcement_facts(fleet.tags, case.enforcement, tags, served),
        ),
        reasons=(*_list_reasons(plan, name), *margins),
        next_steps=(*([FIRST_READ] if blind else ()), *_list_next(case, verdict)),
    )


def _explain_fewer(case: Case, verdict: PoolVerdict, least: int) -> ExplainedReason:
    """Explain why one machine fewer is too few: waiting requests, `min`, or a machine to keep."""
    name, fewer, plan = verdict.pool, verdict.machines_after - 1, case.plan
    workers: Path = ("pools", name, "workers")
    less = [Edit((*workers, "max"), fewer), Edit((*workers, "min"), min(least, fewer))]
    without = Replans().run("fewer", lambda: (apply_edits(case.fleet, less), case.world))
    still = without.served if without else {}
    if lost := [key for key in case.served if key not in still]:
        return ExplainedReason(because=answers.explain_lost(fewer, lost), path=(*workers, "max"))
    if fewer < least:
        return ExplainedReason(
            because=answers.LEAST(fewer=fewer, least=least), path=(*workers, "min")
        )
    held = {action.worker for action in plan.withheld if action.action != "create"}
    own = [each for each in plan.workers if each.pool == name]
    kept = [e for e in own if e.verdict in ("keep", "create") and not e.inactive]
    kept += [each for each in own if each.worker in held]
    last = next((each for each in kept if each.state != "busy"), kept[-1] if kept else None)
    if last is None:
        return ExplainedReason(because=answers.LEAVING(fewer=fewer), path=workers)
    because = answers.KEPT(fewer=fewer, worker=last.worker, reason=last.because)
    return ExplainedReason(because=because, path=workers)


def _explain_more(
    case: Case, verdict: PoolVerdict, pool: Pool, blind: Sequence[str]
) -> Iterator[ExplainedReason]:
    """Yield the limits that prevent an additional machine, or why the machine would be idle."""
    plan, name, more = case.plan, verdict.pool, verdict.machines_after + 1
    stopped: dict[Path, tuple[int, str]] = {}
    for unserved in plan.unserved:
        for blocked in unserved.blocked:
            if blocked.pool == name:
                count = stopped.get(blocked.path, (0, ""))[0] + unserved.count
                stopped[blocked.path] = (count, blocked.because)
    queues = [queue for queue in case.fleet.queues if serves_queue(pool, queue)]
    for path, (count, why) in stopped.items():
        because = answers.STOPPED(more=more, waits=answers.count_waiting(count), reason=why)
        by = enforcer_of_limit(case.enforcement, path, queues)
        yield ExplainedReason(because=because, path=path, by=by)
    for why in blind:
        yield ExplainedReason(because=answers.BLIND(more=more, reason=why))
    if not stopped and not blind:
        price = verdict.price if "price" not in verdict.not_known else Decimal(0)
        cost = f"{rate(price)} {plan.currency}/h" if price else ""
        full = verdict.max if more > verdict.max else None
        unsure = (*plan.unread, *(estimate.queue for estimate in plan.estimates))
        is_sure = not any(serves_queue(pool, q) for q in unsure)
        because = answers.explain_idle(more, cost, full, sure=is_sure)
        path = ("pools", name, "workers", *([] if full is None else ["max"]))
        yield ExplainedReason(because=because, path=path)


def _describe(plan: Plan, verdict: PoolVerdict, blind: Sequence[str]) -> Iterator[str]:
    now, unknown = "known so far:" if blind else "now", verdict.not_known
    machines = (
        f"{now} {verdict.busy} busy, {verdict.idle} idle, {verdict.starting} starting, "
        f"{verdict.other} other"
    )
    if "workers" in unknown:
        machines = f"{now} {write_count(verdict.machines, 'machine')}, state unknown"
    if "machines" in unknown:
        machines = "machines unknown"
    yield (
        f"{machines}; this plan creates {verdict.create}, drains {verdict.drain}, "
        f"deletes {verdict.delete}"
    )
    before, after = rates([verdict.cost_before, verdict.cost_after])
    cost = f"costs {before} {plan.currency}/h now and {after} after"
    price = f"{rate(verdict.price)} {plan.currency}/h"
    yield (
        f"{'cost unknown' if 'cost' in unknown else cost}; "
        f"one machine: {'unknown' if 'price' in unknown else price}"
    )


def _list_reasons(plan: Plan, name: str) -> Iterator[ExplainedReason]:
    ours = {verdict.worker for verdict in plan.workers if verdict.pool == name}
    for signature in plan.signatures:
        made = sum(worker in ours for worker in signature.by_create.values())
        used = sum(worker in ours for worker in signature.by_worker.values())
        if made or used:
            because = answers.GROUP(
                queue=signature.queue,
                waits=answers.count_waiting(signature.count),
                priority=signature.priority,
                required=listed(signature.required) or "no tags",
                used=used,
                made=made,
            )
            yield ExplainedReason(because=because)
    for guard in plan.guards:
        if guard.pool == name and guard.result != "passed":
            yield ExplainedReason(because=guard.because, path=guard.path, by="capacity")


def _list_next(case: Case, verdict: PoolVerdict) -> Iterator[str]:
    """Yield the next steps of a user, and how and when the stops of a pool end."""
    plan, name = case.plan, verdict.pool
    limit = ("pools", name, "workers", "max")
    pool = case.fleet.pools.get(name)
    if isinstance(pool, Pool) and any(
        blocked.path == limit for unserved in plan.unserved for blocked in unserved.blocked
    ):
        yield f"another machine needs pools.{name}.workers.max above {size_of(pool).max}"
    # The order of a person and a problem that needs an operator precede the waits.
    steps = [*list_freeze_ends(plan, (name,))]
    steps += [each for each in plan.attention if each.startswith(f"pool {name}: ")]
    steps += list_retries(plan, (each.figures.until for each in verdict.decisions))
    yield from steps
    if not steps and any(each.pool == name for each in plan.workers):
        yield "`fleet explain worker NAME` explains each worker"
