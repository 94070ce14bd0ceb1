"""Carry out one run of `fleet apply`, from the lock to the record, with steps in call order.

Shared resources of a provider's machines are applied before planning. A resource in use is neither
deleted nor replaced. Selections and the modes of pools apply: if no pool of a provider may change,
its shared resources do not change.

A failed pool does not block other pools. The engine must preview exactly the planned steps for
workers; otherwise fleet refuses the change. fleet never deletes a busy worker.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType

from fleet.apply.config import Config, PlanResult
from fleet.apply.observe import (
    REMEMBERED,
    Concurrently,
    Sources,
    base_ref,
    remember_rules,
    stack_ref,
)
from fleet.apply.parallel import Background, Pace, pool_executor
from fleet.apply.plan import observe_with_progress, plan_for, priced
from fleet.apply.pool import (
    PoolRun,
    apply_pool,
    by_pool,
    confirm_all,
    forget_departures,
    hold_failed,
    is_empty,
    release_all,
    resume_all,
    settle_attempts,
    stagger,
    with_orphans,
)
from fleet.apply.record import RunLog, actions_of, journalled
from fleet.apply.satellites import SeenRun, connected
from fleet.apply.saved_plan import (
    Selection,
    check_selection,
    find_changes,
    part_at_rest,
    selected_part,
)
from fleet.apply.spending import charge_ledger
from fleet.apply.timer import (
    Signals,
    find_faults_at_start,
    find_faults_of_world,
    refuse_clock,
)
from fleet.apply.wire import lock_owner, wire
from fleet.clock import utc_now
from fleet.errors import FleetError, PlanRefused, StackFailed
from fleet.explain.history import sample_after, sample_of
from fleet.explain.tallies import tallies_of, waiting_of
from fleet.model.facts import Base, SharedResource, Unknown, World
from fleet.model.history import Counted, Outcome, RunObservation, StackOutcome
from fleet.model.log import run_id
from fleet.model.plan import Create, Notice, Plan, PoolVerdict
from fleet.planner.failures import describe_failures, recall
from fleet.planner.images import choose_image
from fleet.planner.inventory import (
    PoolInventory,
    extended,
    find_due,
    heirs_of,
    is_all_frozen,
    take_inventory,
)
from fleet.planner.ledger import payers_of
from fleet.planner.machine_inputs import options_of
from fleet.planner.shared_stacks import in_use, is_laid, parts_of, wanted_parts, why_held
from fleet.ports import Console, EngineTask, Messenger, SourceReader, StackStep, Tell
from fleet.report.outcome import Progress, format_begun
from fleet.schema.model import Fleet
from fleet.schema.units import write_count
from fleet.state.store import Store
from fleet.words.notes import describe_rivals


@dataclass(frozen=True)
class RunOptions:
    """The selected pools or plan, the parallelism and the stop signals of one run."""

    selection: Selection = field(default_factory=Selection)
    pace: Pace = 1
    signals: Signals = field(default_factory=Signals)
    trusts_clock: bool = False
    """True if a user confirmed that this computer's clock is right."""

    @property
    def background(self) -> Background | None:
        """Return the threads that continue slow work during later runs; None if each run waits."""
        return self.pace if isinstance(self.pace, Background) else None


@dataclass(frozen=True)
class Applied:
    """The plan and the result of one run."""

    plan: Plan
    outcome: Outcome
    decision: PlanResult
    """The whole plan with its inputs, even if only a part of it was applied."""

    @property
    def exit_code(self) -> int:
        """Return the exit code of the outcome; 1 for unknown sources or a required user action."""
        return self.outcome.exit_code or (1 if self.plan.unknown or self.plan.attention else 0)


def apply_once(
    config: Config, file: str, console: Console, show: Callable[[Plan], None], options: RunOptions
) -> Applied:
    """Plan and apply under the lock. `show` receives the plan before any machine changes."""
    started = utc_now()
    background, signals = options.background, options.signals
    wired = wire(
        config.fleet,
        file,
        looks=True,
        slots=background.slots if background else None,
        store=background.store if background else None,
    )
    wired = replace(wired, is_ending=signals.is_ending)
    lock = wired.store.lock(lock_owner(), started)
    executor = pool_executor(config.fleet, wired, options.pace, console.note)
    with executor as (sources, kill), background.locked(lock) if background else lock as dead:
        run = _ApplyRun(config, sources, console, options, started)
        with run.log.failing():
            applied = run.carry_out(dead, show, kill)
        if background:
            background.seen = run.seen(applied.decision.world, applied.plan)
    # Send them without the lock, since a receiver may be slow.
    whole, now = applied.decision.plan, utc_now()
    send_notices(whole, wired.messengers, wired.store, now, console.note)
    return applied


@dataclass(frozen=True)
class _ApplyRun:
    """One run under the lock, with a method per step."""

    config: Config
    sources: Sources
    console: Console
    options: RunOptions
    started: datetime

    @property
    def fleet(self) -> Fleet:
        """Return the configuration with the prices known at this point."""
        return self.config.fleet

    @property
    def log(self) -> RunLog:
        """Return the log of this run."""
        return RunLog(self.sources.store, self.started)

    def carry_out(
        self, dead: str | None, show: Callable[[Plan], None], kill: Callable[[], None] | None
    ) -> Applied:
        """Observe, plan, apply and record."""
        options, sources, signals = self.options, self.sources, self.options.signals
        self.begin(dead)
        seen = world = self.observe()
        run = replace(self, config=priced(self.config, world))
        fleet, note = run.fleet, self.console.note
        with signals.changing():
            sources.store.record_absences(world.absences)
            hand_out = connected().hand_out()
            world = hand_out.hand_out_all(fleet, world, sources.of_tickets, note, run.note)
            remember_rules(world, sources.store)
            troubles: tuple[StackOutcome, ...] = ()
            if options.selection.saved is None:
                # With a saved plan, after the comparison.
                world, troubles = run.apply_shared_stacks(world)
        inventories = take_inventory(fleet, world)
        whole = plan_for(run.config, world, inventories)
        plan = selected_part(options.selection, whole)
        plan = part_at_rest(sources.executor.under_way, plan)
        hand_out.note_waits(fleet, plan, sources.of_tickets)
        show(plan)
        with signals.changing(kill):
            outcome = run.execute(world, inventories, plan, troubles)
            note_failures(fleet, world, inventories, plan, sources)
            run.keep(seen, whole, plan, outcome)
            run.record(plan, outcome, world)
        return Applied(plan, outcome, PlanResult(run.config, world, whole))

    def begin(self, dead: str | None) -> None:
        """Record the start of this run. Raises PlanRefused for an invalid selection or clock.

        `dead` is the process that was killed while it had the lock; None if no process was killed.
        """
        store = self.sources.store
        if dead:
            self.console.note(
                f"took over the lock of {dead}, which died; finishing what it began"
                f"{format_begun(store.last_runs(1))}"
            )
        check_selection(self.options.selection, self.fleet, store)
        if not self.options.trusts_clock:
            refuse_clock(find_faults_at_start(store, self.started))
        self.log.begin(dead)
        store.begin_run(started=self.started)
        self.sources.prepare()

    def note(self, step: str) -> None:
        """Record a step in the journal before the step is done."""
        self.sources.store.record_step(started=self.started, step=step)

    def observe(self) -> World:
        """Return the observed world. Raises PlanRefused if this computer's clock is wrong."""
        sources = replace(self.sources, asking=self._asking())
        world = observe_with_progress(self.config, sources, self.console)
        if not self.options.trusts_clock:
            store = self.sources.store
            try:
                refuse_clock(find_faults_of_world(self.fleet, store, world))
            except PlanRefused as error:
                # Without an end, the next run would compare its clock with this run.
                outcome = Outcome(plan="", refused=(str(error),)).model_dump_json()
                store.record_run(started=self.started, ended=utc_now(), plan="", outcome=outcome)
                raise
        return world

    def _asking(self) -> Callable[[], SourceReader]:
        """Return a factory of readers. Meanwhile, tickets get machines that were idle before."""
        background, signals = self.options.background, self.options.signals
        if background is None or background.seen is None:
            return self.sources.asking
        # If this run does not complete, the next run must not use this older observation.
        seen, background.seen = background.seen, None
        with signals.changing():
            _, *before = self.sources.store.last_runs(2)
        signals.end_if_asked()
        if not before or before[0]["started"] != seen.started.isoformat():
            return self.sources.asking

        def hand_out() -> None:
            with signals.changing():
                now = utc_now()
                executor, tell = self.sources.executor, self.console.note
                if connected().hand_out().hand_out_again(seen, executor, now, tell, self.note):
                    background.given()
            signals.end_if_asked()

        return partial(Concurrently, meanwhile=hand_out)

    def apply_shared_stacks(self, world: World) -> tuple[World, tuple[StackOutcome, ...]]:
        """Apply the shared stacks of the selected pools; return the new world and the failures."""
        sources = journalled(self.sources, self.note)
        selection = self.options.selection
        return apply_shared_stacks(self.fleet, world, sources, self.console.note, selection)

    def execute(
        self,
        world: World,
        inventories: Mapping[str, PoolInventory],
        plan: Plan,
        troubles: tuple[StackOutcome, ...],
    ) -> Outcome:
        """Carry out the plan. `troubles` are earlier failures of shared stacks."""
        selection, store = self.options.selection, self.sources.store
        changes = find_changes(selection, plan)
        if selection.saved is not None and not changes:
            world, troubles, changes = apply_shared_stacks_of_saved(
                selection, world, self.apply_shared_stacks, partial(plan_for, self.config)
            )
        if changes:
            return Outcome(plan=plan.digests.plan, stacks=troubles, outdated=changes)
        tell = _progress_teller(plan, self.console)
        self.log.intend(plan)
        until = extended(self.fleet, world.time)
        for provider, machines in find_due(self.fleet, world):
            machine_api = self.sources.machine_apis.get(provider)
            if machine_api is None:
                continue
            try:
                machine_api.extend([machine.id for machine in machines], until)
            except FleetError as error:
                self.console.note(
                    f"cannot extend the expiry of {len(machines)} machines at {provider}: {error}"
                )
        promoted: tuple[str, ...] = ()
        if not competing_provisioners(world, plan):
            promoter = connected().promoter()
            promoted = promoter.promote_all(plan, store, utc_now(), self.note, tell)
        sources = journalled(self.sources, self.note)
        hold_failed(plan, sources, run_id(self.started), self.note, tell)
        settle_accounts(self.fleet, world, inventories, sources, tell)
        creates = (each for each in plan.actions if isinstance(each, Create))
        # Record them before creation, so that they are known if the run is killed.
        store.note_payers(tuple(payers_of(self.fleet, world, inventories, creates)))
        with self.log.renaming(heirs_of(self.fleet)):
            outcome = apply_plan(self.fleet, world, plan, sources, tell)
        stacks = (*troubles, *outcome.stacks)
        named = tuple(name_retries(self.fleet, world, inventories, store, stacks))
        return outcome.altered(stacks=named, promoted=promoted)

    def keep(self, seen: World, whole: Plan, plan: Plan, outcome: Outcome) -> None:
        """Store this run's world for the configured period, and samples of it indefinitely."""
        keep = timedelta(seconds=self.fleet.history.keep or 0)
        world = seen.model_dump_json() if keep else ""
        store, before = self.sources.store, sample_of(self.fleet, whole)
        store.record_sample(before, RunObservation(seen.time, world, keep))
        background = self.options.background
        actions = {**(background.actions if background else {}), **actions_of(plan)}
        after = sample_after(before, whole, actions.values(), outcome, utc_now())
        if after.pools != before.pools:
            store.record_sample(after)

    def record(self, plan: Plan, outcome: Outcome, world: World) -> None:
        """Record the end and the results of this run."""
        background = self.options.background
        earlier = background.actions if background else {}
        waited = self.sources.store.waited()
        counted = Counted(tallies_of(self.fleet, world, plan, waited), waiting_of(world, waited))
        self.log.record(outcome, plan, earlier, counted)
        if background:
            going = {name for names in self.sources.executor.under_way.values() for name in names}
            begun = {**earlier, **actions_of(plan)}
            background.actions = {key: begun[key] for key in begun if key[1] in going}

    def seen(self, world: World, plan: Plan) -> SeenRun:
        """Return this run's observation, which the next run uses while it observes."""
        leaving = {each.worker for each in plan.actions if not isinstance(each, Create)}
        leaving = leaving.union(*self.sources.executor.under_way.values())
        return SeenRun(self.fleet, world, self.sources.of_tickets, self.started, leaving)


def name_retries(
    fleet: Fleet,
    world: World,
    inventories: Mapping[str, PoolInventory],
    store: Store,
    stacks: Collection[StackOutcome],
) -> Iterator[StackOutcome]:
    """Yield the outcomes; those of failed creations with the reason and end of their back-off."""
    is_failed = any(each.result == "failed" for each in stacks)
    attempts = store.attempts(REMEMBERED) if is_failed else ()
    tried = {f"{a.pool}/{a.type}/{a.market}" for a in {*attempts} - {*world.attempts}}
    memory = recall(fleet, world.altered(attempts=attempts), inventories)
    for each in stacks:
        choice = choose_image(fleet, world, memory, each.pool)
        options = options_of(fleet, memory, each.pool, choice) if each.result == "failed" else ()
        closed = [o.closed for o in options if o.closed and o.closed.until and o.key in tried]
        if not closed:
            yield each
            continue
        error = "; ".join((*dict.fromkeys(by.reason for by in closed), each.error))
        yield each.altered(error=error, retry_at=min(by.until for by in closed if by.until))


def note_failures(
    fleet: Fleet,
    world: World,
    inventories: Mapping[str, PoolInventory],
    plan: Plan,
    sources: Sources,
) -> None:
    """Record again why tickets wait, including the creations that failed in this run."""
    attempts = sources.store.attempts(REMEMBERED) if sources.desks else ()
    if {*attempts} <= {*world.attempts}:
        return
    memory = recall(fleet, world.altered(attempts=attempts), inventories)
    pools = tuple(
        each.altered(failures=describe_failures(fleet, memory, each.pool)) for each in plan.pools
    )
    noted = plan.altered(pools=pools)
    connected().hand_out().note_waits(fleet, noted, sources.of_tickets)


def _progress_teller(plan: Plan, console: Console) -> Callable[[str], None]:
    """Return a function that prints each step and shows the remaining work."""
    progress = Progress(plan)

    def tell(text: str) -> None:
        console.note(text)
        progress.report(text)
        show()

    def show() -> None:
        if text := str(progress):
            console.progress(text)

    show()
    return tell


def competing_provisioners(world: World, plan: Plan) -> tuple[str, ...]:
    """Return why actions are forbidden: a sentence per queue that creates machines itself."""
    approved = {name for each in plan.approvals if each.guard == "rival" for name in each.passes}
    made = [each for each in plan.actions if isinstance(each, Create)]
    touched = {queue for each in made if each.worker not in approved for queue in each.queues}
    bought = {each.registry for each in made}
    refused = []
    for queue, reading in sorted(world.queues.items()):
        if queue in touched and reading.rivals:
            refused.append(describe_rivals(queue, sorted(reading.rivals)))
        elif queue in bought and isinstance(reading.workers, Unknown):
            refused.append(
                f"cannot tell whether queue {queue} provisions machines itself: its workers are "
                f"unknown: {reading.workers.unknown}"
            )
    return tuple(refused)


def settle_accounts(  # noqa: PLR0913 - observed values, and where to record them
    fleet: Fleet,
    world: World,
    inventories: Mapping[str, PoolInventory],
    sources: Sources,
    tell: Tell,
    *,
    may_revert: bool = True,
) -> None:
    """Charge the time until now, and record the results of earlier creation attempts."""
    charge_ledger(fleet, world, inventories, sources.store, tell, may_revert=may_revert)
    besides = sources.executor.under_way
    forget_departures(world, sources.store)
    settle_attempts(fleet, world, inventories, sources.store, besides=besides)


def apply_plan(fleet: Fleet, world: World, plan: Plan, sources: Sources, tell: Tell) -> Outcome:
    """Carry out a guarded plan; return the result of each pool. `tell` prints each step."""
    refused = competing_provisioners(world, plan)
    if refused:
        return Outcome(plan=plan.digests.plan, refused=refused)
    released = release_all(plan, sources, tell)
    resumed = resume_all(world, plan, sources, tell)
    delays = stagger(plan.actions)

    def apply_one(verdict: PoolVerdict) -> StackOutcome | None:
        if sources.is_ending():
            return None
        ref = stack_ref(fleet, verdict.pool, verdict.provider or "", world.stack_of(verdict.pool))
        run = PoolRun(fleet, world, plan, ref, sources, tell, delays)
        return with_orphans(apply_pool(run), world, plan, sources, tell)

    def machines_of(pool: str) -> frozenset[str]:
        return frozenset(each.worker for each in plan.actions if each.pool == pool)

    pools = [each for each in plan.pools if each.mode != "static"]
    sources.executor.run(
        [
            EngineTask(
                each.pool, each.provider or "", machines_of(each.pool), partial(apply_one, each)
            )
            for each in pools
        ]
    )
    outcomes = by_pool(sources.executor.ended())
    under_way = sources.executor.under_way
    planned = dict.fromkeys([*(each.pool for each in plan.pools), *outcomes])
    # Pools that were removed from fleet.yaml, and whose stacks were seen empty.
    for name, emptied in world.known_stacks.items():
        if name not in (*fleet.pools, *planned, *under_way) and is_empty(emptied):
            sources.store.forget_stack(stack_ref(fleet, name, "", emptied).name)
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
        resumed=resumed,
        refused=refused,
    )


_ADDITIONAL_RESOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"network": ("subnet",), "template": ("group", "role", "profile")}
)
"""Kind of resource to the additional resources in its stack, which are named NAME-ADDITIONAL."""
Lay = Callable[[World], tuple[World, tuple[StackOutcome, ...]]]


def apply_shared_stacks(
    fleet: Fleet, world: World, sources: Sources, tell: Tell, selection: Selection | None = None
) -> tuple[World, tuple[StackOutcome, ...]]:
    """Apply the shared stacks of providers; return the new world and the failures.

    Only stacks that the selection permits are applied, and none if all pools are frozen. Without a
    selection, as in a rebuild, all shared stacks are applied.
    """
    if selection is not None and is_all_frozen(fleet, world):
        return world, ()
    troubles = []
    for name in sorted(sources.bases):
        parts = _find_wanted_parts(fleet, world, name, tell)
        held = why_held(fleet, name, selection.pools) if selection else ""
        if parts is None:
            continue
        if held:
            tell(f"base of {name}: change postponed: {held}")
            continue
        engine, ref = sources.bases[name], base_ref(fleet, name)

        def progress(step: StackStep, name: str = name) -> None:
            tell(f"base of {name}: {step.operation} {step.worker}")

        try:
            _check_shared_steps(world, name, engine.preview(ref, parts), parts)
            engine.up(ref, parts, progress)
        except FleetError as trouble:
            result = "refused" if isinstance(trouble, PlanRefused) else "failed"
            what = f"(base of {name})"
            left = ", ".join(sorted(trouble.failed)) if isinstance(trouble, StackFailed) else ""
            error = f"{trouble}; not done: {left}" if left else str(trouble)
            troubles.append(
                StackOutcome.model_validate({"pool": what, "result": result, "error": error})
            )
        # Read it even after a failure, since machines must not use a deleted resource.
        base = engine.read(ref)
        bases = {key: each for key, each in world.bases.items() if key != name}
        world = world.altered(bases=bases if base is None else bases | {name: base})
    return world, tuple(troubles)


def apply_shared_stacks_of_saved(
    selection: Selection, world: World, lay: Lay, plan: Callable[[World], Plan]
) -> tuple[World, tuple[StackOutcome, ...], tuple[str, ...]]:
    """Apply the shared stacks of a saved plan; also return why the plan is now outdated.

    The next plan uses new resources; the saved plan may name replaced or deleted resources.
    """
    laid, troubles = lay(world)
    was, now = _shared_ids(world), _shared_ids(laid)
    if was.items() <= now.items():
        return laid, troubles, ()
    # The changes of base stacks in the saved plan are done, so they are no difference.
    said = selection.saved.bases if selection.saved else ()
    now_planned = plan(laid).altered(bases=said)
    return laid, troubles, find_changes(selection, selected_part(selection, now_planned))


def _shared_ids(world: World) -> dict[tuple[str, str], str]:
    return {
        (name, key): part_id
        for name, base in world.bases.items()
        if isinstance(base, Base)
        for key, part_id in base.ids.items()
    }


def _find_wanted_parts(
    fleet: Fleet, world: World, name: str, tell: Tell
) -> tuple[SharedResource, ...] | None:
    """Return the resources that a shared stack should have; None if no change is due or safe."""
    base = world.bases.get(name)
    parts = wanted_parts(fleet, world, name)
    if isinstance(base, Unknown):
        return None  # no machine that needs this base stack is planned
    used = in_use(world, name)
    why = f"its users are unknown ({used.unknown})" if isinstance(used, Unknown) else "in use"
    declared = {part.key for part in parts_of(fleet, name)}
    for part in parts:
        if part.key not in declared:
            tell(f"{part.key} is no longer in fleet.yaml, but kept: {why}")
    if (base is None and not parts) or (base is not None and is_laid(base, parts)):
        return None
    return parts


def _check_shared_steps(
    world: World, name: str, steps: Sequence[StackStep], parts: Sequence[SharedResource]
) -> None:
    """Raise PlanRefused if used or foreign resources would be deleted or replaced."""
    base, used = world.bases.get(name), in_use(world, name)
    ids = base.ids if isinstance(base, Base) else {}
    taking = [step for step in steps if step.operation in {"replace", "delete"}]
    if isinstance(used, Unknown):
        blocked = {step.worker for step in steps}
        why = f"its users are unknown: {used.unknown}"
    else:
        blocked = _resource_names(key for key in ids if key in used)
        why = "machines use it; drain their pools first, or revert the change"
    ours = _resource_names([*ids, *(part.key for part in parts)])
    if any(step.worker not in ours for step in taking):
        blocked = {step.worker for step in taking} - ours
        why = "fleet did not create it; move it to another stack"
    wrong = [step for step in taking if step.worker in blocked]
    if wrong:
        what = "; ".join(f"{step.operation} {step.worker}" for step in wrong)
        raise PlanRefused(
            f"refused, the base of provider {name} was not changed: it would {what}, and {why}"
        )


def _resource_names(keys: Iterable[str]) -> set[str]:
    """Return the names of the resources with these keys in a shared stack."""
    names: set[str] = set()
    for key in keys:
        kind, _, name = key.partition("/")
        names |= {name, *(f"{name}-{what}" for what in _ADDITIONAL_RESOURCES.get(kind, ()))}
    return names


MOST = 50
"""Maximum notices in one message; the next run sends the remaining notices."""
AGAIN = timedelta(hours=1)
"""Time before a failed notice is sent again, so that a slow server does not delay each run."""
_RETENTION = timedelta(days=400)
"""Time for which a sent notice is recorded; longer than any notice is repeated."""
_SENT = "sent"
_FAILED = "failed"


def send_notices(
    plan: Plan, messengers: Mapping[str, Messenger], store: Store, now: datetime, tell: Tell
) -> None:
    """Send due notices to each channel; print a warning if sending or recording fails."""
    if not (plan.notices and messengers):
        return
    try:
        before = store.notices.read()
        tried: dict[str, tuple[str, datetime]] = {}
        for channel, messenger in messengers.items():
            due = [each for each in plan.notices if _is_due(before, channel, each, now)][:MOST]
            if due:
                result = _send(plan, channel, messenger, due, tell)
                tried |= {f"{channel} {each.key}": (result, now) for each in due}
        if tried:
            old = [key for key, (_, at) in before.items() if at < now - _RETENTION]
            store.notices.write(tried, old)
    except FleetError as error:
        tell(f"fleet: warning: notices: {error}")


def _is_due(
    before: Mapping[str, tuple[str, datetime]], channel: str, notice: Notice, now: datetime
) -> bool:
    result, at = before.get(f"{channel} {notice.key}", ("", None))
    # A clock that was ahead may have recorded a failure in the future.
    return result != _SENT and (at is None or not at <= now < at + AGAIN)


def _send(
    plan: Plan, channel: str, messenger: Messenger, due: Sequence[Notice], tell: Tell
) -> str:
    """Send one message; return the result as a record for the store."""
    count = write_count(len(due), "notice")
    subject = f"fleet {plan.fleet}: {count}"
    text = "\n".join([f"{subject}:", *(f"- {each.said}" for each in due)])
    body: dict[str, object] = {
        "format": "fleet-notices-1",
        "fleet": plan.fleet,
        "time": plan.time.isoformat(),
        "text": text,
        "notices": [each.model_dump(mode="json") for each in due],
    }
    try:
        messenger.send(subject, text, body)
    except FleetError as error:
        tell(f"fleet: warning: notify.{channel}: {error}; tried again in an hour")
        return _FAILED
    tell(f"notify.{channel}: sent {count}")
    return _SENT
