"""The facts and cost of a worker, and the reason why it is kept or deleted."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from fleet.explain.case import Case
from fleet.explain.values import ExplainedReason, Explanation
from fleet.model.facts import WorkerFacts, World, market_of
from fleet.model.orders import FLEET, Hold
from fleet.model.plan import Plan, Reason, WorkerVerdict
from fleet.model.pool_limits import boot_of
from fleet.model.prices import find_types
from fleet.model.values import amount_of, rate
from fleet.planner.begin import begin_pool_plans
from fleet.planner.forecast import left_of
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import BilledMachine, cost_of_span, holdings
from fleet.planner.lifecycle.rule import MachineLife, life_of
from fleet.planner.lifecycle.table import idle_limit, key_of_reason, limits_of
from fleet.planner.units import Unit
from fleet.schema.findings import Path
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
    pool, declared = fleet.pools.get(unit.pool), fleet.providers.get(provider)
    types = find_types(fleet, pool) if machine and isinstance(pool, Pool) else ()
    known = next((each for each in types if machine and each.name == machine.type), None)
    started = work.started_at if work else None
    since = machine.created_at if machine else None

    def cost_since(moment: datetime | None, *, work: bool) -> Decimal | None:
        if held is None or held.tariff is None or moment is None or moment > world.time:
            return None
        return cost_of_span(fleet, held.tariff, held.created_at, (moment, world.time), work=work)

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
        cost_so_far=cost_since(since, work=False),
        task=work.task or None if work else None,
        package=work.package if work else None,
        work_since=started,
        work_cost=cost_since(started, work=True),
    )


def explain_worker(case: Case, name: str) -> Explanation | None:
    """Explain why a worker is kept or deleted; None if the worker is unknown."""
    verdict, plan = case.verdicts.get(name), case.plan
    if verdict is None:
        return None
    guards = [g for g in plan.guards if g.pool in (None, verdict.pool) and g.result != "passed"]
    held = any(action.worker == name for action in plan.withheld)
    withheld = [ExplainedReason(because=g.because, path=g.path) for g in guards if held]
    pool, life = case.fleet.pools.get(verdict.pool), _life_of(case, verdict)
    path: Path = ("pools", verdict.pool)
    is_kept = isinstance(pool, Pool) and verdict.verdict == "keep" and not verdict.inactive
    return Explanation(
        kind="worker",
        name=name,
        headline=answers.describe_worker(name, verdict.verdict, verdict.because, held=held),
        facts=tuple(_describe(plan, verdict, facts_of_workers(case.fleet, case.world).get(name))),
        reasons=(
            ExplainedReason(
                because=verdict.because, path=_find_deciding_key(case, verdict, life, path)
            ),
            *withheld,
            *(_list_changes(case, verdict, life, path) if is_kept else ()),
        ),
        next_steps=tuple(g.way_out or "a later run continues" for g in guards)
        if held
        else tuple(_list_next(plan, verdict)),
    )


def _life_of(case: Case, verdict: WorkerVerdict) -> MachineLife:
    """Return the facts that decide how long the machine of a worker is kept."""
    declared, found = case.fleet.pools.get(verdict.pool), case.inventory.get(verdict.pool)
    pool = declared if isinstance(declared, Pool) else None
    units = (unit for unit in (found.units if found else ()) if unit.name == verdict.worker)
    unit = next(units, None)
    return life_of(case.fleet, pool, unit) if unit else MachineLife(case.fleet, pool)


def _find_deciding_key(case: Case, verdict: WorkerVerdict, life: MachineLife, path: Path) -> Path:
    if verdict.reason is Reason.BUDGET_USED_UP:
        unpaid = begin_pool_plans(case.fleet, case.world, case.inventory)[verdict.pool].unpaid
        if verdict.worker in unpaid:
            return unpaid[verdict.worker]
    if life.pool is None:
        return path
    if verdict.reason is Reason.IDLE_RECENTLY:
        return (*path, *idle_limit(life).key)
    return (*path, *key_of_reason(verdict.reason))


def _list_changes(
    case: Case, verdict: WorkerVerdict, life: MachineLife, path: Path
) -> Iterator[ExplainedReason]:
    """Yield the times at which the decision to keep a worker will change, with reasons."""
    world, worker = case.world, case.workers.get(verdict.worker)
    if verdict.state == "busy":
        left = left_of(case.fleet, world, worker) if worker else None
        # A ticket has no task.
        is_ticket = isinstance(case.fleet.queues.get(verdict.registry or ""), TicketQueue)
        unknown = answers.UNKNOWN_TICKET_END if is_ticket else answers.UNKNOWN_WORK_END
        if left is None:
            yield ExplainedReason(because=unknown, path=("durations",))
        else:
            done = world.time + timedelta(seconds=left)
            yield ExplainedReason(because=answers.WORK_END(end=done))
    for limit in limits_of(life, "boot"):
        if life.boots_since and life.pool and (failed := limit.until(life)):
            because = answers.BOOT(up=boot_of(life.pool).ready_at(life.boots_since), failed=failed)
            yield ExplainedReason(because=because, path=(*path, limit.key[0]))
    if life.idle_since is not None and verdict.reason is not Reason.PAID_FOR:
        limit = idle_limit(life)
        over = limit.until(life) or world.time
        sentence = answers.IDLE_ENDED if over <= world.time else answers.IDLE_END
        because = sentence(key=".".join(limit.key), stated=limit.stated, end=over)
        yield ExplainedReason(because=because, path=(*path, *limit.key))
    for limit in limits_of(life, "age"):
        if old := limit.until(life):
            because = answers.AGE_END(key=limit.key[-1], stated=limit.stated, end=old)
            yield ExplainedReason(because=because, path=(*path, *limit.key))
    for limit in limits_of(life, "uses") if worker else ():
        because = answers.USES_END(
            most=limit.most, finished="unknown" if life.uses is None else life.uses
        )
        yield ExplainedReason(because=because, path=(*path, *limit.key))


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
        work = f"package {known.package}" if known.package else "its work"
        spent = known.work_cost
        cost = "" if spent is None else f", {rate(spent)} {plan.currency} so far"
        yield f"{work} since {write_time(known.work_since)}{cost}"


def _list_next(plan: Plan, verdict: WorkerVerdict) -> Iterator[str]:
    """Yield the next steps of a user for a worker."""
    name, is_kept = verdict.worker, verdict.verdict == "keep"
    holds = (each for each in plan.orders if isinstance(each, Hold) and each.machine == name)
    hold = next(holds, None)
    if hold is not None and hold.by != FLEET:
        yield answers.HOLD(machine=hold.machine, by=hold.by, until=hold.until)
        return
    if hold is not None or verdict.reason is Reason.NEVER_REGISTERED:
        yield answers.CONSOLE(machine=name)
    if hold is not None:
        yield answers.OWN_HOLD(machine=hold.machine, until=hold.until)
    elif verdict.state == "missing":
        yield f"look for it at its provider; if it is gone: `fleet machine forget {name}`"
    elif verdict.state == "unrecorded" and is_kept and verdict.reason is not Reason.ORPHAN:
        yield "record it again: `fleet state rebuild`; or delete it at its provider"
    else:
        step = _NEXT_FOR_REASON.get(verdict.reason) if is_kept else None
        yield step or _NEXT_FOR_VERDICT[verdict.verdict]


_NEXT_FOR_REASON = {
    Reason.ORPHAN: "nothing to do: fleet deletes it",
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
