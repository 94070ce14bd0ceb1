"""Explain objects by name: requests, packages, pools, workers, images, rules and tags."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from fleet.checks import CHECKS, DATED_CHECKS
from fleet.explain.case import Case
from fleet.explain.edits import Edit, apply_edits
from fleet.explain.request import FIRST_READ, explain_requests
from fleet.explain.search import Replans
from fleet.explain.tags import WORDS, enforcement_facts, enforcer_of_limit, list_tags
from fleet.explain.troubles import list_freeze_ends, list_retries
from fleet.explain.values import ExplainedReason, Explanation
from fleet.model.facts import WorkerFacts, World, market_of
from fleet.model.orders import FLEET, Hold
from fleet.model.plan import Plan, PoolVerdict, Reason, WorkerVerdict
from fleet.model.pool_limits import boot_of, size_of
from fleet.model.prices import find_types
from fleet.model.values import amount_of, rate, rates
from fleet.planner.begin import begin_pool_plans
from fleet.planner.forecast import left_of
from fleet.planner.images import find_image_troubles, find_waiting
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import BilledMachine, cost_of_span, holdings
from fleet.planner.lifecycle.rule import MachineLife, life_of
from fleet.planner.lifecycle.table import idle_limit, key_of_reason, limits_of
from fleet.planner.units import Unit
from fleet.schema.findings import Path, listed
from fleet.schema.model import ExistingImage, Fleet, Pool, TicketQueue, serves_queue
from fleet.schema.units import write_count, write_time
from fleet.tagrules.allow import AllowList
from fleet.tagrules.names import recorded_names
from fleet.tagrules.sources import pools_providing
from fleet.words import answers, notes
from fleet.words.images import describe_waiting


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
        headline=answers.describe_pool_size(name, wanted, verdict.max, verdict.because),
        facts=(
            *_describe_pool(plan, verdict, blind),
            *enforcement_facts(fleet.tags, case.enforcement, tags, served),
        ),
        reasons=(*_list_reasons(plan, name), *margins),
        next_steps=(*([FIRST_READ] if blind else ()), *_list_pool_steps(case, verdict)),
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
        return ExplainedReason(because=answers.explain_least(fewer, least), path=(*workers, "min"))
    held = {action.worker for action in plan.withheld if action.action != "create"}
    own = [each for each in plan.workers if each.pool == name]
    kept = [e for e in own if e.verdict in ("keep", "create") and not e.inactive]
    kept += [each for each in own if each.worker in held]
    last = next((each for each in kept if each.state != "busy"), kept[-1] if kept else None)
    if last is None:
        return ExplainedReason(because=answers.explain_leaving(fewer), path=workers)
    because = answers.explain_kept(fewer, last.worker, last.because)
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
        because = answers.explain_stopped(more, answers.count_waiting(count), why)
        by = enforcer_of_limit(case.enforcement, path, queues)
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


def _describe_pool(plan: Plan, verdict: PoolVerdict, blind: Sequence[str]) -> Iterator[str]:
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
            waits, tags = answers.count_waiting(signature.count), listed(signature.required)
            because = answers.explain_group(
                signature.queue, waits, signature.priority, tags or "no tags", used, made
            )
            yield ExplainedReason(because=because)
    for guard in plan.guards:
        if guard.pool == name and guard.result != "passed":
            yield ExplainedReason(because=guard.because, path=guard.path, by="capacity")


def _list_pool_steps(case: Case, verdict: PoolVerdict) -> Iterator[str]:
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
    pool, found = case.fleet.pools.get(verdict.pool), case.inventory.get(verdict.pool)
    own = pool if isinstance(pool, Pool) else None
    unit = next((each for each in (found.units if found else ()) if each.name == name), None)
    life = life_of(case.fleet, own, unit) if unit else MachineLife(case.fleet, own)
    path: Path = ("pools", verdict.pool)
    is_kept = isinstance(pool, Pool) and verdict.verdict == "keep" and not verdict.inactive
    return Explanation(
        kind="worker",
        name=name,
        headline=answers.describe_worker(name, verdict.verdict, verdict.because, held=held),
        facts=tuple(
            _describe_worker(plan, verdict, facts_of_workers(case.fleet, case.world).get(name))
        ),
        reasons=(
            ExplainedReason(
                because=verdict.because, path=_find_deciding_key(case, verdict, life, path)
            ),
            *withheld,
            *(_list_changes(case, verdict, life, path) if is_kept else ()),
        ),
        next_steps=tuple(g.way_out or "a later run continues" for g in guards)
        if held
        else tuple(_list_worker_steps(plan, verdict)),
    )


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
            yield ExplainedReason(because=answers.explain_work_end(done))
    for limit in limits_of(life, "boot"):
        if life.boots_since and life.pool and (failed := limit.until(life)):
            because = answers.explain_boot(boot_of(life.pool).ready_at(life.boots_since), failed)
            yield ExplainedReason(because=because, path=(*path, limit.key[0]))
    if life.idle_since is not None and verdict.reason is not Reason.PAID_FOR:
        limit = idle_limit(life)
        over = limit.until(life) or world.time
        sentence = answers.explain_idle_ended if over <= world.time else answers.explain_idle_end
        because = sentence(".".join(limit.key), limit.stated, over)
        yield ExplainedReason(because=because, path=(*path, *limit.key))
    for limit in limits_of(life, "age"):
        if old := limit.until(life):
            because = answers.explain_age_end(limit.key[-1], limit.stated, old)
            yield ExplainedReason(because=because, path=(*path, *limit.key))
    for limit in limits_of(life, "uses") if worker else ():
        because = answers.explain_uses_end(
            limit.most, "unknown" if life.uses is None else life.uses
        )
        yield ExplainedReason(because=because, path=(*path, *limit.key))


def _describe_worker(
    plan: Plan, verdict: WorkerVerdict, known: WorkerFacts | None
) -> Iterator[str]:
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


def _list_worker_steps(plan: Plan, verdict: WorkerVerdict) -> Iterator[str]:
    """Yield the next steps of a user for a worker."""
    name, is_kept = verdict.worker, verdict.verdict == "keep"
    holds = (each for each in plan.orders if isinstance(each, Hold) and each.machine == name)
    hold = next(holds, None)
    if hold is not None and hold.by != FLEET:
        yield answers.await_hold(hold.until, hold.by, hold.machine)
        return
    if hold is not None or verdict.reason is Reason.NEVER_REGISTERED:
        yield answers.read_console(name)
    if hold is not None:
        yield answers.end_own_hold(hold.machine, hold.until)
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


_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z+.-][a-z0-9+.-]*")


def suggest_build(case: Case, name: str) -> str:
    """Return how to see the tags of a build of this package; empty if it waits or is no package.

    The other parts of the build's name are those of a waiting build, if possible of one with which
    a rule of the allow-list matches.
    """
    if not _PACKAGE.fullmatch(name) or case.named(name):
        return ""
    allowed = AllowList(case.fleet, case.world.time.date())
    others = recorded_names(case.world).names or ("SCOPE/WORKSPACE/ARCHITECTURE/SOURCE",)
    builds = dict.fromkeys(f"{each.rpartition('/')[0]}/{name}" for each in others)
    rules = {
        each: [f"powerful[{rule.index}]" for rule in allowed.rules_for_name(each)]
        for each in builds
    }
    build = max(builds, key=lambda each: len(rules[each]))
    return answers.suggest_build(name, build, rules[build])


def _image(case: Case, name: str) -> Iterator[Explanation]:
    """Yield an explanation of an image: its versions, the pools that boot it, and its problems."""
    fleet, world, image = case.fleet, case.world, case.fleet.images.get(name)
    versions = [each for each in world.versions if each.image == name]
    if image is None and not versions:
        return
    pools = sorted(key for key, pool in fleet.dynamic_pools.items() if pool.image == name)
    troubles = find_image_troubles(fleet, world, case.inventory)
    waiting = find_waiting(fleet, world).get(name)
    steps = [f"`{waiting.command}`: {describe_waiting(waiting)}"] if waiting else []
    yield Explanation(
        kind="image",
        name=name,
        headline=answers.describe_image(name, image is not None, pools),
        facts=tuple(f"version {each.version}: {each.state}" for each in reversed(versions))
        or (answers.NO_VERSION if not isinstance(image, ExistingImage) else answers.EXISTING,),
        reasons=tuple(
            ExplainedReason(
                because=notes.describe_image(pool, troubles[pool].problem),
                path=("images", name),
            )
            for pool in pools
            if pool in troubles
        ),
        next_steps=(*steps, f"`fleet image show {name}` has all records"),
    )


def _tag(case: Case, name: str) -> Iterator[Explanation]:
    """Yield an explanation of a tag: its pools, limits and waiting requests."""
    for each in list_tags(case.fleet).tags:
        if each.tag != name:
            continue
        asking = [s for s in case.plan.signatures if name in s.required]
        count = sum(signature.count for signature in asking)
        yield Explanation(
            kind="tag",
            name=name,
            headline=answers.describe_tag(name, each.pools),
            facts=(
                *(["on demand"] if each.on_demand else []),
                *(["exclusive"] if each.exclusive else []),
                *(f"at most {most} {per}" for per, most in sorted(each.limits.items())),
                answers.count_asking(count),
            ),
            reasons=tuple(
                ExplainedReason(
                    because=answers.describe_enforcement(
                        name, [claim.claim], WORDS[claim.by], claim.queue, claim.because
                    ),
                    path=claim.path,
                )
                for claim in each.enforcement
            ),
            next_steps=(answers.LIST_TAGS,),
        )


def _rule(case: Case, name: str) -> Iterator[Explanation]:
    """Yield the allow-list rules that match a name, or the `fleet validate` rule of this name."""
    word = re.compile(rf"(?<![\w.+-]){re.escape(name)}(?![\w+-])")
    for nth, rule in enumerate(case.fleet.powerful):
        key = f"powerful[{nth}]"
        if name not in (key, rule.match) and not word.search(rule.match):
            continue
        facts = (("reason", rule.reason), ("contact", rule.contact), ("expires", rule.expires))
        missing = "" if name in (key, rule.match) else suggest_build(case, name)
        only = f" of task {rule.task}" if rule.task else ""
        yield Explanation(
            kind="rule",
            name=key,
            headline=answers.describe_rule(key, only, rule.match, rule.ask),
            facts=tuple(f"{about}: {text}" for about, text in facts if text),
            reasons=(ExplainedReason(because=answers.ALLOWED, path=("powerful", nth)),),
            next_steps=(missing,) if missing else (),
        )
    if name in {check.__name__.replace("_", "-") for check in (*CHECKS, *DATED_CHECKS)}:
        yield Explanation(
            kind="rule",
            name=name,
            headline=answers.describe_check(name),
            next_steps=(f"`fleet help {name}` has its page",),
        )


EXPLAINERS: dict[str, Callable[[Case, str], Iterator[Explanation]]] = {
    "request": lambda case, name: explain_requests(case, frozenset(case.named(name))),
    "pool": lambda case, name: filter(None, [explain_pool(case, name)]),
    "worker": lambda case, name: filter(None, [explain_worker(case, name)]),
    "image": _image,
    "rule": _rule,
    "tag": _tag,
}
"""Kind of object to the function that yields the explanations of a name."""


NAMES: dict[str, Callable[[Case], list[str]]] = {
    "request": lambda case: [key for each in case.plan.signatures for key in each.requests],
    "pool": lambda case: [each.pool for each in case.plan.pools],
    "worker": lambda case: [each.worker for each in case.plan.workers],
    "image": lambda case: sorted({*case.fleet.images, *(v.image for v in case.world.versions)}),
    "rule": lambda case: [f"powerful[{nth}]" for nth in range(len(case.fleet.powerful))],
    "tag": lambda case: [each.tag for each in list_tags(case.fleet).tags],
}
"""Kind of object to the function that returns all known names."""
