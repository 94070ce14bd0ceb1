"""This module makes a plan so, pool by pool: drain, enrol, disable, change, record.

A failing pool blocks no other, and what a queue cannot be told is left out of the change. The
engine must be about to do exactly what the plan says of workers; anything else is refused before
it is done. A busy worker is never deleted.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from fleet.apply.assign import Seen, hand_out_all, note_waits
from fleet.apply.clocks import TRUST, SystemClock, check_clock, check_servers, extend_expiries
from fleet.apply.config import Config
from fleet.apply.journal import journalled
from fleet.apply.observe import Sources, remember_rules, stack_ref
from fleet.apply.parallel import Concurrently, Parallelism, pool_executor
from fleet.apply.pool import (
    Enrolling,
    PoolRun,
    change_stack,
    check_registries,
    confirm_all,
    is_empty,
    observed_stack,
    prepare_change,
    release_all,
    settle_attempts,
    stagger,
    switch_off,
)
from fleet.apply.promote import promote_all
from fleet.apply.selection import (
    Selection,
    check_selection,
    find_changes,
    idle_part,
    selected_part,
)
from fleet.apply.shared import apply_shared_stacks, apply_shared_stacks_of_saved
from fleet.apply.signals import Signals
from fleet.apply.spending import charge_ledger, refund, spend, undone
from fleet.apply.unrecorded import both, with_orphans
from fleet.apply.wire import lock_owner, look, plan_for, priced, wire
from fleet.errors import FleetError, PlanRefused, StackFailed
from fleet.model.facts import Unknown, World
from fleet.model.outcome import Outcome, StackOutcome
from fleet.model.plan import Action, Create, Delete, Drain, Plan, PoolVerdict
from fleet.planner.competing import format_rivals
from fleet.ports import Asking, Console, Store, Task, Tell
from fleet.report.outcome import Progress, format_begun
from fleet.schema.model import Fleet


def apply_plan(fleet: Fleet, world: World, plan: Plan, sources: Sources, tell: Tell) -> Outcome:
    """Carry out a guarded plan and return what became of each pool; `tell` hears each step."""
    charge_ledger(fleet, world, sources.store, tell)
    settle_attempts(fleet, world, sources.store, besides=sources.executor.under_way)
    refused = competing_provisioners(world, plan)
    if refused:
        return Outcome(plan=plan.digests.plan, refused=refused)
    released = release_all(plan, sources, tell)
    enrolling = Enrolling(fleet, world, sources, stagger(plan.actions))

    def apply_one(verdict: PoolVerdict) -> StackOutcome | None:
        if sources.is_ending():
            return None
        ref = stack_ref(
            fleet, verdict.pool, verdict.provider or "", observed_stack(world, verdict.pool)
        )
        run = PoolRun(fleet, world, plan, ref, sources, tell, enrolling)
        return with_orphans(_apply_one(run), world, plan, sources, tell)

    pools = [each for each in plan.pools if each.mode != "static"]
    sources.executor.run(
        [
            Task(
                each.pool, each.provider or "", _touched(plan, each.pool), partial(apply_one, each)
            )
            for each in pools
        ]
    )
    outcomes: dict[str, StackOutcome] = {}
    for each in sources.executor.ended():
        before = outcomes.get(each.pool)
        outcomes[each.pool] = both(before, each) if before else each
    under_way = sources.executor.under_way
    planned = dict.fromkeys([*(each.pool for each in plan.pools), *outcomes])
    _forget_emptied(fleet, world, {*planned, *under_way}, sources)
    confirm_all(sources, tell)
    refused = tuple(result.because for result in plan.guards if result.result == "refused")
    going = [pool for pool in planned if pool in under_way and pool not in outcomes]
    done = {*outcomes, *going}
    return Outcome(
        plan=plan.digests.plan,
        stacks=tuple(outcomes[pool] for pool in planned if pool in outcomes),
        left=tuple(each.pool for each in pools if each.pool not in done),
        under_way=tuple(going),
        released=released,
        refused=refused,
    )


def competing_provisioners(world: World, plan: Plan) -> tuple[str, ...]:
    """Return why nothing may be done at queues that make machines by themselves too."""
    let = {name for each in plan.approvals if each.guard == "rival" for name in each.passes}
    made = [each for each in plan.actions if isinstance(each, Create)]
    touched = {queue for each in made if each.worker not in let for queue in each.queues}
    bought = {each.registry for each in made}
    refused = []
    for queue, reading in sorted(world.queues.items()):
        if queue in touched and reading.rivals:
            refused.append(format_rivals(queue, reading.rivals))
        elif queue in bought and isinstance(reading.workers, Unknown):
            refused.append(
                f"nobody knows whether queue {queue} makes machines by itself too: its workers "
                f"are unknown: {reading.workers.unknown}"
            )
    return tuple(refused)


def _touched(plan: Plan, pool: str) -> frozenset[str]:
    return frozenset(each.worker for each in plan.actions if each.pool == pool)


def _apply_one(run: PoolRun) -> StackOutcome:
    if run.blind:
        return StackOutcome(pool=run.ref.pool, result="refused", error=run.blind)
    try:
        if run.actions:
            return _apply_approved(run, run.actions)
        if run.stack is not None:
            run.record_stack(serial=run.stack.serial)
    except FleetError as failure:
        return StackOutcome(pool=run.ref.pool, result="failed", error=str(failure))
    return StackOutcome(pool=run.ref.pool, result="unchanged")


def _forget_emptied(
    fleet: Fleet, world: World, planned: Collection[str], sources: Sources
) -> None:
    """Forget the stacks of removed pools that were observed empty: nothing is left to lose."""
    stacks = {} if isinstance(world.stacks, Unknown) else world.stacks
    for pool, stack in stacks.items():
        if pool not in fleet.pools and pool not in planned and is_empty(stack):
            sources.store.forget_stack(
                stack_ref(fleet, pool, "", observed_stack(world, pool)).name
            )


def _apply_approved(run: PoolRun, actions: Sequence[Action]) -> StackOutcome:
    """Carry out a pool's actions; approvals are spent first, and taken back where nothing was."""
    store = run.sources.store
    spent = spend(store, run.approvals, actions, run.stack)
    outcome = _apply_pool(run, actions)
    done = {*outcome.created, *outcome.drained, *outcome.deleted}
    if any(name not in done for machines in spent.values() for name in machines):
        refund(store, spent, undone(actions, outcome, run.read_stack()))
    return outcome


def _apply_pool(run: PoolRun, actions: Sequence[Action]) -> StackOutcome:
    creates = [action for action in actions if isinstance(action, Create)]
    deletes = [action for action in actions if isinstance(action, Delete)]
    drained: list[str] = []
    done: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    error = ""
    result = "applied"
    try:
        check_registries(run, actions)
        with ExitStack() as held:
            change = prepare_change(run, creates, deletes, held) if creates or deletes else None
            for action in actions:
                if isinstance(action, Drain):
                    run.tell(f"{action.pool}: drain {action.worker}")
                    run.sources.registries[action.registry].drain(action.worker)
                    drained.append(action.worker)
            enrolled = run.enrolling.enrol(creates)
            switched = switch_off(run, deletes)
            kept = (*enrolled.refused, *switched.kept, *enrolled.troubles, *switched.troubles)
            error = "; ".join(kept)
            result = "failed" if enrolled.troubles or switched.troubles else "applied"
            if kept:
                # What was looked at is more than what may be done now.
                change = None
            steps = change_stack(run, enrolled, switched.going, change, held)
            done = tuple(step.worker for step in steps)
    except FleetError as failure:
        result = "refused" if isinstance(failure, PlanRefused) else "failed"
        error = "; ".join((*kept, str(failure)))
        done = failure.done if isinstance(failure, StackFailed) else ()
    return StackOutcome.model_validate(
        {
            "pool": run.ref.pool,
            "result": result,
            "created": tuple(action.worker for action in creates if action.worker in done),
            "drained": tuple(drained),
            "deleted": tuple(action.worker for action in deletes if action.worker in done),
            "error": error,
        }
    )


@dataclass(frozen=True)
class Applied:
    """What one run planned, and what became of it."""

    plan: Plan
    outcome: Outcome

    @property
    def exit_code(self) -> int:
        """Return the outcome's; 1 also where a source was silent or a person has to look."""
        return self.outcome.exit_code or (1 if self.plan.unknown or self.plan.attention else 0)


@dataclass(frozen=True)
class RunOptions:
    """What one run may do, at which pace, and how it hears that it is to end."""

    selection: Selection = field(default_factory=Selection)
    pace: Parallelism = field(default_factory=Parallelism)
    signals: Signals = field(default_factory=Signals)
    trusts_clock: bool = False
    """Whether a person said that this computer's clock is right."""


def apply_once(
    config: Config, file: str, console: Console, show: Callable[[Plan], None], options: RunOptions
) -> Applied:
    """Apply what a plan made under the lock says; `show` gets the plan before anything changes."""
    started = (clock := SystemClock()).now()
    beside = options.pace.background
    wired = _wire(config, file, options)
    lock = wired.store.lock(lock_owner(), started)
    executor = pool_executor(config.fleet, file, wired, options.pace, console.note)
    with executor as (sources, cut), beside.locked(lock) if beside else lock as died:
        if died:
            console.note(_format_takeover(died, sources.store))
        _begin(config.fleet, sources, options, started)
        note = partial(_note, sources.store, started)
        config, world = _see(config, sources, console, options, note)
        edges = journalled(sources, note)
        lay = partial(
            apply_shared_stacks,
            config.fleet,
            sources=edges,
            tell=console.note,
            selection=options.selection,
        )
        troubles: tuple[StackOutcome, ...] = ()
        if options.selection.saved is None:
            with options.signals.changing():
                world, troubles = lay(world)
        plan = idle_part(
            sources.executor.under_way, selected_part(options.selection, plan_for(config, world))
        )
        note_waits(config.fleet, world, plan, sources)
        show(plan)
        tell = _teller(plan, console)
        with options.signals.changing(cut):
            drift = find_changes(options.selection, plan)
            if options.selection.saved is not None and not drift:
                anew = partial(plan_for, config)
                world, troubles, drift = apply_shared_stacks_of_saved(
                    options.selection, world, lay, anew
                )
            if drift:
                outcome = Outcome(plan=plan.digests.plan, stacks=troubles, outdated=drift)
            else:
                extend_expiries(config.fleet, world, sources, console.note)
                promote = partial(promote_all, plan, sources.store, clock.now(), note, tell)
                promoted = () if competing_provisioners(world, plan) else promote()
                outcome = apply_plan(config.fleet, world, plan, edges, tell)
                stacks = (*troubles, *outcome.stacks)
                outcome = outcome.model_copy(update={"stacks": stacks, "promoted": promoted})
            sources.store.record_run(
                started=started,
                ended=clock.now(),
                plan=plan.digests.plan,
                outcome=outcome.model_dump_json(),
            )
        if beside:
            beside.seen = Seen(config.fleet, world, sources, _left(plan, sources), started)
    return Applied(plan, outcome)


def _wire(config: Config, file: str, options: RunOptions) -> Sources:
    wired = wire(config.fleet, file, looks=True, beside=options.pace.background)
    return replace(wired, is_ending=options.signals.is_ending)


def _left(plan: Plan, sources: Sources) -> Collection[str]:
    """Return the machines that were let go of, or on which something was being done."""
    let_go = {each.worker for each in plan.actions if not isinstance(each, Create)}
    return let_go.union(*sources.executor.under_way.values())


def _begin(fleet: Fleet, sources: Sources, options: RunOptions, started: datetime) -> None:
    check_selection(options.selection, fleet, sources.store)
    if not options.trusts_clock:
        check_clock(sources.store, started)
    sources.store.begin_run(started=started)
    sources.prepare()


def _format_takeover(died: str, store: Store) -> str:
    begun = format_begun(store.last_runs(1))
    return f"took over the lock of {died}, which died; finishing what it began{begun}"


def _see(
    config: Config,
    sources: Sources,
    console: Console,
    options: RunOptions,
    note: Callable[[str], None],
) -> tuple[Config, World]:
    """Return the world with tickets served, and the configuration at the prices of it."""
    asking = _asking(sources, console, options, note)
    seen = look(config, replace(sources, asking=asking), console)
    if not options.trusts_clock:
        check_servers(seen, TRUST)
    config = priced(config, seen)
    with options.signals.changing():
        world = hand_out_all(config.fleet, seen, sources, console.note, note)
    remember_rules(world, sources.store)
    return config, world


def _asking(
    sources: Sources, console: Console, options: RunOptions, note: Callable[[str], None]
) -> Callable[[], Asking]:
    """Return what asks sources; while one is slow, tickets get what the run before saw free."""
    beside = options.pace.background
    if beside is None or beside.seen is None:
        return sources.asking
    # A run that does not come to its end leaves nothing to go by.
    seen, beside.seen = beside.seen, None
    with options.signals.changing():
        _, *before = sources.store.last_runs(2)
    options.signals.end_if_asked()
    if not before or before[0]["started"] != seen.started.isoformat():
        return sources.asking

    def hand_out() -> None:
        with options.signals.changing():
            if seen.hand_out(sources.executor, SystemClock().now(), console.note, note):
                beside.given()
        options.signals.end_if_asked()

    return partial(Concurrently, meanwhile=hand_out)


def _teller(plan: Plan, console: Console) -> Callable[[str], None]:
    """Return what says each step in a line, and to who watches how far that is."""
    progress = Progress(plan)

    def tell(text: str) -> None:
        console.note(text)
        progress.report(text)
        show()

    def show() -> None:
        if said := str(progress):
            console.progress(said)

    show()
    return tell


def _note(store: Store, started: datetime, step: str) -> None:
    store.record_step(started=started, step=step)
