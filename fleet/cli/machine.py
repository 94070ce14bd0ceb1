"""List, delete and forget machines; print the console output of a machine.

A deletion is independent of demand. The usual rules apply: only machines of idle workers are
deleted, after a drain, and a pool in `mode: pause` is unchanged. There is one exception: a lost
stack does not protect expired machines, since the listing of their provider is sufficient.

The engine deletes machines in a stack, as in an apply. Other machines are drained and disabled if
they have a registry, and their provider deletes them.
"""

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from fleet.apply.config import Config, load_config
from fleet.apply.observe import Sources
from fleet.apply.parallel import default_jobs, pool_executor
from fleet.apply.plan import (
    can_confirm,
    is_confirmed,
    note_clock,
    observe_and_plan,
    observe_and_print,
    observe_with_progress,
)
from fleet.apply.pool import (
    by_pool,
    confirm_all,
    delete_unrecorded_machines,
    end_of,
    machine_at,
    read_console,
)
from fleet.apply.rebuild import forget_machine
from fleet.apply.record import RunLog
from fleet.apply.run import apply_plan, settle_accounts
from fleet.apply.saved_plan import find_drift
from fleet.apply.timer import Signals, find_server_skew, find_store_skew, refuse_clock
from fleet.apply.wire import lock_owner, wire
from fleet.cli.arguments import (
    JSON,
    WORLD,
    action,
    actions,
    argument,
    duration,
    exclusive,
    flag,
    option,
    repeated,
)
from fleet.cli.output import show
from fleet.clock import SystemClock, utc_now
from fleet.clouds.kinds import clouds_of
from fleet.errors import FleetError, PlanRefused, StoreFailed, StoreMissing, WrongUsage
from fleet.explain.objects import facts_of_workers
from fleet.guard import guard
from fleet.model.decisions import SizeReason
from fleet.model.digests import seal
from fleet.model.facts import Listing, Unknown, WorkerState, World
from fleet.model.history import Outcome, StackOutcome
from fleet.model.images import LEFT_AFTER
from fleet.model.plan import Delete, Plan, Reason
from fleet.model.price_lists import with_price_lists
from fleet.model.prices import find_types, markets_of, price_per_hour
from fleet.model.values import Moment, Value
from fleet.planner.assembly import assemble
from fleet.planner.inventory import PoolInventory, expired_at, take_inventory
from fleet.planner.machine_inputs import Closure, Option
from fleet.planner.pool_plan import PoolPlan, is_going
from fleet.planner.staffing import Service
from fleet.planner.units import CAPACITY, Unit, UnitState
from fleet.ports import Console, Tell
from fleet.report.document import Block, Items, Section, Style, StyledText, Title, bold, line
from fleet.report.json import plan_to_json, value_to_json
from fleet.report.outcome import outcome_blocks
from fleet.report.plan import changes_section
from fleet.report.status import Status, WorkerStatus, status_of, worker_table
from fleet.report.terminal import text_for
from fleet.schema.findings import nearest
from fleet.schema.model import Fleet, Pool, serves_queue
from fleet.schema.units import write_count, write_time
from fleet.state.store import Store
from fleet.words import figures as words
from fleet.words import lives
from fleet.words.pools import size_decision
from fleet.words.runs import add_reason

_SIZES = {Reason.EXPIRED: SizeReason.EXPIRED_ONLY, Reason.REQUESTED: SizeReason.REQUESTED_ONLY}
_UNUSED = (CAPACITY - {UnitState.STARTING, UnitState.UNFINISHED}) | {
    *(UnitState.DRAINING, UnitState.DEAF, UnitState.FAILED, UnitState.DISABLED, UnitState.STOPPED),
    *(UnitState.NEVER_REGISTERED, UnitState.UNDELETED),
}
_UNSURE_ADVICE = {
    UnitState.MISSING: (
        "its provider does not list it; if it is really gone: `fleet machine forget {name}`"
    ),
    UnitState.UNFINISHED: "an interrupted apply was creating it; `fleet apply` finishes that",
    UnitState.UNRECORDED: "its provider lists it, its stack does not: see `fleet state orphans`",
}
Select = Callable[[PoolInventory, Unit], str]
"""Returns the reason to delete a machine; empty if the machine is not selected."""


def sweep(fleet: Fleet, world: World) -> Plan:
    """Return a plan that deletes only expired machines."""
    if isinstance(world.orders, Unknown):
        # Machines expire only if no run of fleet renews them, so no order is active either.
        world = world.altered(orders=())
    return _plan_deletions(fleet, world, partial(_explain_expiry, fleet, world), Reason.EXPIRED)


def _explain_possible_work(unit: Unit) -> str:
    """Return why a machine possibly ran work; empty if it certainly ran no work."""
    worker = unit.worker
    if worker is None or worker.state is WorkerState.ENROLLED:
        return ""
    if unit.may_run:
        return f"it runs {worker.running or 'something'}"
    if worker.uses is None:
        return "nothing counts what it has run"
    return f"it has run {write_count(worker.uses, 'request')}" if worker.uses else ""


def _plan_deletions(
    fleet: Fleet,
    world: World,
    select: Select,
    reason: Reason,
    why_kept: Callable[[Unit], str] = lambda _: "",
) -> Plan:
    fleet = with_price_lists(fleet, world)
    pool_plans: dict[str, PoolPlan] = {}
    lost: list[str] = []
    for name, inventory in take_inventory(fleet, world).items():
        is_expiry = reason is Reason.EXPIRED
        if (
            is_expiry
            and isinstance(world.read_stack(name), Unknown)
            and not _unknown_parts(inventory)
        ):
            lost += inventory.blind
            inventory = replace(inventory, blind=(), frozen=())  # noqa: PLW2901 - as if it were there
        declared = fleet.pools.get(name)
        pool = declared if isinstance(declared, Pool) else None
        closed = Closure(lives.NO_SWEEP_CREATION, ("pools", name))
        # The options have prices, and are closed to creations.
        options = (
            Option(name, t.name, market, "", price_per_hour(fleet, t, market), closed)
            for t in (find_types(fleet, pool) if pool else ())
            for market in (markets_of(pool) if pool else ())
        )
        pool_plan = PoolPlan(
            fleet=fleet,
            world=world,
            inventory=inventory,
            pool=pool,
            names=iter(()),
            closed=closed,
            options=tuple(options),
        )
        for unit in inventory.known:
            because = select(inventory, unit)
            if because and (stop := why_kept(unit)):
                pool_plan.kept[unit.name] = reason, lives.explain_stay(because, stop)
            elif because:
                _drain_or_delete(world, pool_plan, unit, reason, because)
        if any(isinstance(action, Delete) for action in pool_plan.actions):
            for begun in pool_plan.inventory.having(UnitState.UNDELETED):
                if begun.name not in pool_plan.leaving:
                    pool_plan.delete(begun, Reason.INTERRUPTED, lives.DELETION_STARTED)
        pool_plans[name] = pool_plan
    plan = assemble(fleet, world, pool_plans, Service())
    sizes = [(pool, size_decision(_SIZES[reason], pool.pool)) for pool in plan.pools]
    pools = tuple(p.altered(because=each.message, decisions=(each,)) for p, each in sizes)
    unknown = (*plan.unknown, *(f"{gone} (using its provider's list)" for gone in lost))
    # Shared parts are changed only by an apply.
    left = {"releases": (), "resumes": (), "bases": ()}
    return seal(plan.altered(pools=pools, unknown=tuple(dict.fromkeys(unknown)), **left))


def _unknown_parts(inventory: PoolInventory) -> tuple[str, ...]:
    """Return the reasons why parts of a pool other than its stack are unknown."""
    return tuple(reason for reason in inventory.frozen if reason not in inventory.blind)


def _explain_expiry(fleet: Fleet, world: World, inventory: PoolInventory, unit: Unit) -> str:
    end = unit.machine and expired_at(fleet, world, inventory.provider, unit.machine)
    return lives.explain_expired(world.time - end) if end else ""


def _drain_or_delete(
    world: World, pool_plan: PoolPlan, unit: Unit, reason: Reason, because: str
) -> None:
    """Plan the drain or deletion of a machine, or record the reason to keep it."""
    if stop := next(_reasons_to_keep(world, pool_plan, unit), ""):
        pool_plan.kept[unit.name] = reason, lives.explain_stay(because, stop)
    elif unit.state is UnitState.UNDELETED:
        pool_plan.delete(unit, Reason.INTERRUPTED, lives.DELETION_STARTED)
    elif unit.worker is None or (is_going(unit) and not unit.may_run):
        pool_plan.delete(unit, reason, because)
    elif not is_going(unit):
        pool_plan.drain(unit, reason, because)


def _reasons_to_keep(world: World, pool_plan: PoolPlan, unit: Unit) -> Iterator[str]:
    """Yield the reasons why a machine cannot be deleted at present."""
    inventory = pool_plan.inventory
    if unit.machine is None and unit.state in _UNSURE_ADVICE:
        yield _UNSURE_ADVICE[unit.state].format(name=unit.name)
    if unit.state is UnitState.STATIC:
        yield lives.STATIC
    if unit.held:
        yield f"held {unit.held.said} (`fleet hold {unit.name} --end` ends that)"
    yield from (*_unknown_parts(inventory), *inventory.blind)
    if pool_plan.pool is not None and pool_plan.pool.mode == "pause":
        yield "its pool has mode: pause"
    if unit.worker is None and not _are_registries_read(pool_plan.fleet, world, inventory):
        yield "no registry knows whether its worker is busy"
    if unit.awaits_token and inventory.tokens is None:
        yield "its token cannot be revoked, so its worker may still register"


def _are_registries_read(fleet: Fleet, world: World, inventory: PoolInventory) -> bool:
    """Return True if each registry of a pool's workers is readable."""
    listing = world.providers.get(inventory.provider)
    if isinstance(listing, Listing) and listing.workers is not None:
        return True
    pool = fleet.pools.get(inventory.pool)
    readings = [
        reading.workers
        for queue, reading in world.queues.items()
        if not isinstance(pool, Pool) or serves_queue(pool, queue)
    ]
    return bool(readings) and all(isinstance(workers, tuple) for workers in readings)


def sweep_machines(
    fleet: Fleet, world: World, plan: Plan, sources: Sources, tell: Tell
) -> Outcome:
    """Carry out the guarded plan of a sweep; return the result of each pool."""
    # A sweep does not compare its clock with earlier runs, so a late clock could revert charges.
    settle_accounts(fleet, world, take_inventory(fleet, world), sources, tell, may_revert=False)
    # A stack contains these machines, so that its engine can delete them.
    held = [
        action
        for action in plan.actions
        if (stack := world.stack_of(action.pool)) is not None
        and (machine := machine_at(world, stack.provider, action.worker)) is not None
        and stack.ids.get(action.worker) == machine.id
    ]
    unrecorded = [action for action in plan.actions if action not in held]
    pools = sorted({action.pool for action in unrecorded})
    by_provider = [
        delete_unrecorded_machines(
            world, plan, [a for a in unrecorded if a.pool == pool], sources, tell
        )
        for pool in pools
    ]
    touched = {action.pool for action in held}
    own = tuple(pool for pool in plan.pools if pool.pool in touched)
    part = plan.altered(actions=tuple(held), pools=own)
    by_stack = apply_plan(fleet, world, part, sources, tell)
    joined = by_pool((*by_stack.stacks, *by_provider))
    return by_stack.altered(stacks=tuple(joined[pool] for pool in sorted(joined)))


def sweep_blocks(
    plan: Plan, *, is_dry: bool = True, named: Collection[str] | None = None
) -> Iterator[Block]:
    """Yield the text of a deletion plan. With `is_dry`, the text says that it is a dry run.

    `named` are the machines that a user named; None for a sweep.
    """
    what, which = ("Sweep", "Expired") if named is None else ("Delete", "Chosen")
    dry = " (dry run; add --apply to do it)" if is_dry else ""
    changes = f"{words.changes(plan)}{dry}" if plan.actions else "nothing to delete"
    yield Title(
        line(StyledText(f"Fleet {plan.fleet}", Style.BOLD), f" at {words.time(plan.time)}")
    )
    yield bold(f"{what}: {changes}")
    yield _list_section("Not known", plan.unknown)
    yield changes_section(plan)
    kept = [
        add_reason(each.worker, each.because)
        for each in plan.workers
        if each.verdict == "keep"
        and (each.reason in (Reason.EXPIRED, Reason.REQUESTED) or each.worker in (named or ()))
    ]
    yield _list_section(f"{which}, but kept", kept)
    yield _list_section("Guards", [result.because for result in plan.guards])


def _list_section(heading: str, sentences: Sequence[str]) -> Section:
    return Section(heading, [Items(sentences, StyledText("! ", Style.YELLOW))])


@dataclass(frozen=True)
class Deletion:
    """A command that deletes machines regardless of the whole fleet's plan, with its text."""

    decide: Callable[[Fleet, World], Plan]
    command: str
    """Command that deletes the machines after they are drained."""
    named: Collection[str] | None = None
    """Machines that a user named; None for a sweep, which needs no store."""
    may_stay: bool = False
    """True if the command succeeds even if some selected machines are kept."""
    delete_leftovers: Callable[[bool], bool] = lambda _apply: True
    """Shows machines without a pool, or deletes them if True; False if some are unknown."""

    def exit_code(self, plan: Plan) -> int:
        """Return 4 if refused or if a requested, not busy machine stays; 1 for unknown sources."""
        stays = [
            worker
            for worker in plan.workers
            if worker.verdict == "keep"
            and not self.may_stay
            and worker.state != "busy"
            and (worker.reason is Reason.REQUESTED or worker.worker in (self.named or ()))
        ]
        return 4 if plan.is_refused or stays else 1 if plan.unknown else 0


def run_deletion(
    args: argparse.Namespace,
    console: Console,
    config: Config,
    sources: Sources,
    deletion: Deletion,
) -> int:
    """Show the machines to delete; delete with --apply or if confirmed. Return the exit code."""
    accepted = None
    if not args.apply:
        # The JSON of a plan includes the remarks.
        watch = observe_with_progress if args.json else observe_and_print
        world = watch(config, sources, console)
        plan = guard(config.fleet, deletion.decide(config.fleet, world))
        asks = can_confirm(console) and not args.json and bool(plan.actions)
        blocks = sweep_blocks(plan, is_dry=not asks, named=deletion.named)
        console.out(plan_to_json(plan) if args.json else text_for(console, blocks, piped=None))
        is_whole = deletion.delete_leftovers(False)
        if not asks:
            return deletion.exit_code(plan) or (0 if is_whole else 1)
        if not is_confirmed(console, "Drain and delete these machines?"):
            console.note("nothing was changed")
            return 1
        accepted = plan
    code = _delete_under_lock(args, console, config, sources, deletion, accepted=accepted)
    return code if deletion.delete_leftovers(True) else code or 1


def _delete_under_lock(  # noqa: PLR0913 - the inputs of a deletion
    args: argparse.Namespace,
    console: Console,
    config: Config,
    sources: Sources,
    deletion: Deletion,
    *,
    accepted: Plan | None,
) -> int:
    """Delete machines under the lock. Raises PlanRefused if the accepted plan has changed."""
    started, signals = utc_now(), Signals()
    sources = replace(sources, is_ending=signals.is_ending)
    executor = pool_executor(config.fleet, sources, default_jobs(), console.note)
    with (
        signals.heard(),
        _hold_lock(sources.store, started, console, deletion) as has_store,
        executor as (many, cut),
    ):
        world = observe_and_print(config, sources, console)
        refuse_clock(find_server_skew(world), fix="")
        plan = guard(config.fleet, deletion.decide(config.fleet, world))
        if accepted is not None and find_drift(accepted, plan):
            raise PlanRefused(
                "refused, nothing was changed: the plan changed during the question; run the "
                "command again"
            )
        if not args.json and accepted is None:
            blocks = sweep_blocks(plan, is_dry=False, named=deletion.named)
            console.out(text_for(console, blocks, piped=None))
        with signals.changing(cut):
            outcome = sweep_machines(config.fleet, world, plan, many, console.note)
        if has_store and plan.actions:
            # Pass the plan only for reasons: this command is no run of the fleet, so no heartbeat.
            RunLog(sources.store, started, args.command).record(outcome, plan)
    console.out(
        value_to_json(outcome)
        if args.json
        else text_for(console, outcome_blocks(outcome, plan, command=deletion.command))
    )
    signals.end_if_asked()
    return outcome.exit_code or deletion.exit_code(plan)


@contextmanager
def _hold_lock(
    store: Store, now: datetime, console: Console, deletion: Deletion
) -> Iterator[bool]:
    """Hold the fleet's lock in the block; yield False if the store with the lock is missing."""
    with ExitStack() as stack:
        try:
            stack.enter_context(store.lock(lock_owner(), now))
            # A sweep of an unattended fleet may start long after the last run.
            refuse_clock(find_store_skew(store, now), fix="")
        except (StoreMissing, StoreFailed) as error:
            if deletion.named is not None:
                raise
            console.note(f"sweeping without a lock: {error}")
            has_store = False
        else:
            has_store = True
        yield has_store


STATES = ("up", "ready", *(state.value for state in UnitState), "unknown")


class Machines(Value):
    """Machines, as `fleet machine list --json` prints them."""

    format: Literal["fleet-machines-2"] = "fleet-machines-2"
    fleet: str
    time: Moment
    machines: tuple[WorkerStatus, ...]
    unlisted: tuple[str, ...]
    """Pools whose machines are unknown."""


def _machine_blocks(status: Status) -> Iterator[Block]:
    """Yield the machines of a status as a table, then the unknown facts."""
    if status.workers or not status.unknown:
        yield worker_table(status, status.workers) if status.workers else line("No such machines.")
    yield from (line(StyledText("unknown: ", Style.YELLOW), text) for text in status.unknown)
    if status.unlisted:
        which = words.named("pool", status.unlisted)
        yield line(StyledText(f"The machines of {which} are unknown.", Style.YELLOW))


GROUPS = {
    "up": {
        UnitState.IDLE,
        UnitState.BUSY,
        UnitState.ASSUMED,
        UnitState.DRAINING,
        UnitState.DEAF,
        UnitState.STATIC,
    },
    "ready": {UnitState.IDLE, UnitState.ASSUMED},
}
"""Value of `--state` that selects several states, to these states."""
_SHOWN = 12
_MAX_RUNS = 10_000
_MAX_CREATED = 10_000


def _list(args: argparse.Namespace, console: Console) -> int:
    decision = observe_and_plan(args, console)
    note_clock(decision, console)
    plan = decision.plan
    _check("pool", args.pool, {pool.pool for pool in plan.pools})
    status = status_of(plan, facts_of_workers(decision.config.fleet, decision.world))
    states = {state for word in args.state for state in GROUPS.get(word, {word})}
    shown = status.altered(
        workers=tuple(
            each
            for each in status.workers
            if (not args.pool or each.pool in args.pool) and (not states or each.state in states)
        ),
        unlisted=tuple(p for p in status.unlisted if not args.pool or p in args.pool),
    )
    machines = Machines(
        fleet=shown.fleet, time=shown.time, machines=shown.workers, unlisted=shown.unlisted
    )
    show(args, console, machines, _machine_blocks(shown), piped=None)
    return 1 if shown.unlisted else 0


def _delete(args: argparse.Namespace, console: Console) -> int:
    is_by_pool = args.unused or args.all
    is_by_time = args.run is not None or args.since is not None
    is_one_way = sum((bool(args.machine), is_by_pool, is_by_time, args.expired)) == 1
    fits_pool = (is_by_pool or is_by_time) if args.pool else not is_by_pool
    if not (is_one_way and fits_pool):
        raise WrongUsage(
            "select machines in one way: by NAME; by --pool NAME with --unused (those that run "
            "nothing) or --all (busy ones are only drained); by --run ID or --since TIME; or by "
            "--expired"
        )
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    if args.expired:
        leftovers = partial(delete_leftovers, config.fleet, args.file, utc_now(), console)
        deletion = Deletion(
            sweep, "fleet machine delete --expired --apply", delete_leftovers=leftovers
        )
    elif args.unused or args.all or args.machine:
        plan = partial(_plan_selected, args, partial(_select_chosen, args), lambda _: "")
        deletion = Deletion(plan, "fleet apply", frozenset(args.machine))
    else:
        select = _select_created(args, sources.store)
        plan = partial(_plan_selected, args, select, _explain_possible_work)
        deletion = Deletion(plan, "fleet apply", frozenset(), may_stay=True)
    return run_deletion(args, console, config, sources, deletion)


def _plan_selected(
    args: argparse.Namespace,
    select: Select,
    why_kept: Callable[[Unit], str],
    fleet: Fleet,
    world: World,
) -> Plan:
    """Return a plan that deletes only the selected machines; raises FleetError for unknown names.

    A busy worker is only drained. A machine whose stack is unknown is kept.
    """
    plan = _plan_deletions(fleet, world, select, Reason.REQUESTED, why_kept)
    _check("pool", args.pool, {pool.pool for pool in plan.pools})
    known = {each.worker for each in plan.workers}
    _check("machine", args.machine, known, "; ".join(plan.unknown))
    return plan


def _select_chosen(args: argparse.Namespace, inventory: PoolInventory, unit: Unit) -> str:
    """Return the reason to delete a machine that is named or in a named pool; otherwise empty.

    A selection of unused machines omits those that may run work or may still register.
    """
    if unit.name in args.machine:
        return lives.REQUESTED
    if inventory.pool not in args.pool or unit.state in _UNSURE_ADVICE:
        return ""
    is_unused = unit.state in _UNUSED and not unit.may_run
    return lives.REQUESTED if is_unused or not args.unused else ""


def _select_created(args: argparse.Namespace, store: Store) -> Select:
    """Return a selection of the machines that a run, or all runs of a time span, created."""
    now = utc_now()
    if args.run is None:
        since, until = now - timedelta(seconds=args.since), now
    else:
        since, until = _span_of_run(store, args.run, now)
    latest: dict[str, datetime] = {}
    for attempt in store.attempts(_MAX_CREATED):
        latest[attempt.worker] = max(attempt.at, latest.get(attempt.worker, attempt.at))
    # If a later run reused the name, the machine is another one.
    made = frozenset(worker for worker, at in latest.items() if since <= at <= until)

    def select(inventory: PoolInventory, unit: Unit) -> str:
        is_ours = unit.name in made and inventory.pool in (args.pool or {inventory.pool})
        if not is_ours or unit.machine is None:
            return ""
        created = unit.machine.created_at
        if created is None:
            # For example by a run whose clock was ahead; only its attempt has a date.
            return lives.explain_requested_creation("at an unknown time")
        if not since <= created <= until:
            return ""
        return lives.explain_requested_creation(write_time(created))

    return select


def _span_of_run(store: Store, run: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and end of a run; an interrupted run ends when the next run starts."""
    runs = store.last_runs(_MAX_RUNS)
    starts = [each["started"] for each in runs]
    wanted = run.replace(" UTC", "").replace(" ", "T").removesuffix("Z")
    found = [number for number, start in enumerate(starts) if start.startswith(wanted)]
    if len(found) != 1:
        what = f"{len(found)} runs started" if found else "no run started"
        latest = ", ".join(starts[:3]) or "none"
        raise FleetError(f"nothing was changed: {what} at {run}; the latest: {latest}")
    (number,) = found
    ended = runs[number]["ended"] or (starts[number - 1] if number else "")
    since = datetime.fromisoformat(starts[number])
    return since, datetime.fromisoformat(ended) if ended else now


def delete_leftovers(
    fleet: Fleet,
    file: str,
    now: datetime,
    console: Console,
    apply: bool,  # noqa: FBT001 - the last argument of a partial
) -> bool:
    """Print machines of interrupted image builds; with `apply`, delete them; False if unknown.

    These machines have no pool and no worker. A machine that is older than the longest build or
    upload is left over. The result is False if the machines of a provider are unknown.
    """
    is_whole = True
    for name, cloud in clouds_of(fleet, file, SystemClock()).items():
        try:
            for each in cloud.temporary(now - LEFT_AFTER, delete=apply):
                done = "deleted" if apply else "`--apply` deletes it"
                console.note(f"{name}: {each}, left by an interrupted build or upload: {done}")
        except FleetError as error:
            console.note(f"{name}: temporary machines are unknown: {error}")
            is_whole = False
    return is_whole


def _console(args: argparse.Namespace, console: Console) -> int:
    """Print the console output that was stored with a hold, or else the current output."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    text = sources.store.console(f"hold {args.machine}")
    if not text:
        world = observe_with_progress(config, sources, console)
        listed = {machine.name: (provider, machine.id) for provider, machine in world.machines()}
        _check("machine", [args.machine], listed)
        text = end_of(read_console(sources, *listed[args.machine]), _LINES)
    console.out(text or f"{args.machine} has written nothing yet")
    return 0


_LINES = 200


def _check(what: str, names: Iterable[str], known: Iterable[str], unknown: str = "") -> None:
    """Raise FleetError, with a similar name or the known names, if a name is unknown."""
    them = sorted(known)
    for name in names:
        if name in them:
            continue
        meant = nearest(name, them)
        shown = ", ".join(them[:_SHOWN]) + ", …" * (len(them) > _SHOWN)
        hint = f"did you mean {meant}?" if meant else f"known: {shown or 'none'}"
        trouble = f"; some machines are unknown: {unknown}" if unknown else ""
        raise FleetError(f"nothing was changed: no {what} {name}; {hint}{trouble}")


def forget(args: argparse.Namespace, console: Console) -> int:
    """Remove a missing machine from its stack, under the lock, and log this as a run."""
    config = load_config(args, console)
    started = utc_now()
    sources = wire(config.fleet, args.file)
    with sources.store.lock(lock_owner(), started):
        world = observe_with_progress(config, sources, console)
        pool, queue = forget_machine(config.fleet, world, args.machine, sources)
        outcome = StackOutcome(pool=pool, result="applied", forgotten=(args.machine,))
        RunLog(sources.store, started, "forget").record(Outcome(plan="", stacks=(outcome,)))
        confirm_all(sources, console.note)
    off = f"its worker was disabled at queue {queue}" if queue else "nothing else changed"
    console.out(
        f"removed machine {args.machine} from the stack of pool {pool}; {off}; the next `fleet "
        "apply` creates another if needed"
    )
    return 0


MACHINE = argument("machine", metavar="NAME", help="name, as `fleet status` shows it")
ARGUMENTS = (
    actions(
        action(
            "list",
            "list machines: state, work, age, cost",
            _list,
            repeated("--pool", "NAME", "only machines of this pool; may be repeated"),
            argument(
                "--state",
                action="append",
                default=[],
                choices=STATES,
                metavar="STATE",
                help="only machines in this state; may be repeated. `up`: connected, busy or not; "
                f"`ready`: idle; others: {', '.join(STATES[2:])}",
            ),
            WORLD,
            JSON,
        ),
        action(
            "delete",
            "drain machines and delete idle ones",
            _delete,
            argument(
                "machine", nargs="*", metavar="NAME", help="name, as `fleet status` shows it"
            ),
            repeated(
                "--pool",
                "NAME",
                "select machines of this pool, or limit --run and --since to it; may be repeated",
            ),
            exclusive(
                flag("--unused", "with --pool: idle machines"),
                flag("--all", "with --pool: idle machines, and drain busy ones"),
                option(
                    "--run",
                    "ID",
                    "machines created by this run that were never busy; ID: its start in "
                    "`fleet log`",
                ),
                option(
                    "--since",
                    "TIME",
                    "machines created within this time, for example 30m, that were never busy",
                    kind=duration,
                ),
                flag(
                    "--expired", "expired machines (`expire_after`), and remains of image builds"
                ),
            ),
            flag("--apply", "delete without asking; required without a terminal"),
            JSON,
        ),
        action("console", "print the last console lines of a machine", _console, MACHINE),
        action(
            "forget",
            "remove a machine from its stack after its provider lost it",
            forget,
            MACHINE,
        ),
    ),
)
