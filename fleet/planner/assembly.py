"""Assemble the plan from all decisions, unknown observations and problems for the operator.

The heartbeat counts only finished runs, because a run that hangs or crashes maintains nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from itertools import groupby, pairwise
from statistics import median

from fleet.guard.approvals import judge_approvals, warn_of_approvals
from fleet.model.decisions import Decision, SizeReason
from fleet.model.facts import Unknown, World
from fleet.model.images import WaitingVersion
from fleet.model.plan import (
    Action,
    BudgetVerdict,
    Create,
    Digests,
    NotKnown,
    Optimum,
    Plan,
    PoolVerdict,
    Promotion,
    Reason,
    RefusedTag,
    RuledTag,
    RulesVerdict,
    Signature,
    TagDifference,
    Unserved,
    Warning_,
    WorkerVerdict,
)
from fleet.model.pool_limits import size_of
from fleet.model.prices import type_names
from fleet.model.tickets import UNKNOWN_USER
from fleet.model.values import UnknownFigure, Value
from fleet.planner.allocation import Proof
from fleet.planner.competing import (
    find_contradictions,
    find_releases,
    gone_workers,
    static_pools,
    static_workers,
    warn_of_queues,
)
from fleet.planner.demand import EqualRequests, required_of
from fleet.planner.failures import describe_failures
from fleet.planner.fitting import held_tags
from fleet.planner.inventory import (
    demand_trouble,
    desks_of,
    estimate_of,
    is_all_frozen,
    orders_of,
    stack_name,
)
from fleet.planner.lifecycle.rule import life_of
from fleet.planner.lifecycle.table import idle_limit
from fleet.planner.limits import is_booting
from fleet.planner.notices import find_notices, find_price_sources
from fleet.planner.pool_plan import GOING_STATES, PoolPlan, is_going
from fleet.planner.promotions import find_promotions
from fleet.planner.shared_stacks import find_base_changes
from fleet.planner.solver import GAP, MAX_NODES
from fleet.planner.staffing import Service, Used, find_unserved, used_of, why_stopped
from fleet.planner.units import (
    DISCONNECTED_GRACE,
    Unit,
    UnitState,
    hears_others,
    seconds_away,
    why_late,
)
from fleet.schema.model import Fleet
from fleet.tagrules.export import describe_rule_at, judge_rules
from fleet.words import limits, lives, notes
from fleet.words.pools import describe_size, size_decision
from fleet.words.runs import add_reason

ATTENTION_PAGE = "docs/how-to/runbook/needs-attention.md"
ATTENTION = {
    UnitState.MISSING: (lives.RECORDED_ONLY, "not-listed"),
    UnitState.UNRECORDED: (notes.IN_NO_STACK, "in-no-stack"),
    UnitState.DEAF: (notes.WITHOUT_TAGS, "no-tags"),
    UnitState.STOPPED: (notes.STOPPED, "stopped"),
    UnitState.FAILED: (notes.FAILED, "failed"),
    UnitState.NEVER_REGISTERED: (notes.NOT_REGISTERED, "not-registered"),
}
"""Machine state to (message, section of `ATTENTION_PAGE`)."""
_IMAGE = "image-not-booted"
IMAGE_PAGE = f"{ATTENTION_PAGE}#{_IMAGE}"
"""The runbook section on images that do not boot."""


def find_attention(world: World, pool_plans: Mapping[str, PoolPlan]) -> Iterator[tuple[str, str]]:
    """Yield (problem that needs an operator, section of `ATTENTION_PAGE`)."""
    for pool_plan in pool_plans.values():
        choice = pool_plan.choice
        is_tried = choice.is_tried and pool_plan.inventory.having(UnitState.STARTING)
        if choice.problem and not (choice.approved or is_tried):
            yield notes.describe_image(pool_plan.name, choice.problem), _IMAGE
        leaving = pool_plan.leaving
        for unit in pool_plan.inventory.having(*ATTENTION):
            kept = pool_plan.kept.get(unit.name, (None, ""))[0]
            # fleet deletes a kept orphan later without manual action.
            if unit.name in leaving or unit.held or kept in (Reason.HELD, Reason.ORPHAN):
                continue
            trouble, section = ATTENTION[unit.state]
            yield notes.describe_machine(unit.name, trouble), section
        for unit in pool_plan.inventory.units:
            if unit.machine and unit.machine.trouble:
                yield add_reason(unit.name, unit.machine.trouble), "still-there"
            work = unit.worker.work if unit.worker else None
            if unit.worker and work and work.requester == UNKNOWN_USER and not work.required:
                ticket, desk = unit.worker.running, unit.registry
                yield notes.describe_lost_ticket(unit.name, ticket, desk), "ticket-lost"
        for unit in pool_plan.inventory.having(UnitState.BUSY, UnitState.DISCONNECTED):
            away = seconds_away(world, unit.worker)
            is_silent = unit.may_run or not hears_others(world, unit.registry or "")
            if away > DISCONNECTED_GRACE and is_silent and unit.name not in leaving:
                # Only an operator can find out the state of this machine.
                worker = unit.worker.name if unit.worker else unit.name
                running = unit.worker.running if unit.worker else None
                yield notes.describe_absence(unit.name, running, away, worker), "not-connected"


def warn_of_durations(
    fleet: Fleet, demand: Sequence[EqualRequests], budgets: Sequence[BudgetVerdict]
) -> Iterator[Warning_]:
    """Warn about requests of unknown duration, if a budget or `target_wait` needs the duration."""
    silent: Counter[str] = Counter()
    patient: Counter[str] = Counter()
    waits = {name for name, pool in fleet.dynamic_pools.items() if pool.target_wait is not None}
    for signed in demand:
        count = [request.seconds for request in signed.requests].count(None)
        if count:
            silent[signed.queue] += count if budgets else 0
            patient.update(dict.fromkeys(waits.intersection(signed.creating_pools), count))
    for queue, count in sorted((+silent).items()):  # `+` drops zero counts
        yield Warning_(rule="unknown-duration", message=notes.describe_reserving(count, queue))
    for name, count in sorted(patient.items()):
        yield Warning_(rule="unknown-duration", message=notes.describe_target_wait(name, count))


def find_unknown(fleet: Fleet, world: World, pool_plans: Mapping[str, PoolPlan]) -> Iterator[str]:
    """Yield a sentence per unreadable source or unknown price, with the effect on the plan."""
    seen = set()
    for queue in sorted(world.queues):
        trouble = demand_trouble(fleet, world, queue)
        if trouble:
            seen.add(notes.describe_unknown_demand(queue, trouble, False))
            yield notes.describe_unknown_demand(queue, trouble, True)
    if isinstance(world.images, Unknown) and not isinstance(world.stacks, Unknown):
        yield notes.describe_unknown_images(world.images.unknown)
    for pool_plan in pool_plans.values():
        for reason in (*pool_plan.inventory.blind, *pool_plan.inventory.frozen):
            if reason not in seen:
                seen.add(reason)
                is_blind = reason in pool_plan.inventory.blind
                yield notes.describe_unknown(reason, not is_blind)
        for unit in pool_plan.inventory.units:
            if unit.machine is not None and pool_plan.cost_of(unit) is None:
                yield notes.describe_unknown_price(unit.machine.type, unit.name)


RULE = "cadence-and-runs"
REMEMBERED = 5
"""Number of latest runs that the warning about late runs considers."""
_LATE_CADENCES = 2
"""Runs are late if the median time between them exceeds this multiple of `cadence`."""
_MAX_CADENCES = 3
"""Runs have stopped if the last run is older than this multiple of `cadence`."""


class Heartbeat(Value):
    """The state of `fleet apply` (alive or not), and the sentence that reports it."""

    alive: bool
    because: str


def judge_heartbeat(fleet: Fleet, runs: Sequence[datetime], now: datetime) -> Heartbeat:
    """Report `fleet apply` as alive if its last run is at most three times `cadence` old."""
    age = int((now - max(runs)).total_seconds()) if runs else None
    alive = age is not None and age <= _MAX_CADENCES * fleet.cadence
    return Heartbeat(
        alive=alive, because=notes.describe_heartbeat(age, fleet.cadence, alive=alive)
    )


def warn_of_cadence(fleet: Fleet, world: World) -> Iterator[Warning_]:
    """Warn if the median time between the latest runs is more than twice `cadence`."""
    if isinstance(world.runs, Unknown) or not world.runs:
        return
    latest = sorted(world.runs)[-REMEMBERED:]
    # The time since the last run is a lower bound of the time to the next run.
    apart = [int((b - a).total_seconds()) for a, b in pairwise(latest)]
    since = int((world.time - latest[-1]).total_seconds())
    seen = int(median([*apart, since])) if apart else since
    if seen > _LATE_CADENCES * fleet.cadence:
        late = notes.describe_late_runs(fleet.cadence, len(latest), seen)
        yield Warning_(rule=RULE, message=late)


_PLAIN: dict[UnitState, tuple[Reason, str]] = {
    UnitState.STARTING: (Reason.STARTING, lives.BOOTS),
    UnitState.ASSUMED: (Reason.NO_REGISTRY, lives.UNREPORTED),
    UnitState.DEAF: (Reason.DEAF, lives.DEAF),
    UnitState.STOPPED: (Reason.STOPPED, lives.STOPPED),
    UnitState.FAILED: (
        Reason.LIVECHECK_FAILED,
        lives.FAILED_UNSEEN,
    ),
    UnitState.DISCONNECTED: (Reason.DISCONNECTED, lives.NOT_CONNECTED),
    UnitState.UNRECORDED: (Reason.NOT_KNOWN, lives.LISTED_ONLY),
    UnitState.MISSING: (Reason.NOT_KNOWN, lives.RECORDED_ONLY),
    UnitState.STATIC: (Reason.STATIC, lives.STATIC),
}


def why_kept(pool_plan: PoolPlan, unit: Unit, staying: int) -> tuple[Reason, str]:
    """Return why a worker is kept, as reason and text.

    `staying` counts its pool's kept workers.
    """
    if not pool_plan.inventory.listed:
        return Reason.NOT_KNOWN, lives.explain_unseen(pool_plan.inventory.blind[0])
    if unit.state is UnitState.BUSY or (unit.may_run and unit.state in GOING_STATES):
        return Reason.BUSY, lives.explain_busy(
            unit.worker.running if unit.worker else None,
            bool(unit.worker and unit.worker.away),
            unit.held.said if unit.held else None,
            is_going(unit),
        )
    if unit.held:
        return pool_plan.kept.get(unit.name) or (
            Reason.HELD,
            lives.describe_hold(unit.held.said),
        )
    if unit.name in pool_plan.used:
        return Reason.SERVES_WAITING, lives.explain_reserved(pool_plan.used[unit.name])
    if unit.state is UnitState.NEVER_REGISTERED and unit.name not in pool_plan.kept:
        return Reason.NEVER_REGISTERED, why_late(pool_plan.pool)
    return (
        pool_plan.kept.get(unit.name)
        or _PLAIN.get(unit.state)
        or _explain_idle(pool_plan, unit, staying)
    )


def _explain_idle(pool_plan: PoolPlan, unit: Unit, staying: int) -> tuple[Reason, str]:
    inventory, size = pool_plan.inventory, pool_plan.size
    if inventory.frozen or inventory.sampled:
        partly = "" if inventory.frozen else lives.explain_partly_read(inventory.sampled[0])
        return Reason.NOT_KNOWN, partly or inventory.frozen[0]
    if pool_plan.mode == "pause":
        return Reason.POOL_PAUSED, lives.POOL_PAUSED
    if pool_plan.pool is None or pool_plan.on_demand:
        return Reason.IDLE_RECENTLY, lives.IDLE
    if staying <= size.min:
        return Reason.KEPT_FOR_MIN, lives.describe_figure("min", size.min)
    if size.spare:
        return Reason.KEPT_SPARE, lives.describe_figure("spare", size.spare)
    limit = idle_limit(life_of(pool_plan.fleet, pool_plan.pool, unit))
    return Reason.IDLE_RECENTLY, lives.explain_short_idle(".".join(limit.key), limit.stated)


_ORDER = {"create": 0, "drain": 1, "delete": 2}


def assemble(
    fleet: Fleet,
    world: World,
    pool_plans: Mapping[str, PoolPlan],
    service: Service,
    *,
    explained: bool = True,
) -> Plan:
    """Combine the plans of the pools into one plan, without digests.

    If not `explained`, omit the fields that guards do not read.
    """
    unserved: tuple[Unserved, ...] = ()
    sizes: dict[str, tuple[Decision, ...]] = {}
    if explained:
        unserved = tuple(find_unserved(fleet, world, pool_plans, service))
        waiting, used = Counter[str](), used_of(service.budgets)
        for each in unserved:
            waiting.update(dict.fromkeys({blocked.pool for blocked in each.blocked}, each.count))
        sizes = {n: tuple(_decide_size(p, waiting[n], used)) for n, p in pool_plans.items()}
    pools = (
        *(_judge_pool(own, sizes.get(name, ())) for name, own in pool_plans.items()),
        *static_pools(fleet, world),
    )
    # Creations within a pool stay in the order of service.
    actions = tuple(
        sorted(
            _actions_with_requests(pool_plans, service),
            key=lambda action: (action.pool, _ORDER[action.action]),
        )
    )
    inventories = [pool_plan.inventory for pool_plan in pool_plans.values()]
    present = {unit.name for each in inventories for unit in (*each.known, *each.unseen)}
    workers = (
        *(verdict for each in pool_plans.values() for verdict in _judge_workers(each)),
        *static_workers(fleet, world),
        *gone_workers(fleet, world, present),
    )
    releases = tuple(find_releases(fleet, world, actions))
    known = {pool.pool for pool in pools} | {release.pool for release in releases}
    approvals = judge_approvals(fleet, world, known)
    moving = tuple(find_promotions(fleet, world, pool_plans))
    rules = tuple(judge_rules(fleet, world))
    # With ticket queues, fleet assigns requests itself; signatures then list each assignment.
    has_signatures = explained or desks_of(fleet, world.queues)
    is_still = is_all_frozen(fleet, world)
    plan = Plan(
        fleet=fleet.fleet,
        time=world.time,
        currency=fleet.money.currency,
        releases=releases,
        resumes=tuple(each for pool_plan in pool_plans.values() for each in pool_plan.resumes),
        holds=tuple(each for pool_plan in pool_plans.values() for each in pool_plan.holds),
        bases=() if is_still else tuple(find_base_changes(fleet, world)),
        promotions=tuple(each for each in moving if isinstance(each, Promotion) and not is_still),
        waiting_versions=tuple(each for each in moving if isinstance(each, WaitingVersion)),
        pools=tuple(sorted(pools, key=lambda pool: pool.pool)),
        approvals=approvals,
        orders=orders_of(fleet, world),
        budgets=service.budgets,
        unknown=tuple(find_unknown(fleet, world, pool_plans)),
        rivals={q: r.rivals for q, r in sorted(world.queues.items()) if r.rivals},
        cost_before=sum((pool.cost_before for pool in pools), Decimal(0)),
        cost_after=sum((pool.cost_after for pool in pools), Decimal(0)),
        digests=Digests(config="", world="", over="decisions"),
        optimum=_optimum(service) if explained else None,
    )
    # Skip the validation of thousands of values that were built here.
    plan = plan.altered(
        actions=actions,
        workers=workers,
        signatures=_signatures(fleet, service, actions, rules) if has_signatures else (),
        unserved=unserved,
        optimum=plan.optimum_of(actions),
    )
    if not explained:
        return plan
    images = {name: pool_plan.choice.images for name, pool_plan in pool_plans.items()}
    unread = tuple(q for q in sorted(world.queues) if demand_trouble(fleet, world, q))
    estimates = (estimate_of(fleet, world, q) for q in sorted(world.queues) if q not in unread)
    return plan.altered(
        rules=rules,
        notices=tuple(find_notices(fleet, world, approvals)),
        remarks=tuple(sorted(world.remarks)),
        limits=service.limits,
        prices=tuple(find_price_sources(fleet, world)),
        warnings=(
            *_warn_of_rank_gaps(service.proof),
            *find_contradictions(fleet, world, images),
            *warn_of_approvals(approvals, world.time.date()),
            *warn_of_cadence(fleet, world),
            *warn_of_durations(fleet, service.demand, service.budgets),
            *warn_of_queues(fleet, world, service.demand),
        ),
        unread=unread,
        estimates=tuple(each for each in estimates if each is not None),
        attention=tuple(
            notes.describe_attention(problem, f"{ATTENTION_PAGE}#{section}")
            for problem, section in find_attention(world, pool_plans)
        ),
    )


def _warn_of_rank_gaps(proof: Proof) -> Iterator[Warning_]:
    """Warn about requests that wait, but that another assignment could serve."""
    longer: Counter[tuple[int, int]] = Counter()
    for (classed, queued, _), count in proof.longer:
        longer[classed, -queued] += count
    for (classed, priority), count in sorted(longer.items()):
        who = notes.describe_rank_gap(count, priority, bool(classed))
        yield Warning_(rule="longer-than-necessary", message=who)


def _actions_with_requests(
    pool_plans: Mapping[str, PoolPlan], service: Service
) -> Iterator[Action]:
    """Yield all actions; a resumed creation without a machine serves its worker's requests."""
    requests: defaultdict[str, list[str]] = defaultdict(list)
    for key, worker in service.by_worker.items():
        requests[worker].append(key)
    for pool_plan in pool_plans.values():
        units = pool_plan.inventory.having(UnitState.UNFINISHED)
        unmade = {unit.name for unit in units if unit.machine is None}
        for action in pool_plan.actions:
            is_unmade = isinstance(action, Create) and action.worker in unmade
            yield action.altered(serves=tuple(requests[action.worker])) if is_unmade else action


def _judge_workers(pool_plan: PoolPlan) -> Iterator[WorkerVerdict]:
    actions = {action.worker: action for action in pool_plan.actions}
    pool, staying = pool_plan.name, len(pool_plan.staying)
    inventory = pool_plan.inventory
    for unit in sorted((*inventory.known, *inventory.unseen), key=lambda unit: unit.name):
        action, cost = actions.pop(unit.name, None), pool_plan.cost_of(unit)
        reason, because = (
            (action.reason, action.because) if action else why_kept(pool_plan, unit, staying)
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
            cost=UnknownFigure(
                unknown=lives.UNKNOWN_PRICE if inventory.listed else inventory.blind[0]
            )
            if cost is None
            else cost,
            cost_known=cost is not None,
            outdated=pool_plan.due.get(unit.name, (None, ""))[0] is Reason.OUTDATED
            or pool_plan.is_outdated(unit),
            inactive=unit.state is UnitState.DISABLED,
        )
    made = (action for action in actions.values() if isinstance(action, Create))
    for (reason, kind, image), alike in groupby(
        made, lambda each: (each.reason, each.inputs.type, each.inputs.image)
    ):
        planned = WorkerVerdict(
            worker="",
            pool=pool,
            verdict="create",
            reason=reason,
            because="",
            state="planned",
            image=image,
            type=kind,
            cost=Decimal(0),
        )
        for action in alike:
            worker, because, cost = action.worker, action.because, action.cost
            yield planned.altered(worker=worker, because=because, cost=cost)


def _judge_pool(pool_plan: PoolPlan, size: tuple[Decision, ...]) -> PoolVerdict:
    inventory, actions, price = pool_plan.inventory, pool_plan.actions, pool_plan.price
    costs = {unit.name: pool_plan.cost_of(unit) for unit in inventory.units if unit.machine}
    before = sum(filter(None, costs.values()), Decimal(0))
    kinds = Counter([a.action for a in actions])
    removed = {a.worker for a in actions if a.action == "delete"}
    saved = sum(filter(None, map(costs.get, removed)), Decimal(0))
    added = sum((a.cost for a in actions if isinstance(a, Create)), Decimal(0))
    counted = {
        "busy": len(inventory.having(UnitState.BUSY)),
        "idle": len(inventory.having(UnitState.IDLE)),
        "starting": len(
            inventory.having(UnitState.STARTING, UnitState.ASSUMED, UnitState.UNFINISHED)
        ),
    }
    return PoolVerdict(
        pool=pool_plan.name,
        mode=pool_plan.mode,
        because=describe_size(size),
        decisions=size,
        **counted,
        other=len(inventory.units) - sum(counted.values()),
        create=kinds["create"],
        drain=kinds["drain"],
        delete=len(removed),
        served=pool_plan.served,
        max=pool_plan.size.max,
        price=price or Decimal(0),
        cost_before=before,
        cost_after=before + added - saved,
        provider=inventory.provider or None,
        type=(", ".join(type_names(pool_plan.pool)) or "own") if pool_plan.pool else None,
        image=pool_plan.pool.image if pool_plan.pool else None,
        provides=tuple(sorted(pool_plan.offer.provides)),
        stack=stack_name(pool_plan.fleet, pool_plan.name, inventory.stack),
        serial=inventory.stack.serial if inventory.stack else None,
        unwanted=_count_unwanted(pool_plan),
        draining=sum(is_going(unit) for unit in inventory.units),
        not_known=tuple(_not_known(pool_plan, price, costs.values())),
        failures=describe_failures(pool_plan.fleet, pool_plan.memory, pool_plan.name),
        on_trial=tuple(pool_plan.choice.on_trial),
    )


def _count_unwanted(pool_plan: PoolPlan) -> int:
    """Count the workers that fleet.yaml no longer wants, including busy workers."""
    units = [unit for unit in pool_plan.inventory.units if not unit.held]
    if not pool_plan.may_remove:
        return 0
    if pool_plan.unwanted:
        return len(units)
    # If only the stack or only the provider reports a machine, the report may be wrong: do not
    # scale down because of it. An unfinished creation has no machine to remove.
    doubtful = {UnitState.MISSING, UnitState.UNRECORDED}
    unmade = [u for u in units if u.state is UnitState.UNFINISHED and u.machine is None]
    seen = sum(unit.state not in doubtful for unit in units) - len(unmade)
    return max(0, seen - pool_plan.size.max)


def _not_known(
    pool_plan: PoolPlan, price: Decimal | None, costs: Collection[Decimal | None]
) -> Iterator[NotKnown]:
    inventory = pool_plan.inventory
    made = any(isinstance(action, Create) for action in pool_plan.actions)
    is_unseen = inventory.blind and not inventory.units
    if is_unseen:
        yield "machines"
    # No queue or provider reports the work of these machines.
    assumed = (unit for unit in inventory.units if unit.state is UnitState.ASSUMED)
    if is_unseen or not all(map(is_booting, assumed)):
        yield "workers"
    if is_unseen or None in costs or (made and price is None):
        yield "cost"
    if price is None:
        yield "price"


def _optimum(service: Service) -> Optimum | None:
    """Return cost, lower bound and gap for the created machines; None without creations."""
    proof = service.proof
    if not service.turns:
        return None
    gap = (proof.cost - proof.bound) / proof.cost if proof.cost else 0.0
    because = (
        ""
        if gap <= 0
        else limits.UNSOLVED
        if proof.unsolved
        else limits.AVERAGED
        if proof.averaged > 0
        else limits.explain_unfinished(MAX_NODES)
        if proof.unfinished
        else limits.TOO_LARGE
        if proof.rounded
        else limits.explain_gap(GAP)
    )
    return Optimum(
        cost=Decimal(0),
        machines=service.turns,
        model=Decimal(repr(proof.cost)),
        bound=Decimal(repr(proof.bound)),
        relaxed=Decimal(repr(proof.relaxed)),
        averaged=Decimal(repr(proof.averaged)),
        gap=round(gap, 6),
        because=because,
    )


def _decide_size(pool_plan: PoolPlan, waiting: int, used: Used) -> Iterator[Decision]:
    """Yield the reasons for the number of machines that a pool will have."""
    name, kept = pool_plan.name, Counter(reason for reason, _ in pool_plan.kept.values())
    if pool_plan.pool is None:
        yield size_decision(SizeReason.REMOVED, name)
        return
    counts = (
        (SizeReason.SERVES, pool_plan.served),
        (SizeReason.COULD_SERVE, waiting),
        (SizeReason.REPLACES_LATER, kept[Reason.WAITS_FOR_WINDOW]),
        (SizeReason.PAID_HOUR, kept[Reason.PAID_FOR]),
    )
    parts = [size_decision(code, name, count) for code, count in counts if count]
    if not pool_plan.on_demand:
        at = sum(each.code in (SizeReason.SERVES, SizeReason.COULD_SERVE) for each in parts)
        parts[at:at] = _decide_warm(pool_plan, used)
    if not parts:
        inventory = pool_plan.inventory
        is_demand_unread = len(inventory.frozen) > len(inventory.blind) or not inventory.listed
        is_unsure = is_demand_unread or inventory.sampled
        parts.append(
            size_decision(SizeReason.DEMAND_UNKNOWN if is_unsure else SizeReason.NO_DEMAND, name)
        )
    yield from parts
    if pool_plan.closed:
        code = SizeReason.UNPUBLISHED if pool_plan.closed.unpublished else SizeReason.CLOSED
        closed = limits.explain_closed(pool_plan.closed.reason)
        yield size_decision(code, name, message=closed, until=pool_plan.closed.until)
        return
    if pool_plan.choice.problem:
        yield size_decision(SizeReason.IMAGE, name, message=pool_plan.choice.problem)
    for option in pool_plan.options:
        if option.closed:
            closed = limits.explain_closed_way(option.type, option.market, option.closed.reason)
            until = option.closed.until
            yield size_decision(SizeReason.OPTION_CLOSED, name, message=closed, until=until)


def _decide_warm(pool_plan: PoolPlan, used: Used) -> Iterator[Decision]:
    """Yield the decisions for `min` and `spare`, and the limits that block more machines."""
    size = size_of(pool_plan.pool)
    told = (
        (SizeReason.MIN, size.min, Reason.BELOW_MIN),
        (SizeReason.SPARE, size.spare, Reason.BELOW_SPARE),
    )
    for code, figure, reason in told:
        # `_decide_size` reports a closed pool once, not once per key.
        stop, limit = ("", None) if pool_plan.closed else pool_plan.short.get(reason, ("", None))
        by = why_stopped(limit.row, limit.need, "machine", used) if limit else ""
        if figure:
            warm = limits.explain_warm(code, figure, stop, by)
            yield size_decision(code, pool_plan.name, figure, message=warm)


def _signatures(
    fleet: Fleet,
    service: Service,
    actions: Iterable[Action],
    rules: Sequence[RulesVerdict],
) -> tuple[Signature, ...]:
    describe_rule = cache(partial(describe_rule_at, fleet, rules))
    created = {
        request: action.worker
        for action in actions
        if isinstance(action, Create)
        for request in action.serves
    }
    by_worker = {k: w for k, w in service.by_worker.items() if k not in created}
    blank = Signature(id="", queue="", required=(), priority=0, count=0, requests=())
    return tuple(
        blank.altered(
            id=signed.id,
            queue=signed.queue,
            required=tuple(required_of(signed.ask)),
            provided=tuple(sorted(signed.ask.provided)),
            priority=signed.priority,
            count=len(keys),
            requests=keys,
            by_worker={k: by_worker[k] for k in filter(by_worker.__contains__, keys)},
            by_create={k: created[k] for k in filter(created.__contains__, keys)},
            pools=signed.creating_pools,
            refused=tuple(
                RefusedTag(
                    tag=refusal.tag, who=refusal.who, because=refusal.because, path=refusal.path
                )
                for refusal in signed.refused
            ),
            dropped=tuple(sorted(signed.dropped)),
            held=held_tags(signed.refused) if signed.held else (),
            differences=tuple(
                TagDifference(
                    tag=difference.tag,
                    because=lives.join(
                        difference.because, describe_rule(signed.queue, difference.path)
                    ),
                    path=difference.path,
                )
                for difference in signed.differences
            ),
            ruled=tuple(RuledTag(tag=tag, path=path) for tag, path in signed.ruled),
        )
        for signed in service.demand
        for keys in [tuple([request.key for request in signed.requests])]
    )
