"""This module says why a request waits, why a pool holds what it holds, why a worker stays."""

from collections.abc import Callable, Iterator
from typing import Literal

from fleet.explain_enforcement import enforcement_facts
from fleet.facts import Demand, Request, Value, World
from fleet.plan import Blocked, Plan, PoolVerdict, Reason, Signature, Unserved, WorkerVerdict
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
    keys = [key for signature in plan.signatures for key in signature.requests]
    key = next((key for is_meant in _NAMES for key in keys if is_meant(key, name)), None)
    if key is None:
        return None
    signature = next(s for s in plan.signatures if key in s.requests)
    unserved = next((u for u in plan.unserved if key in u.requests), None)
    return Explanation(
        kind="request",
        name=key,
        headline=_headline(signature, key, unserved),
        facts=(
            *_request_facts(world, signature, key),
            *enforcement_facts(fleet, signature.required, (signature.queue,)),
        ),
        reasons=tuple(_why_each_pool(fleet, world, plan, signature, unserved)),
        next_steps=tuple(_next_for_request(plan, signature, unserved, key)),
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
        else (_next_for_worker(verdict),),
    )


def _is_first_of(key: str, name: str) -> bool:
    whole = key.removesuffix("#1")
    return whole != key and name in (whole, whole.partition("/")[2])


_NAMES: tuple[Callable[[str, str], bool], ...] = (
    str.__eq__,
    lambda key, name: key.partition("/")[2] == name,
    _is_first_of,
)
"""Whom a name may mean, the surest first: a whole name, a queue's own id, a group's id."""


def _headline(signature: Signature, key: str, unserved: Unserved | None) -> str:
    if key in signature.by_worker:
        return f"request {key} is next for worker {signature.by_worker[key]}, which exists"
    if key in signature.by_create:
        return f"request {key} gets a new machine: {signature.by_create[key]}"
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
    by_id = {request.id: request for request in reading.demand.requests}
    return by_id.get(name) or by_id.get(name.rpartition("#")[0])


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
    plan: Plan, signature: Signature, unserved: Unserved | None, key: str
) -> Iterator[str]:
    if unserved is None:
        yield _coming(plan, signature, key)
    elif unserved.blocked:
        yield from (_unblocking(plan, blocked) for blocked in unserved.blocked)
    elif "does not provide worker:build-arch:" in unserved.because:
        yield "add a pool with machines and an image of that architecture"
    else:
        yield "add the missing tags to `provides` of a pool or its image that really has them"


def _unblocking(plan: Plan, blocked: Blocked) -> str:
    if blocked.path[:2] == ("guards", "throttle"):
        return "nothing to do: it comes with a later run"
    way_out = next((g.way_out for g in plan.guards if g.path == blocked.path and g.way_out), "")
    if way_out:
        return way_out
    if blocked.path[-1:] in (("max",), ("max_starting",)):
        return f"raise {'.'.join(map(str, blocked.path))}, or wait until a worker is free"
    return f"for pool {blocked.pool}, see to this: {blocked.because}"


def _coming(plan: Plan, signature: Signature, key: str) -> str:
    worker = signature.by_worker.get(key)
    if worker is None:
        return "nothing to do: the next `fleet apply` makes it, then the queue assigns the request"
    state = next((w.state for w in plan.workers if w.worker == worker), "")
    boots = "once it has booted, " if state == "starting" else ""
    return f"nothing to do: {boots}the queue assigns the request to a free worker that fits"


def _pool_facts(plan: Plan, verdict: PoolVerdict) -> Iterator[str]:
    yield (
        f"{_machines(verdict)}; this plan creates {verdict.create}, drains {verdict.drain}, "
        f"deletes {verdict.delete}"
    )
    cost = (
        "what it costs is not known"
        if "cost" in verdict.not_known
        else f"costs {verdict.cost_before.normalize():f} {plan.currency}/h now and "
        f"{verdict.cost_after.normalize():f} after"
    )
    known = "price" not in verdict.not_known
    price = f"{verdict.price.normalize():f} {plan.currency}/h" if known else "not known"
    yield f"{cost}; one machine {price}"


def _machines(verdict: PoolVerdict) -> str:
    if "machines" in verdict.not_known:
        return "what it holds is not known"
    if "workers" in verdict.not_known:
        count = verdict.busy + verdict.idle + verdict.starting + verdict.other
        return (
            f"now {count} machine{'' if count == 1 else 's'}, of which nobody knows what they do"
        )
    return (
        f"now {verdict.busy} busy, {verdict.idle} idle, {verdict.starting} starting, "
        f"{verdict.other} other"
    )


def _enforced(fleet: Fleet, name: str) -> Iterator[str]:
    if name in fleet.pools:
        providing = pools_providing(fleet)
        tags = [tag for tag in fleet.tags if name in providing[tag]]
        served = [queue for queue in fleet.queues if serves_queue(fleet.pools[name], queue)]
        yield from enforcement_facts(fleet, tags, served)


def _pool_reasons(plan: Plan, name: str) -> Iterator[ExplainedReason]:
    ours = {verdict.worker for verdict in plan.workers if verdict.pool == name}
    for signature in plan.signatures:
        made = [worker for worker in signature.by_create.values() if worker in ours]
        used = [worker for worker in signature.by_worker.values() if worker in ours]
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
        f"{_cost(verdict, plan.currency)}"
    )


def _cost(verdict: WorkerVerdict, currency: str) -> str:
    if not verdict.cost_known:
        return "price not known"
    return f"{verdict.cost.normalize():f} {currency}/h"


def _next_for_worker(verdict: WorkerVerdict) -> str:
    if verdict.state == "missing":
        return (
            f"look for it at its provider; if it is really gone: fleet state forget-machine "
            f"{verdict.worker}"
        )
    return _NEXT_FOR_REASON.get(verdict.reason) or _NEXT_FOR_WORKER[verdict.verdict]


_NEXT_FOR_REASON = {
    Reason.NEVER_REGISTERED: "a person has to look why it does not boot, and delete its machine",
    Reason.NOT_KNOWN: "a person has to look: docs/explanation/failure-model.md says what to do",
    Reason.DISCONNECTED: "bring its worker back, or disable it: then its machine is deleted",
}

_NEXT_FOR_WORKER = {
    "keep": "nothing to do; it is judged again in every run",
    "create": "the next `fleet apply` makes it",
    "drain": "once it is observed idle, the apply after that deletes it",
    "delete": "the next `fleet apply` disables its worker and deletes its machine",
}
