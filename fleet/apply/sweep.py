"""Plan and delete machines independent of demand: expired machines, and a user's selection.

The usual rules apply: only machines of idle workers are deleted, after a drain, and a pool in
`mode: pause` is unchanged. There is one exception: a lost stack does not protect expired machines,
since the listing of their provider is sufficient.

The engine deletes machines in a stack, as in an apply. Other machines are drained and disabled if
they have a registry, and their provider deletes them.
"""

import argparse
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from fleet.apply.config import Config
from fleet.apply.observe import Sources
from fleet.apply.parallel import Parallelism, default_jobs, pool_executor
from fleet.apply.plan import can_confirm, is_confirmed, look, look_aloud
from fleet.apply.record import RunLog
from fleet.apply.run import apply_plan, settle_accounts
from fleet.apply.saved_plan import find_drift
from fleet.apply.timer import Signals, find_server_skew, find_store_skew, refuse_clock
from fleet.apply.unrecorded import by_pool, delete_unrecorded_machines, machine_at
from fleet.apply.wire import lock_owner
from fleet.clock import utc_now
from fleet.errors import PlanRefused, StoreFailed, StoreMissing
from fleet.guard import guard
from fleet.model.decisions import SizeReason
from fleet.model.digests import seal
from fleet.model.facts import Listing, Unknown, WorkerState, World
from fleet.model.outcome import Outcome
from fleet.model.plan import Action, Delete, Plan, Reason
from fleet.model.price_lists import with_price_lists
from fleet.model.prices import find_types, markets_of, price_per_hour
from fleet.planner.assembly import Decided, assemble
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
from fleet.report.terminal import text_for
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
_BY_USER = "requested by `fleet machine delete`"
Select = Callable[[PoolInventory, Unit], str]
"""Returns the reason to delete a machine; empty if the machine is not selected."""


@dataclass(frozen=True)
class MachineSelection:
    """The machines that a user selected for deletion, by name or by pool."""

    names: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    unused: bool = False
    """True if a selection by pool omits machines that may run work or may still register."""

    def why(self, inventory: PoolInventory, unit: Unit) -> str:
        """Return the reason to delete a machine; empty if it is not selected."""
        if unit.name in self.names:
            return _BY_USER
        if inventory.pool not in self.pools or unit.state in _UNSURE_ADVICE:
            return ""
        is_unused = unit.state in _UNUSED and not unit.may_run
        return _BY_USER if is_unused or not self.unused else ""


def sweep(fleet: Fleet, world: World) -> Plan:
    """Return a plan that deletes only expired machines."""
    if isinstance(world.orders, Unknown):
        # Machines expire only if no run of fleet renews them, so no order is active either.
        world = world.altered(orders=())
    return _plan_deletions(fleet, world, partial(_explain_expiry, fleet, world), Reason.EXPIRED)


def delete_machines(fleet: Fleet, world: World, choice: MachineSelection) -> Plan:
    """Return a plan that deletes only the selected machines.

    A busy worker is only drained. A machine whose stack is unknown is kept.
    """
    return _plan_deletions(fleet, world, choice.why, Reason.REQUESTED)


@dataclass(frozen=True)
class CreationWindow:
    """A time span in which runs created machines, with the names of these machines."""

    since: datetime
    until: datetime
    made: frozenset[str]
    pools: frozenset[str] = frozenset()
    """Pools to consider; all if empty."""

    def why(self, inventory: PoolInventory, unit: Unit) -> str:
        """Return the reason to delete a machine; empty if it was not created in the time span."""
        is_ours = unit.name in self.made and inventory.pool in (self.pools or {inventory.pool})
        if not is_ours or unit.machine is None:
            return ""
        created = unit.machine.created_at
        if created is None:
            # For example by a run whose clock was ahead; only its attempt has a date.
            return f"created at an unknown time, {_BY_USER}"
        if not self.since <= created <= self.until:
            return ""
        return f"created {write_time(created)}, {_BY_USER}"


def undo_creations(fleet: Fleet, world: World, window: CreationWindow) -> Plan:
    """Return a plan that deletes machines created in a time span, unless they were busy."""
    return _plan_deletions(fleet, world, window.why, Reason.REQUESTED, _explain_possible_work)


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
        if is_expiry and _is_lost(world, name) and not _unknown_parts(inventory):
            lost += inventory.blind
            inventory = replace(inventory, blind=(), frozen=())  # noqa: PLW2901 - as if it were there
        pool = fleet.pools.get(name)
        pool_plan = PoolPlan(
            fleet=fleet,
            world=world,
            inventory=inventory,
            pool=pool if isinstance(pool, Pool) else None,
            names=iter(()),
            closed=Closure(lives.NO_SWEEP_CREATION, ("pools", name)),
            options=tuple(_list_prices(fleet, pool, name)) if isinstance(pool, Pool) else (),
        )
        for unit in inventory.known:
            because = select(inventory, unit)
            if because and (stop := why_kept(unit)):
                pool_plan.kept[unit.name] = reason, lives.explain_stay(because, stop)
            elif because:
                _drain_or_delete(world, pool_plan, unit, reason, because)
        _finish_deletions(pool_plan)
        pool_plans[name] = pool_plan
    plan = assemble(fleet, world, pool_plans, Decided((), Service()))
    sizes = [(pool, size_decision(_SIZES[reason], pool.pool)) for pool in plan.pools]
    pools = tuple(p.altered(because=each.message, decisions=(each,)) for p, each in sizes)
    unknown = (*plan.unknown, *(f"{gone} (using its provider's list)" for gone in lost))
    # Shared parts are changed only by an apply.
    left = {"releases": (), "resumes": (), "bases": ()}
    return seal(plan.altered(pools=pools, unknown=tuple(dict.fromkeys(unknown)), **left))


def _list_prices(fleet: Fleet, pool: Pool, name: str) -> Iterator[Option]:
    """Yield the options of a pool for their prices. Each option is closed to creations."""
    for known in find_types(fleet, pool):
        for market in markets_of(pool):
            price = price_per_hour(fleet, known, market)
            closed = Closure(lives.NO_SWEEP_CREATION, ("pools", name))
            yield Option(name, known.name, market, "", price, closed)


def _finish_deletions(pool_plan: PoolPlan) -> None:
    """If the plan deletes in a stack, add its unfinished deletions: the engine does both."""
    if any(isinstance(action, Delete) for action in pool_plan.actions):
        for unit in pool_plan.inventory.having(UnitState.UNDELETED):
            if unit.name not in pool_plan.leaving:
                pool_plan.delete(unit, Reason.INTERRUPTED, lives.DELETION_STARTED)


def _is_lost(world: World, pool: str) -> bool:
    """Return True if a pool's stack is unreadable. Its expired machines can still be deleted."""
    return isinstance(world.read_stack(pool), Unknown)


def _unknown_parts(inventory: PoolInventory) -> tuple[str, ...]:
    """Return the reasons why parts of a pool other than its stack are unknown."""
    return tuple(reason for reason in inventory.frozen if reason not in inventory.blind)


def _explain_expiry(fleet: Fleet, world: World, inventory: PoolInventory, unit: Unit) -> str:
    end = unit.machine and expired_at(fleet, world, inventory.provider, unit.machine)
    if not end:
        return ""
    return lives.explain_expired(world.time - end)


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
    held = [action for action in plan.actions if _is_recorded(world, action)]
    unrecorded = [action for action in plan.actions if action not in held]
    pools = sorted({action.pool for action in unrecorded})
    by_provider = [
        delete_unrecorded_machines(
            world, plan, [a for a in unrecorded if a.pool == pool], sources, tell
        )
        for pool in pools
    ]
    by_stack = apply_plan(fleet, world, _only(plan, held), sources, tell)
    joined = by_pool((*by_stack.stacks, *by_provider))
    return by_stack.altered(stacks=tuple(joined[pool] for pool in sorted(joined)))


def _is_recorded(world: World, action: Action) -> bool:
    """Return True if a stack contains an action's machine, so that its engine can delete it."""
    stack = world.stack_of(action.pool)
    if stack is None:
        return False
    machine = machine_at(world, stack.provider, action.worker)
    return machine is not None and stack.ids.get(action.worker) == machine.id


def _only(plan: Plan, actions: Sequence[Action]) -> Plan:
    """Return the part of a plan with these actions and their pools."""
    touched = {action.pool for action in actions}
    pools = tuple(pool for pool in plan.pools if pool.pool in touched)
    return plan.altered(actions=tuple(actions), pools=pools)


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
    yield _list_section(f"{which}, but kept", [*_kept_machines(plan, named or ())])
    yield _list_section("Guards", [result.because for result in plan.guards])


def _kept_machines(plan: Plan, named: Collection[str]) -> Iterator[str]:
    for worker in plan.workers:
        asked = worker.reason in (Reason.EXPIRED, Reason.REQUESTED) or worker.worker in named
        if worker.verdict == "keep" and asked:
            yield add_reason(worker.worker, worker.because)


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
        world = (look if args.json else look_aloud)(config, sources, console)
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
    code = _delete(args, console, config, sources, deletion, accepted=accepted)
    return code if deletion.delete_leftovers(True) else code or 1


def _delete(  # noqa: PLR0913 - the inputs of a deletion
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
    executor = pool_executor(config.fleet, sources, Parallelism(default_jobs()), console.note)
    with (
        signals.heard(),
        _hold_lock(sources.store, started, console, deletion) as has_store,
        executor as (many, cut),
    ):
        world = look_aloud(config, sources, console)
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
