"""The facts and cost of a worker, and the reason why it is kept or deleted."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from fleet.explain.values import ExplainedReason, Explanation
from fleet.model.facts import WorkerFacts, World, market_of
from fleet.model.orders import FLEET, Hold
from fleet.model.plan import Plan, Reason, WorkerVerdict
from fleet.model.pool_limits import boot_of
from fleet.model.prices import MachineType, find_types
from fleet.model.values import amount_of, rate
from fleet.planner.begin import begin_pool_plans
from fleet.planner.forecast import left_of, registered_workers
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import BilledMachine, cost_of_span, holdings
from fleet.planner.lifecycle.rule import MachineLife, life_of
from fleet.planner.lifecycle.table import idle_limit, key_of_reason, limits_of
from fleet.planner.units import Unit
from fleet.schema.model import Fleet, Pool, TicketQueue
from fleet.schema.units import write_count, write_time
from fleet.words import answers


def facts_of_workers(fleet: Fleet, world: World) -> dict[str, WorkerFacts]:
    """Map the name of each worker to its known facts."""
    inventory = take_inventory(fleet, world)
    held = {each.unit.name: each for each in holdings(fleet, world, inventory) if each.unit}
    return {
        unit.name: _facts(fleet, world, unit, pool.provider, held.get(unit.name))
        for pool in inventory.values()
        for unit in pool.units
    }


def _facts(
    fleet: Fleet, world: World, unit: Unit, provider: str, held: BilledMachine | None
) -> WorkerFacts:
    machine, work = unit.machine, unit.worker.work if unit.worker else None
    known = _type(fleet, unit)
    pool, declared = fleet.pools.get(unit.pool), fleet.providers.get(provider)
    started = work.started_at if work else None
    since = machine.created_at if machine else None
    return WorkerFacts(
        provider=provider or None,
        location=declared.price_location if declared and declared.is_cloud else None,
        market=market_of(unit.inputs) if unit.inputs else None,
        cores=known.cores if known else None,
        memory=known.memory if known else None,
        disk=known.disk or None if known else None,
        swap=(pool.swap or None) if isinstance(pool, Pool) else None,
        architecture=known.architecture if known else None,
        created_at=since,
        cost_so_far=_cost(fleet, world, held, since, work=False),
        task=work.task or None if work else None,
        package=work.package if work else None,
        work_since=started,
        work_cost=_cost(fleet, world, held, started, work=True),
    )


def _type(fleet: Fleet, unit: Unit) -> MachineType | None:
    """Return the type of a worker's machine; None if its pool does not have this type."""
    pool = fleet.pools.get(unit.pool)
    if unit.machine is None or not isinstance(pool, Pool):
        return None
    return next((t for t in find_types(fleet, pool) if t.name == unit.machine.type), None)


def _cost(
    fleet: Fleet, world: World, held: BilledMachine | None, since: datetime | None, *, work: bool
) -> Decimal | None:
    """Return the cost of a machine, or of the work on it, since a time; None if unknown."""
    if held is None or held.tariff is None or since is None or since > world.time:
        return None
    return cost_of_span(fleet, held.tariff, held.created_at, (since, world.time), work=work)


def explain_worker(fleet: Fleet, world: World, plan: Plan, name: str) -> Explanation | None:
    """Explain why a worker is kept or deleted; None if the worker is unknown."""
    verdict = next((worker for worker in plan.workers if worker.worker == name), None)
    if verdict is None:
        return None
    guards = [g for g in plan.guards if g.pool in (None, verdict.pool) and g.result != "passed"]
    held = any(action.worker == name for action in plan.withheld)
    path = _deciding_key(fleet, world, verdict)
    reasons = [ExplainedReason(because=verdict.because, path=path)]
    if held:
        reasons += [ExplainedReason(because=g.because, path=g.path) for g in guards]
    reasons += _changes(fleet, world, verdict)
    return Explanation(
        kind="worker",
        name=name,
        headline=answers.describe_worker(
            verdict.worker, verdict.verdict, verdict.because, held=held
        ),
        facts=tuple(_describe(plan, verdict, facts_of_workers(fleet, world).get(name))),
        reasons=tuple(reasons),
        next_steps=tuple(g.way_out or "a later run continues" for g in guards)
        if held
        else tuple(_list_next(plan, verdict)),
    )


def _deciding_key(fleet: Fleet, world: World, verdict: WorkerVerdict) -> tuple[str | int, ...]:
    path, pool = ("pools", verdict.pool), fleet.pools.get(verdict.pool)
    if verdict.reason is Reason.BUDGET_USED_UP:
        unpaid = begin_pool_plans(fleet, world, take_inventory(fleet, world))[verdict.pool].unpaid
        if verdict.worker in unpaid:
            return unpaid[verdict.worker]
    key = key_of_reason(verdict.reason) if isinstance(pool, Pool) else ()
    if isinstance(pool, Pool) and verdict.reason is Reason.IDLE_RECENTLY:
        key = idle_limit(_life_of(fleet, world, verdict)).key
    return (*path, *key)


def _life_of(fleet: Fleet, world: World, verdict: WorkerVerdict) -> MachineLife:
    """Return the facts that decide how long the machine of a worker is kept."""
    pool, inventory = fleet.dynamic_pool(verdict.pool), take_inventory(fleet, world)
    for unit in inventory[verdict.pool].units if verdict.pool in inventory else ():
        if unit.name == verdict.worker:
            return life_of(fleet, pool, unit)
    return MachineLife(fleet, pool)


def _changes(fleet: Fleet, world: World, verdict: WorkerVerdict) -> Iterator[ExplainedReason]:
    """Yield the times at which the decision to keep a worker will change, with reasons."""
    pool = fleet.pools.get(verdict.pool)
    if not isinstance(pool, Pool) or verdict.verdict != "keep" or verdict.inactive:
        return
    path = ("pools", verdict.pool)
    if verdict.state == "busy":
        yield _work_end_reason(fleet, world, verdict)
    life = _life_of(fleet, world, verdict)
    for limit in limits_of(life, "boot"):
        if life.boots_since and (failed := limit.until(life)):
            up = boot_of(pool).ready_at(life.boots_since)
            because = answers.explain_boot(up, failed)
            yield ExplainedReason(because=because, path=(*path, limit.key[0]))
    is_kept = verdict.reason is Reason.PAID_FOR
    if life.idle_since is not None and not is_kept:
        limit = idle_limit(life)
        over = limit.until(life) or world.time
        key, is_past = ".".join(limit.key), over <= world.time
        because = answers.explain_idle_end(key, limit.stated, over, past=is_past)
        yield ExplainedReason(because=because, path=(*path, *limit.key))
    for limit in limits_of(life, "age"):
        if old := limit.until(life):
            because = answers.explain_age_end(limit.key[-1], limit.stated, old)
            yield ExplainedReason(because=because, path=(*path, *limit.key))
    for limit in (
        limits_of(life, "uses") if registered_workers(fleet, world).get(verdict.worker) else ()
    ):
        because = answers.explain_uses_end(limit.most, life.uses)
        yield ExplainedReason(because=because, path=(*path, *limit.key))


def _work_end_reason(fleet: Fleet, world: World, verdict: WorkerVerdict) -> ExplainedReason:
    worker = registered_workers(fleet, world).get(verdict.worker)
    left = left_of(fleet, world, worker) if worker else None
    if left is None:
        # A ticket has no task.
        is_ticket = isinstance(fleet.queues.get(verdict.registry or ""), TicketQueue)
        because = answers.UNKNOWN_TICKET_END if is_ticket else answers.UNKNOWN_WORK_END
        return ExplainedReason(because=because, path=("durations",))
    done = world.time + timedelta(seconds=left)
    return ExplainedReason(because=answers.explain_work_end(done))


def _describe(plan: Plan, verdict: WorkerVerdict, known: WorkerFacts | None) -> Iterator[str]:
    since = f" since {write_time(verdict.since)}" if verdict.since else ""
    runs = f", runs request {verdict.running}" if verdict.running else ""
    yield f"pool {verdict.pool}, {verdict.state}{since}{runs}"
    hourly = amount_of(verdict.cost)
    price = "price unknown" if hourly is None else f"{rate(hourly)} {plan.currency}/h"
    image = verdict.image or "unknown"
    yield f"machine type {verdict.type or 'unknown'}, image {image}, {price}"
    if known is None:
        return
    if known.cores is not None and known.memory is not None:
        disk = f", {known.disk / 1024:g} GiB disk" if known.disk else ""
        place = f" at {known.provider}" + (f", {known.location}" if known.location else "")
        yield (
            f"{write_count(known.cores, 'core')}, {known.memory / 1024:g} GiB memory{disk}, "
            f"{known.architecture}{place}"
        )
    if known.created_at is not None and known.cost_so_far is not None:
        cost = f"{rate(known.cost_so_far)} {plan.currency}"
        yield f"created {write_time(known.created_at)}, cost so far {cost}"
    elif known.created_at is None and verdict.type is not None and verdict.state != "planned":
        yield "creation time unknown, cost so far unknown"
    if known.work_since is not None:
        package = f"package {known.package}" if known.package else "its work"
        cost = (
            "" if known.work_cost is None else f", {rate(known.work_cost)} {plan.currency} so far"
        )
        yield f"{package} since {write_time(known.work_since)}{cost}"


def _list_next(plan: Plan, verdict: WorkerVerdict) -> Iterator[str]:
    """Yield the next steps of a user for a worker."""
    holds = [each for each in plan.orders if isinstance(each, Hold)]
    hold = next((each for each in holds if each.machine == verdict.worker), None)
    if hold is not None and hold.by != FLEET:
        yield answers.await_hold(hold.machine, hold.by, hold.until)
        return
    if hold is not None or verdict.reason is Reason.NEVER_REGISTERED:
        yield answers.read_console(verdict.worker)
    yield answers.end_own_hold(hold.machine, hold.until) if hold else _format_next(verdict)


def _format_next(verdict: WorkerVerdict) -> str:
    if verdict.state == "missing":
        return (
            f"look for it at its provider; if it is gone: `fleet machine forget {verdict.worker}`"
        )
    if verdict.reason is Reason.ORPHAN and verdict.verdict == "keep":
        return "nothing to do: fleet deletes it"
    if verdict.state == "unrecorded" and verdict.verdict == "keep":
        return "record it again: `fleet state rebuild`; or delete it at its provider"
    person = _NEXT_FOR_REASON.get(verdict.reason) if verdict.verdict == "keep" else None
    return person or _NEXT_FOR_VERDICT[verdict.verdict]


_NEXT_FOR_REASON = {
    Reason.NEVER_REGISTERED: "find out why it does not boot, then delete its machine",
    Reason.DEAF: "restart its worker, so that it reports its tags again",
    Reason.LIVECHECK_FAILED: "find out why it does not work, then delete its machine",
    Reason.NOT_KNOWN: "see docs/explanation/failure-model.md",
    Reason.DISCONNECTED: "reconnect its worker, or disable it so that its machine is deleted",
    Reason.STOPPED: "look at its machine, then delete it",
}

_NEXT_FOR_VERDICT = {
    "keep": "nothing to do: checked again in every run",
    "create": "the next `fleet apply` creates it",
    "drain": "once it is idle, a later `fleet apply` deletes it",
    "delete": "the next `fleet apply` disables its worker and deletes its machine",
}
