"""This module says why a request waits, why a pool holds what it holds, why a worker stays."""

from collections.abc import Iterator
from typing import Literal

from fleet.explain_enforcement import enforcement_facts
from fleet.facts import Demand, Request, Value, World
from fleet.plan import Plan, PoolVerdict, Signature, Unserved, WorkerVerdict
from fleet.schema.model import Fleet, Pool
from fleet.tagrules import ask_of_tags, find_mismatch, offer_of_pool, serves_queue
from fleet.tagrules.enforcement import pools_providing

Path = tuple[str | int, ...]


class ExplainedReason(Value):
    """One reason, and the key of fleet.yaml that decides it."""

    because: str
    path: Path = ()
    place: str = ""


class Explanation(Value):
    """What `fleet explain` answers."""

    kind: Literal["request", "pool", "worker"]
    name: str
    headline: str
    facts: tuple[str, ...] = ()
    reasons: tuple[ExplainedReason, ...] = ()
    next_steps: tuple[str, ...] = ()


def explain_request(fleet: Fleet, world: World, plan: Plan, name: str) -> Explanation | None:
    """Return why a request waits or what serves it; None when nobody knows it.

    `name` is the queue's own id, or `queue/id` where two queues use the same one.
    """
    key = next((k for s in plan.signatures for k in s.requests if _is_called(k, name)), None)
    if key is None:
        return None
    signature = next(s for s in plan.signatures if key in s.requests)
    unserved = next((u for u in plan.unserved if key in u.requests), None)
    withheld = {action.worker for action in plan.withheld}
    created = signature.by_create.get(key)
    return Explanation(
        kind="request",
        name=key,
        headline=_headline(signature, key, unserved, withheld),
        facts=(
            *_request_facts(world, signature, key),
            *enforcement_facts(fleet, signature.required, (signature.queue,)),
        ),
        reasons=tuple(_why_each_pool(fleet, world, plan, signature, unserved)),
        next_steps=tuple(
            _next_for_request(plan, signature, unserved, key=key, withheld=created in withheld)
        ),
    )


def explain_pool(fleet: Fleet, plan: Plan, name: str) -> Explanation | None:
    """Return why a pool holds as many machines as it does; None when there is no such pool."""
    verdict = next((pool for pool in plan.pools if pool.pool == name), None)
    if verdict is None:
        return None
    wanted = verdict.busy + verdict.idle + verdict.starting + verdict.other
    wanted += verdict.create - verdict.delete
    return Explanation(
        kind="pool",
        name=name,
        headline=f"pool {name} wants {wanted} machines (max {verdict.max}): {verdict.because}",
        facts=(*_pool_facts(plan, verdict), *_enforced(fleet, name)),
        reasons=tuple(_pool_reasons(plan, name)),
        next_steps=tuple(_next_for_pool(fleet, plan, name)),
    )


def explain_worker(plan: Plan, name: str) -> Explanation | None:
    """Return why a worker stays or goes; None when nobody knows it."""
    verdict = next((worker for worker in plan.workers if worker.worker == name), None)
    if verdict is None:
        return None
    guards = [g for g in plan.guards if g.pool in (None, verdict.pool) and g.result != "passed"]
    held = any(action.worker == name for action in plan.withheld)
    reasons = [ExplainedReason(because=verdict.because, path=("pools", verdict.pool))]
    if held:
        reasons += [ExplainedReason(because=g.because, path=g.path) for g in guards]
    return Explanation(
        kind="worker",
        name=name,
        headline=_worker_headline(verdict, held=held),
        facts=tuple(_worker_facts(plan, verdict)),
        reasons=tuple(reasons),
        next_steps=tuple(g.way_out or "it comes with a later run" for g in guards)
        if held
        else (_NEXT_FOR_WORKER[verdict.verdict],),
    )


def _is_called(key: str, name: str) -> bool:
    return key == name or key.partition("/")[2] == name


def _headline(
    signature: Signature, key: str, unserved: Unserved | None, withheld: set[str]
) -> str:
    if key in signature.by_worker:
        return f"request {key} is next for worker {signature.by_worker[key]}, which exists"
    if key in signature.by_create:
        worker = signature.by_create[key]
        if worker in withheld:
            return f"request {key} waits: machine {worker} is for it, but a guard withholds it"
        return f"request {key} gets a new machine: {worker}"
    because = unserved.because if unserved else "no reason is recorded"
    return f"request {key} waits: {because}"


def _request_facts(world: World, signature: Signature, key: str) -> Iterator[str]:
    request = _find_request(world, signature.queue, key.partition("/")[2])
    if request is not None:
        described = " ".join(filter(None, [request.task, request.package, request.scope]))
        since = (
            f"{request.pending_since:%Y-%m-%d %H:%M} UTC" if request.pending_since else "not known"
        )
        yield f"task {described or 'not known'}, priority {signature.priority}, since {since}"
    yield f"requires {', '.join(signature.required) or 'nothing'}"
    position = signature.requests.index(key) + 1
    yield f"number {position} of {signature.count} waiting requests that ask the same"


def _find_request(world: World, queue: str, name: str) -> Request | None:
    reading = world.queues.get(queue)
    if reading is None or not isinstance(reading.demand, Demand):
        return None
    wanted = name.partition("#")[0]
    return next((r for r in reading.demand.requests if r.id == wanted), None)


def _why_each_pool(
    fleet: Fleet, world: World, plan: Plan, signature: Signature, unserved: Unserved | None
) -> Iterator[ExplainedReason]:
    blocked = {each.pool: each for each in unserved.blocked} if unserved else {}
    for guard in plan.guards:
        if guard.result != "passed" and guard.pool in (None, *signature.pools):
            yield ExplainedReason(because=guard.because, path=guard.path)
    for refused in signature.refused:
        yield ExplainedReason(because=refused.because, path=refused.path)
    for difference in signature.differences:
        yield ExplainedReason(because=difference.because, path=difference.path)
    ask = ask_of_tags(fleet, signature.required, signature.provided)
    for name, pool in sorted(fleet.pools.items()):
        if not serves_queue(pool, signature.queue):
            because = f"pool {name} does not serve queue {signature.queue}"
            yield ExplainedReason(because=because, path=("pools", name, "serves"))
            continue
        offer = offer_of_pool(fleet, name, world.images)
        mismatch = find_mismatch(ask, offer)
        if name in blocked:
            because = (
                f"pool {name} fits, but {blocked[name].because.removeprefix(f'pool {name} ')}"
            )
            yield ExplainedReason(because=because, path=blocked[name].path)
            continue
        if mismatch:
            because = f"pool {name} {mismatch}"
        elif offer.on_demand and not offer.on_demand & ask.required:
            tags = ", ".join(sorted(offer.on_demand))
            because = f"pool {name} fits, but makes machines only for who asks for {tags}"
        else:
            because = f"pool {name} fits"
        yield ExplainedReason(because=because, path=("pools", name))


def _next_for_request(
    plan: Plan, signature: Signature, unserved: Unserved | None, *, key: str, withheld: bool
) -> Iterator[str]:
    if withheld:
        yield from (g.way_out for g in plan.guards if g.result == "refused" and g.way_out)
        yield "what is only throttled comes with the next run"
    elif unserved is None:
        yield _coming(plan, signature, key)
    elif signature.pools and unserved.path[-1:] in (("max",), ("max_starting",)):
        yield f"raise {'.'.join(map(str, unserved.path))}, or wait until a worker is free"
    elif signature.pools:
        yield f"mend what keeps pool {signature.pools[0]} from making machines"
    elif "does not provide worker:build-arch:" in unserved.because:
        yield "add a pool with machines and an image of that architecture"
    else:
        yield "add the missing tags to `provides` of a pool or its image that really has them"


def _coming(plan: Plan, signature: Signature, key: str) -> str:
    worker = signature.by_worker.get(key)
    if worker is None:
        return "nothing to do: the next `fleet apply` makes it, then the queue assigns the request"
    state = next((w.state for w in plan.workers if w.worker == worker), "")
    boots = "once it has booted, " if state == "starting" else ""
    return f"nothing to do: {boots}the queue assigns the request to a free worker that fits"


def _pool_facts(plan: Plan, verdict: PoolVerdict) -> Iterator[str]:
    yield (
        f"now {verdict.busy} busy, {verdict.idle} idle, {verdict.starting} starting, "
        f"{verdict.other} other; this plan creates {verdict.create}, drains {verdict.drain}, "
        f"deletes {verdict.delete}"
    )
    yield (
        f"costs {verdict.cost_before.normalize():f} {plan.currency}/h now and "
        f"{verdict.cost_after.normalize():f} after; one machine "
        f"{verdict.price.normalize():f} {plan.currency}/h"
    )


def _enforced(fleet: Fleet, name: str) -> Iterator[str]:
    if name in fleet.pools:
        tags = [tag for tag in fleet.tags if name in pools_providing(fleet, tag)]
        served = [queue for queue in fleet.queues if serves_queue(fleet.pools[name], queue)]
        yield from enforcement_facts(fleet, tags, served)


def _pool_reasons(plan: Plan, name: str) -> Iterator[ExplainedReason]:
    for signature in plan.signatures:
        made = [w for w in signature.by_create.values() if _pool_of(plan, w) == name]
        used = [w for w in signature.by_worker.values() if _pool_of(plan, w) == name]
        if made or used:
            because = (
                f"of queue {signature.queue} {_many(signature.count)} with priority "
                f"{signature.priority} for {', '.join(signature.required) or 'nothing'}: "
                f"{len(used)} go to its workers, {len(made)} to new machines"
            )
            yield ExplainedReason(because=because)
    for unserved in plan.unserved:
        for blocked in unserved.blocked:
            if blocked.pool == name:
                because = f"{_many(unserved.count)} that would fit: {blocked.because}"
                yield ExplainedReason(because=because, path=blocked.path)
    for guard in plan.guards:
        if guard.pool == name and guard.result != "passed":
            yield ExplainedReason(because=guard.because, path=guard.path)


def _next_for_pool(fleet: Fleet, plan: Plan, name: str) -> Iterator[str]:
    pool = fleet.pools.get(name)
    limit = ("pools", name, "workers", "max")
    if isinstance(pool, Pool) and any(
        blocked.path == limit for unserved in plan.unserved for blocked in unserved.blocked
    ):
        yield f"one more needs pools.{name}.workers.max above {pool.workers.max}"
    yield "`fleet explain worker NAME` says why each of them stays or goes"


def _many(count: int) -> str:
    return "1 request waits" if count == 1 else f"{count} requests wait"


def _pool_of(plan: Plan, worker: str) -> str | None:
    return next((w.pool for w in plan.workers if w.worker == worker), None)


def _worker_headline(verdict: WorkerVerdict, *, held: bool) -> str:
    words = {"keep": "stays", "create": "is made", "drain": "drains", "delete": "is deleted"}
    suffix = " (withheld by a guard in this run)" if held else ""
    return f"worker {verdict.worker} {words[verdict.verdict]}: {verdict.because}{suffix}"


def _worker_facts(plan: Plan, verdict: WorkerVerdict) -> Iterator[str]:
    since = f" since {verdict.since:%Y-%m-%d %H:%M} UTC" if verdict.since else ""
    runs = f", runs {verdict.running}" if verdict.running else ""
    yield f"pool {verdict.pool}, {verdict.state}{since}{runs}"
    yield (
        f"machine type {verdict.type or 'not known'}, image {verdict.image or 'not known'}, "
        f"{verdict.cost.normalize():f} {plan.currency}/h"
    )


_NEXT_FOR_WORKER = {
    "keep": "nothing to do; it is judged again in every run",
    "create": "the next `fleet apply` makes it",
    "drain": "once it is observed idle, the apply after that deletes it",
    "delete": "the next `fleet apply` disables its worker and deletes its machine",
}
