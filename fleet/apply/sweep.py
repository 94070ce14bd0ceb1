"""Plan and delete machines apart from demand: those that expired, those that a person names.

The same rules hold as anywhere: what is not known to be idle stays, a worker is drained before
its machine is deleted, and a pool in mode: pause stays as it is. Only that its stack is lost
keeps no expired machine: then its provider's own listing is the witness.

What a stack holds is deleted as apply does it. What no stack holds, or one that is lost,
is drained and disabled where its registry can be told, and deleted at its provider.
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
from fleet.apply.plan import look
from fleet.apply.record import RunLog
from fleet.apply.run import apply_plan, settle_accounts
from fleet.apply.timer import Signals, find_server_skew, find_store_skew, refuse_clock
from fleet.apply.unrecorded import by_pool, delete_unrecorded_machines, machine_at
from fleet.apply.wire import lock_owner
from fleet.clock import utc_now
from fleet.errors import StoreFailed, StoreMissing
from fleet.guard import guard
from fleet.model.digests import seal
from fleet.model.facts import Listing, Unknown, WorkerState, World
from fleet.model.outcome import Outcome
from fleet.model.plan import Action, Delete, Plan, Reason
from fleet.model.price_lists import with_price_lists
from fleet.model.prices import find_types, markets_of, price_per_hour
from fleet.planner.assembly import Decided, assemble
from fleet.planner.inventory import PoolInventory, expired_at, take_inventory
from fleet.planner.machine_inputs import Option
from fleet.planner.pool_plan import PoolPlan, is_going
from fleet.planner.staffing import Service
from fleet.planner.units import CAPACITY, State, Unit
from fleet.ports import Console, Store, Tell
from fleet.report import words
from fleet.report.json import plan_to_json, value_to_json
from fleet.report.outcome import outcome_to_text
from fleet.report.plan_text import changes_section
from fleet.report.terminal import Line, Span, Style, line, lines_to_text, title
from fleet.schema.model import Fleet, Pool, serves_queue
from fleet.schema.units import write_count, write_duration, write_time

_SAID = {
    Reason.EXPIRED: "a sweep looks at expired machines, not at demand",
    Reason.REQUESTED: "only the named machines are considered, not demand",
}
_MAKES_NONE = "a sweep creates no machine"
_BEGUN = "an earlier run started to delete it"
_UNUSED = (CAPACITY - {State.STARTING, State.UNFINISHED}) | {
    *(State.DRAINING, State.DEAF, State.FAILED, State.DISABLED, State.STOPPED),
    *(State.NEVER_REGISTERED, State.UNDELETED),
}
_UNSURE = {
    State.MISSING: (
        "its provider does not list it; if it is really gone: `fleet machine forget {name}`"
    ),
    State.UNFINISHED: "an interrupted apply was creating it; `fleet apply` finishes that",
    State.UNRECORDED: "its provider lists it, its stack does not: see `fleet state orphans`",
}
Select = Callable[[PoolInventory, Unit], str]
"""Says why a machine is to go; nothing where it is not."""


@dataclass(frozen=True)
class Choice:
    """Which machines a person wants deleted: these, or those of these pools."""

    names: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    unused: bool = False
    """Of pools only those that run nothing and have registered, or never will."""
    by: str = "fleet machine delete"
    """The command that the person gave."""

    def why(self, inventory: PoolInventory, unit: Unit) -> str:
        """Return why a machine is to go; nothing where it is not chosen."""
        said = f"requested by `{self.by}`"
        if unit.name in self.names:
            return said
        if inventory.pool not in self.pools or unit.state in _UNSURE:
            return ""
        is_unused = unit.state in _UNUSED and not unit.may_run
        return said if is_unused or not self.unused else ""


def sweep(fleet: Fleet, world: World) -> Plan:
    """Return the plan that deletes expired machines, and nothing else."""
    if isinstance(world.orders, Unknown):
        # Machines expire where nobody runs fleet any more; then nobody orders anything either.
        world = world.altered(orders=())
    return _plan_deletions(fleet, world, partial(_why_expired, fleet, world), Reason.EXPIRED)


def delete_machines(fleet: Fleet, world: World, choice: Choice) -> Plan:
    """Return the plan that deletes the machines that a person chose, and nothing else.

    A busy worker is only drained; without its stack a machine stays.
    """
    return _plan_deletions(fleet, world, choice.why, Reason.REQUESTED)


@dataclass(frozen=True)
class Window:
    """A time in which runs created machines, and what they created then."""

    since: datetime
    until: datetime
    made: frozenset[str]
    pools: frozenset[str] = frozenset()
    """The only pools it is about; none: all."""

    def why(self, inventory: PoolInventory, unit: Unit) -> str:
        """Return why a machine is to go; nothing where it was not made then."""
        is_ours = unit.name in self.made and inventory.pool in (self.pools or {inventory.pool})
        if not is_ours or unit.machine is None:
            return ""
        created = unit.machine.created_at
        if created is None:
            # As of a run whose clock was ahead: its attempt is the only date.
            return "created at an unknown time, undone by `fleet undo`"
        if not self.since <= created <= self.until:
            return ""
        return f"created {write_time(created)}, undone by `fleet undo`"


def undo_creations(fleet: Fleet, world: World, window: Window) -> Plan:
    """Return the plan that deletes what was created in a window and never became busy."""
    return _plan_deletions(fleet, world, window.why, Reason.REQUESTED, _why_worked)


def _why_worked(unit: Unit) -> str:
    """Return why a machine is not known to have run nothing so far; empty where it surely has."""
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
        if is_expiry and _is_lost(world, name) and not _unread(inventory):
            lost += inventory.blind
            inventory = replace(inventory, blind=(), frozen=())  # noqa: PLW2901 - as if it were there
        pool = fleet.pools.get(name)
        pool_plan = PoolPlan(
            fleet=fleet,
            inventory=inventory,
            pool=pool if isinstance(pool, Pool) else None,
            names=iter(()),
            closed=_MAKES_NONE,
            options=tuple(_priced(fleet, pool, name)) if isinstance(pool, Pool) else (),
        )
        for unit in inventory.known:
            because = select(inventory, unit)
            if because and (stop := why_kept(unit)):
                pool_plan.kept[unit.name] = (reason, f"{because}; kept: {stop}")
            elif because:
                _drain_or_delete(world, pool_plan, unit, reason, because)
        _finish_deletions(pool_plan)
        pool_plans[name] = pool_plan
    plan = assemble(fleet, world, pool_plans, Decided((), Service()))
    pools = tuple(pool.altered(because=_SAID[reason]) for pool in plan.pools)
    unknown = (*plan.unknown, *(f"{gone} (using its provider's list)" for gone in lost))
    # What machines share is changed by an apply alone.
    left = {"releases": (), "resumes": (), "bases": ()}
    return seal(plan.altered(pools=pools, unknown=tuple(dict.fromkeys(unknown)), **left))


def _priced(fleet: Fleet, pool: Pool, name: str) -> Iterator[Option]:
    """Yield what a pool's machines cost; none is made."""
    for known in find_types(fleet, pool):
        for market in markets_of(pool):
            price = price_per_hour(fleet, known, market)
            yield Option(name, known.name, market, "", price, _MAKES_NONE)


def _finish_deletions(pool_plan: PoolPlan) -> None:
    """Add what an earlier run was deleting where any other goes: the engine deletes it too."""
    if any(isinstance(action, Delete) for action in pool_plan.actions):
        for unit in pool_plan.inventory.having(State.UNDELETED):
            if unit.name not in pool_plan.leaving:
                pool_plan.delete(unit, Reason.INTERRUPTED, _BEGUN)


def _is_lost(world: World, pool: str) -> bool:
    """Say whether a pool's stack cannot be read; its machines can still be swept."""
    return isinstance(world.read_stack(pool), Unknown)


def _unread(inventory: PoolInventory) -> tuple[str, ...]:
    """Return what else than the stack is not known of a pool."""
    return tuple(reason for reason in inventory.frozen if reason not in inventory.blind)


def _why_expired(fleet: Fleet, world: World, inventory: PoolInventory, unit: Unit) -> str:
    end = unit.machine and expired_at(fleet, world, inventory.provider, unit.machine)
    if not end:
        return ""
    age = write_duration(world.time - end)
    return f"expired {age} ago (not renewed by `fleet apply`)"


def _drain_or_delete(
    world: World, pool_plan: PoolPlan, unit: Unit, reason: Reason, because: str
) -> None:
    """Drain or delete a machine, or note why it stays."""
    if stop := next(_stops(world, pool_plan, unit), ""):
        pool_plan.kept[unit.name] = (reason, f"{because}; kept: {stop}")
    elif unit.state is State.UNDELETED:
        pool_plan.delete(unit, Reason.INTERRUPTED, _BEGUN)
    elif unit.worker is None or (is_going(unit) and not unit.may_run):
        pool_plan.delete(unit, reason, because)
    elif not is_going(unit):
        pool_plan.drain(unit, reason, because)


def _stops(world: World, pool_plan: PoolPlan, unit: Unit) -> Iterator[str]:
    """Yield why a machine may not go yet."""
    inventory = pool_plan.inventory
    if unit.machine is None and unit.state in _UNSURE:
        yield _UNSURE[unit.state].format(name=unit.name)
    if unit.held:
        yield f"held {unit.held.said} (`fleet release {unit.name}` ends that)"
    yield from (*_unread(inventory), *inventory.blind)
    if pool_plan.pool is not None and pool_plan.pool.mode == "pause":
        yield "its pool has mode: pause"
    if unit.worker is None and not _is_heard(pool_plan.fleet, world, inventory):
        yield "no registry knows whether its worker is busy"
    if unit.awaits_token and inventory.tokens is None:
        yield "its token cannot be revoked, so its worker may still register"


def _is_heard(fleet: Fleet, world: World, inventory: PoolInventory) -> bool:
    """Say whether every registry was read that a worker of a pool could be registered at."""
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
    """Carry out the guarded plan of a sweep; return what became of each pool it touches."""
    # Its clock is not compared with earlier runs: one that is behind would revert charges.
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
    """Say whether a stack holds the machine of an action, so that its engine can delete it."""
    stack = world.stack_of(action.pool)
    if stack is None:
        return False
    machine = machine_at(world, stack.provider, action.worker)
    return machine is not None and stack.ids.get(action.worker) == machine.id


def _only(plan: Plan, actions: Sequence[Action]) -> Plan:
    """Return the part of a plan that these actions are, without pools they do not touch."""
    touched = {action.pool for action in actions}
    pools = tuple(pool for pool in plan.pools if pool.pool in touched)
    return plan.altered(actions=tuple(actions), pools=pools)


def sweep_to_text(
    plan: Plan, *, applies: bool = False, colour: bool, named: Collection[str] | None = None
) -> str:
    """Return the plan of a sweep as text; `applies` says that it is carried out now.

    `named` are the machines that a person named, where that is what goes; None: it is a sweep.
    """
    lines = [
        line(Span(f"Fleet {plan.fleet}", Style.BOLD), f" at {words.time(plan.time)}"),
        *_headline(plan, "Sweep" if named is None else "Delete", applies=applies),
        *_list("Not known", plan.unknown),
        *changes_section(plan),
        *_list(
            "Expired, but kept" if named is None else "Chosen, but kept",
            tuple(_staying(plan, named or ())),
        ),
        *_list("Guards", tuple(result.because for result in plan.guards)),
    ]
    return lines_to_text(lines, colour=colour)


def _headline(plan: Plan, what: str, *, applies: bool) -> Iterator[Line]:
    if not plan.actions:
        yield line(Span(f"{what}: nothing to delete", Style.BOLD))
        return
    dry = "" if applies else " (dry run; add --apply to do it)"
    yield line(Span(f"{what}: {words.changes(plan)}{dry}", Style.BOLD))


def _staying(plan: Plan, named: Collection[str]) -> Iterator[str]:
    for worker in plan.workers:
        asked = worker.reason in (Reason.EXPIRED, Reason.REQUESTED) or worker.worker in named
        if worker.verdict == "keep" and asked:
            yield f"{worker.worker}: {worker.because}"


def _list(heading: str, sentences: tuple[str, ...]) -> Iterator[Line]:
    if sentences:
        yield title(heading)
    for sentence in sentences:
        yield line("  ", Span("! ", Style.YELLOW), sentence)


@dataclass(frozen=True)
class Deletion:
    """What is to be deleted without a plan of the whole fleet, and how it is shown."""

    decide: Callable[[Fleet, World], Plan]
    command: str
    """The command that deletes what was drained."""
    named: Collection[str] | None = None
    """The machines that a person named; None: it is a sweep, which does without a store."""
    may_stay: bool = False
    """Whether it is no failure that some of what was chosen stays."""

    def exit_code(self, plan: Plan) -> int:
        """Return what is said of a plan as a whole: what is unknown, what named machine stays."""
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
    """Show what would be deleted, or delete it with --apply; return the exit code."""
    if args.apply:
        return _delete(args, console, config, sources, deletion)
    plan = guard(config.fleet, deletion.decide(config.fleet, look(config, sources, console)))
    console.out(
        plan_to_json(plan)
        if args.json
        else sweep_to_text(plan, colour=console.colour, named=deletion.named)
    )
    return deletion.exit_code(plan)


def _delete(
    args: argparse.Namespace,
    console: Console,
    config: Config,
    sources: Sources,
    deletion: Deletion,
) -> int:
    started, signals = utc_now(), Signals()
    sources = replace(sources, is_ending=signals.is_ending)
    executor = pool_executor(
        config.fleet, args.file, sources, Parallelism(default_jobs()), console.note
    )
    with (
        signals.heard(),
        _locked(sources.store, started, console, deletion) as has_store,
        executor as (many, cut),
    ):
        world = look(config, sources, console)
        refuse_clock(find_server_skew(world), fix="")
        plan = guard(config.fleet, deletion.decide(config.fleet, world))
        if not args.json:
            console.out(
                sweep_to_text(plan, applies=True, colour=console.colour, named=deletion.named)
            )
        with signals.changing(cut):
            outcome = sweep_machines(config.fleet, world, plan, many, console.note)
        if has_store and plan.actions:
            # Without a plan this is no run of the fleet, so no heartbeat.
            RunLog(sources.store, started, args.command).record(outcome, plan)
    console.out(
        value_to_json(outcome)
        if args.json
        else outcome_to_text(outcome, plan, colour=console.colour, command=deletion.command)
    )
    signals.end_if_asked()
    return outcome.exit_code or deletion.exit_code(plan)


@contextmanager
def _locked(store: Store, now: datetime, console: Console, deletion: Deletion) -> Iterator[bool]:
    """Hold the fleet's lock; False where there is no store any more that has one."""
    with ExitStack() as stack:
        try:
            stack.enter_context(store.lock(lock_owner(), now))
            # A sweep of a fleet without runs comes long after the last run.
            refuse_clock(find_store_skew(store, now), fix="")
        except (StoreMissing, StoreFailed) as error:
            if deletion.named is not None:
                raise
            console.note(f"sweeping without a lock: {error}")
            has_store = False
        else:
            has_store = True
        yield has_store
