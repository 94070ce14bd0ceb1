"""This module says why a worker stays or goes, and when that changes."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from fleet.explain.forecast import left_of, registered_workers
from fleet.explain.values import ExplainedReason, Explanation
from fleet.explain.worker_facts import WorkerFacts, facts_of_workers
from fleet.model.facts import Listing, Machine, World
from fleet.model.plan import Plan, Reason, WorkerVerdict, rate
from fleet.schema.model import Fleet, Pool, TicketQueue
from fleet.schema.units import write_count, write_duration


def explain_worker(fleet: Fleet, world: World, plan: Plan, name: str) -> Explanation | None:
    """Return why a worker stays or goes; None when nobody knows it."""
    verdict = next((worker for worker in plan.workers if worker.worker == name), None)
    if verdict is None:
        return None
    guards = [g for g in plan.guards if g.pool in (None, verdict.pool) and g.result != "passed"]
    held = any(action.worker == name for action in plan.withheld)
    reasons = [ExplainedReason(because=verdict.because, path=_deciding(fleet, verdict))]
    if held:
        reasons += [ExplainedReason(because=g.because, path=g.path) for g in guards]
    reasons += _changes(fleet, world, verdict)
    return Explanation(
        kind="worker",
        name=name,
        headline=_headline(verdict, held=held),
        facts=tuple(_facts(plan, verdict, facts_of_workers(fleet, world).get(name))),
        reasons=tuple(reasons),
        next_steps=tuple(g.way_out or "it comes with a later run" for g in guards)
        if held
        else (_next(verdict),),
    )


def _deciding(fleet: Fleet, verdict: WorkerVerdict) -> tuple[str | int, ...]:
    path = ("pools", verdict.pool)
    key = _KEYS.get(verdict.reason) if isinstance(fleet.pools.get(verdict.pool), Pool) else None
    return (*path, *key) if key else path


_KEYS: dict[Reason, tuple[str, ...]] = {
    Reason.IDLE_TOO_LONG: ("retire", "idle_after"),
    Reason.TICKET_RETURNED: ("reuse",),
    Reason.IDLE_RECENTLY: ("retire", "idle_after"),
    Reason.ABOVE_MAX: ("workers", "max"),
    Reason.BELOW_MIN: ("workers", "min"),
    Reason.KEPT_FOR_MIN: ("workers", "min"),
    Reason.BELOW_SPARE: ("workers", "spare"),
    Reason.KEPT_SPARE: ("workers", "spare"),
    Reason.POOL_DRAINING: ("mode",),
    Reason.POOL_PAUSED: ("mode",),
    Reason.BOOT_FAILED: ("boot", "deadline"),
    Reason.NEVER_REGISTERED: ("boot", "deadline"),
    Reason.MAX_AGE: ("retire", "max_age"),
    Reason.MAX_USES: ("retire", "max_uses"),
    Reason.WAITS_FOR_WINDOW: ("replace",),
}


def _changes(fleet: Fleet, world: World, verdict: WorkerVerdict) -> Iterator[ExplainedReason]:
    """Yield when the verdict on a worker changes, as far as a clock decides it."""
    pool = fleet.pools.get(verdict.pool)
    if not isinstance(pool, Pool) or verdict.verdict != "keep" or verdict.inactive:
        return
    path = ("pools", verdict.pool)
    machine = _machine_of(world, verdict.worker)
    if verdict.state == "busy":
        yield _when_done(fleet, world, verdict)
    if verdict.state == "starting" and machine is not None:
        up = machine.created_at + timedelta(seconds=pool.boot.expected)
        within = pool.ready.within if pool.ready else pool.boot.deadline
        failed = machine.created_at + timedelta(seconds=within)
        because = f"it is expected to be up at {_at(up)}, and counts as failed from {_at(failed)}"
        yield ExplainedReason(because=because, path=(*path, "ready" if pool.ready else "boot"))
    is_kept = verdict.reason is Reason.PAID_FOR
    if verdict.state == "idle" and verdict.since is not None and not is_kept:
        over = verdict.since + timedelta(seconds=pool.retire.idle_after)
        after = write_duration(pool.retire.idle_after)
        because = f"retire.idle_after ({after}) is reached at {_at(over)}"
        if over <= world.time:
            because = f"retire.idle_after ({after}) was reached at {_at(over)}"
        because += "; it then goes if nothing else keeps it"
        yield ExplainedReason(because=because, path=(*path, "retire", "idle_after"))
    if pool.retire.max_age is not None and machine is not None:
        old = machine.created_at + timedelta(seconds=pool.retire.max_age)
        because = f"max_age ({write_duration(pool.retire.max_age)}) is reached at {_at(old)}"
        yield ExplainedReason(because=because, path=(*path, "retire", "max_age"))
    worker = registered_workers(world).get(verdict.worker)
    most = pool.retire.max_uses
    if most is not None and worker is not None:
        uses = "not known" if worker.uses is None else worker.uses
        because = f"it goes after {write_count(most, 'request')}; finished so far: {uses}"
        yield ExplainedReason(because=because, path=(*path, "retire", "max_uses"))


def _when_done(fleet: Fleet, world: World, verdict: WorkerVerdict) -> ExplainedReason:
    worker = registered_workers(world).get(verdict.worker)
    left = left_of(fleet, world, worker) if worker else None
    if left is None:
        because = "when its work ends is not known: no history, and no `durations` of its task"
        if isinstance(fleet.queues.get(verdict.registry or ""), TicketQueue):
            # A ticket has no task.
            because = "when its client closes its ticket is not known: `durations` has no `any`"
        return ExplainedReason(because=because, path=("durations",))
    done = world.time + timedelta(seconds=left)
    return ExplainedReason(because=f"its work is expected to end at {_at(done)}")


def _machine_of(world: World, name: str) -> Machine | None:
    listings = [x for x in world.providers.values() if isinstance(x, Listing)]
    return next((m for listing in listings for m in listing.machines if m.name == name), None)


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _headline(verdict: WorkerVerdict, *, held: bool) -> str:
    words = {"keep": "stays", "create": "is made", "drain": "drains", "delete": "is deleted"}
    suffix = " (withheld by a guard in this run)" if held else ""
    return f"worker {verdict.worker} {words[verdict.verdict]}: {verdict.because}{suffix}"


def _facts(plan: Plan, verdict: WorkerVerdict, facts: WorkerFacts | None) -> Iterator[str]:
    since = f" since {_at(verdict.since)}" if verdict.since else ""
    runs = f", runs request {verdict.running}" if verdict.running else ""
    yield f"pool {verdict.pool}, {verdict.state}{since}{runs}"
    yield (
        f"machine type {verdict.type or 'not known'}, image {verdict.image or 'not known'}, "
        f"{_cost_of(verdict, plan.currency)}"
    )
    if facts is None:
        return
    if facts.cores is not None and facts.memory is not None:
        disk = f", {facts.disk / 1024:g} GiB disk" if facts.disk else ""
        place = f" at {facts.provider}" + (f", {facts.location}" if facts.location else "")
        yield (
            f"{write_count(facts.cores, 'core')}, {facts.memory / 1024:g} GiB memory{disk}, "
            f"{facts.architecture}{place}"
        )
    if facts.created_at is not None and facts.cost_so_far is not None:
        cost = f"{rate(facts.cost_so_far)} {plan.currency}"
        yield f"created {_at(facts.created_at)}, has cost {cost} so far"
    if facts.work_since is not None:
        package = f"package {facts.package}" if facts.package else "its work"
        cost = (
            "" if facts.work_cost is None else f", {rate(facts.work_cost)} {plan.currency} so far"
        )
        yield f"{package} since {_at(facts.work_since)}{cost}"


def _cost_of(verdict: WorkerVerdict, currency: str) -> str:
    if not verdict.cost_known:
        return "price not known"
    return f"{rate(verdict.cost)} {currency}/h"


def _next(verdict: WorkerVerdict) -> str:
    if verdict.state == "missing":
        return (
            f"look for it at its provider; if it is really gone: fleet machine forget "
            f"{verdict.worker}"
        )
    if verdict.reason is Reason.ORPHAN and verdict.verdict == "keep":
        return "nothing to do: it goes by itself"
    if verdict.state == "unrecorded" and verdict.verdict == "keep":
        return "have its stack know it again: fleet state rebuild; or delete it at its provider"
    person = _NEXT_FOR_REASON.get(verdict.reason) if verdict.verdict == "keep" else None
    return person or _NEXT_FOR_VERDICT[verdict.verdict]


_NEXT_FOR_REASON = {
    Reason.NEVER_REGISTERED: "a person has to look why it does not boot, and delete its machine",
    Reason.DEAF: "restart its worker: it then says again what it can do",
    Reason.LIVECHECK_FAILED: "a person has to look why it does not work, and delete its machine",
    Reason.NOT_KNOWN: "a person has to look: docs/explanation/failure-model.md says what to do",
    Reason.DISCONNECTED: "bring its worker back, or disable it: then its machine is deleted",
    Reason.STOPPED: "a person has to look at its machine, and delete it",
}

_NEXT_FOR_VERDICT = {
    "keep": "nothing to do; it is judged again in every run",
    "create": "the next `fleet apply` makes it",
    "drain": "once it is observed idle, the apply after that deletes it",
    "delete": "the next `fleet apply` disables its worker and deletes its machine",
}
