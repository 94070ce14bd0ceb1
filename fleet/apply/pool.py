"""Change one pool: drain, enrol, disable, change its stack, and record the results.

Each attempt to create a machine is recorded before and after the attempt, and the next run settles
the attempts of a killed run. A worker is enrolled right before its machine is created. Its token,
which is only in the user data, is revoked if the machine was certainly not created. Approvals are
spent before the change, and refunded for actions that were not done.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Literal

from fleet.apply.observe import Sources
from fleet.apply.record import log_of_order
from fleet.apply.spending import refund, spend, undone
from fleet.engines.projects import run_steps
from fleet.errors import (
    DeletionPending,
    FleetError,
    PlanRefused,
    StackFailed,
    StoreMissing,
    WorkerBusy,
    refusal,
)
from fleet.guard import find_stopped
from fleet.model.facts import (
    Attempt,
    Machine,
    Stack,
    Unknown,
    World,
    market_of,
)
from fleet.model.history import StackOutcome
from fleet.model.orders import FLEET, Hold
from fleet.model.plan import (
    Action,
    ApprovalVerdict,
    Create,
    Delete,
    Drain,
    Plan,
    Reason,
    Release,
    Resume,
    is_begun,
)
from fleet.model.pool_limits import boot_of
from fleet.model.user_data import write_swap, write_user_data
from fleet.planner.failures import classify, settle
from fleet.planner.inventory import PoolInventory, find_departures
from fleet.planner.lifecycle.failed import HOLD_SECONDS
from fleet.ports import (
    ConsoleReader,
    Engine,
    Enrolment,
    Registry,
    StackChange,
    StackRecord,
    StackRef,
    Tell,
)
from fleet.report.terminal import clean
from fleet.schema.model import DebusineQueue, Fleet, Pool, is_at_cloud
from fleet.schema.secrets import masked
from fleet.state.store import Store
from fleet.tagrules.debusine import static_tags
from fleet.words.runs import describe_release, describe_return

_MAX_CHARS = 200_000


def hold_failed(plan: Plan, sources: Sources, run: str, note: Tell, tell: Tell) -> None:
    """Keep machines that failed to boot, as planned, and revoke their tokens.

    `run` is the id of this run in the log; `note` writes to the journal of this run.
    """
    now = plan.time
    for each in plan.holds:
        note(f"hold {each.worker}")
        until = now + timedelta(seconds=HOLD_SECONDS)
        hold = Hold(machine=each.worker, by=FLEET, at=now, until=until, reason=each.because)
        try:
            console = end_of(read_console(sources, each.provider, each.machine), each.log)
        except FleetError as error:
            console = ""
            tell(f"{each.pool}: console of {each.worker} is unknown: {error}")
        entry = log_of_order("hold", hold, now, run)
        sources.store.place_order(hold, entry, console)
        tell(f"{each.pool}: {hold.sentence}")
        try:
            if each.registry is not None and each.registry in sources.registries:
                sources.registries[each.registry].revoke(each.worker)
        except FleetError as error:
            tell(f"{each.pool}: token of {each.worker} is not revoked: {error}")


def read_console(sources: Sources, provider: str, machine_id: str) -> str:
    """Return a machine's console output. Raises FleetError if the provider stores none."""
    cloud = sources.providers.get(provider)
    if not isinstance(cloud, ConsoleReader):
        raise FleetError(f"provider {provider} does not tell what its machines write")
    return cloud.console(machine_id)


def end_of(text: str, lines: int) -> str:
    """Return the last `lines` of a console output, without control characters and credentials."""
    last = text[-_MAX_CHARS:].splitlines()[-lines:] if lines else []
    return "".join(f"{masked(clean(each))}\n" for each in last)


_LINE_LIMIT = 300
APART = 2
"""Seconds between the starts of two workers, because Debusine loses messages of workers that
connect at the same moment."""
MARGIN = timedelta(minutes=10)
"""Time for which a token is valid after the boot deadline, for the creation of the machine."""


@dataclass(frozen=True)
class PoolRun:
    """The plan, adapters and stack that are needed to change one pool."""

    fleet: Fleet
    world: World
    plan: Plan
    ref: StackRef
    sources: Sources
    tell: Tell
    delays: Mapping[str, int]
    """Worker to the delay of its start in seconds; see `stagger`."""
    forgotten: Collection[str] = ()
    """Missing machines that this run has already removed from the stack."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return the pool's planned actions, except for orphans and missing machines."""
        return tuple(
            each
            for each in self.plan.actions
            if each.pool == self.ref.pool and not (is_orphan(each) or is_gone(each))
        )

    @property
    def approvals(self) -> tuple[ApprovalVerdict, ...]:
        """Return the approvals that let some of the pool's actions pass."""
        return tuple(
            each for each in self.plan.approvals if each.pool == self.ref.pool and each.passes
        )

    @property
    def stack(self) -> Stack | None:
        """Return the observed stack of the pool; None if it is unknown or does not exist."""
        stack = self.world.stack_of(self.ref.pool)
        if stack is None or not self.forgotten:
            return stack
        return stack.altered(
            workers=tuple(each for each in stack.workers if each.name not in self.forgotten),
            ids={name: each for name, each in stack.ids.items() if name not in self.forgotten},
        )

    @property
    def engine(self) -> Engine:
        """Return the engine of the pool's stack."""
        return self.sources.engine_of(self.ref.provider)

    @property
    def blind(self) -> str:
        """Return why the pool's stack or machines are unknown; empty if both are known.

        If not empty, no action is permitted.
        """
        stack = self.world.read_stack(self.ref.pool)
        if isinstance(stack, Unknown):
            return stack.unknown
        listing = self.world.providers.get(self.ref.provider)
        if isinstance(listing, Unknown):
            return f"the machines of {self.ref.provider} are unknown: {listing.unknown}"
        return ""

    def read_stack(self) -> Stack | Unknown | None:
        """Read the current stack of the pool; None if missing, Unknown if unreadable."""
        try:
            return self.engine.read(self.ref)
        except FleetError as failure:
            return Unknown(unknown=str(failure))

    def record_stack(self, *, serial: int) -> None:
        """Record the pool's stack in the store, so that a later run notices its loss."""
        self.sources.store.record_stack(StackRecord.of(self.ref, self.engine, serial))


def apply_pool(run: PoolRun) -> StackOutcome:
    """Remove records of missing machines, carry out the other actions, and return the result.

    The engine deletes no missing machine: if the listing was wrong, the machine's work continues.
    """
    if run.blind:
        return StackOutcome(pool=run.ref.pool, result="refused", error=run.blind)
    actions = [a for a in run.plan.actions if a.pool == run.ref.pool and is_gone(a)]
    if not actions:
        return _apply_rest(run)
    done: list[str] = []
    error = ""
    try:
        _check_orders(run, actions)
        spend(run.sources.store, run.approvals, actions, run.stack)
        for action in actions:
            run.tell(f"{action.pool}: forget {action.worker}")
            # If the run is killed here, the next run only releases the worker, since neither stack
            # nor provider has the machine. In the other order, it would delete the machine.
            run.engine.forget(run.ref, action.worker)
            done.append(action.worker)
            if action.registry is not None:
                run.sources.registries[action.registry].release(action.worker)
            if cleaner := run.sources.cleaners.get(run.ref.provider):
                cleaner.forget(action.worker)
    except FleetError as failure:
        error = str(failure)
    result: _Result = "failed" if error else "applied"
    gone = StackOutcome(pool=run.ref.pool, result=result, forgotten=tuple(done), error=error)
    return _combine(gone, _apply_rest(replace(run, forgotten=done)))


def _apply_rest(run: PoolRun) -> StackOutcome:
    """Spend approvals, carry out the actions, and refund the approvals of undone actions."""
    store, actions = run.sources.store, run.actions
    try:
        if actions:
            _check_orders(run, actions)
            spent = spend(store, run.approvals, actions, run.stack)
            outcome = _apply_actions(run, actions)
            if any(name not in outcome.done for machines in spent.values() for name in machines):
                refund(store, spent, undone(actions, outcome, run.read_stack()))
            return outcome
        if run.stack is not None:
            run.record_stack(serial=run.stack.serial)
    except FleetError as failure:
        return StackOutcome(pool=run.ref.pool, result="failed", error=str(failure))
    return StackOutcome(pool=run.ref.pool, result="unchanged")


def _check_orders(run: PoolRun, actions: Sequence[Action]) -> None:
    """Raise PlanRefused if an order given after the plan freezes or holds an action."""
    try:
        orders = run.sources.store.orders(run.world.time)
    except StoreMissing:
        return  # only `fleet machine delete --expired` reaches this line without a store
    known = {order.key for order in run.plan.orders}
    later = [order for order in orders if order.key not in known]
    for order, action in find_stopped(run.fleet, run.plan, later, actions):
        raise refusal(f"{action.worker}: {order.sentence}, after this run made its plan")


_OUTCOME_FIELDS = {"": "deleted", "gone": "forgotten", "unmade": "cleaned"}
"""Kind of absence to the field of the outcome; only a machine that existed counts as deleted."""


def _apply_actions(run: PoolRun, actions: Sequence[Action]) -> StackOutcome:
    creates = [action for action in actions if isinstance(action, Create)]
    deletes = [action for action in actions if isinstance(action, Delete)]
    drained: list[str] = []
    steps = _RegistrySteps(run)
    done: tuple[str, ...] = ()
    going: tuple[str, ...] = ()
    error = ""
    result = "applied"
    try:
        _check_registries(run, actions)
        with ExitStack() as held:
            change = _prepare_change(run, creates, deletes, held) if creates or deletes else None
            note_departures(run.world, actions, run.sources.store)
            for action in actions:
                if isinstance(action, Drain):
                    run.tell(f"{action.pool}: drain {action.worker}")
                    run.sources.registries[action.registry].drain(action.worker)
                    drained.append(action.worker)
            steps.enrol(creates)
            steps.switch_off(deletes)
            error = "; ".join(steps.kept)
            result = "failed" if steps.troubles else "applied"
            going = tuple(action.worker for action in steps.going)
            # After an error, the prepared change has more actions than those permitted now.
            done = _change_stack(run, steps, None if error else change, held)
    except FleetError as failure:
        result = "refused" if isinstance(failure, PlanRefused) else "failed"
        error = "; ".join((*steps.kept, str(failure)))
        done = failure.done if isinstance(failure, StackFailed) else ()
        failed = failure.failed if isinstance(failure, StackFailed) and failure.failed else going
        going = tuple(name for name in going if name not in failed)
    pending = tuple(name for name in going if name not in done)
    after = run.read_stack() if pending else None
    if not isinstance(after, Unknown):
        # Their deletion takes time. For machines that are no longer in the stack, the provider
        # accepted the deletion earlier and no longer lists them.
        pending = tuple(name for name in pending if after and name in after.names)
    gone = {*done, *going} - {*pending}
    return StackOutcome.model_validate(
        {
            "pool": run.ref.pool,
            "result": result,
            "created": tuple(action.worker for action in creates if action.worker in done),
            "drained": tuple(drained),
            **{
                what: tuple(a.worker for a in deletes if a.worker in gone and a.absent == absent)
                for absent, what in _OUTCOME_FIELDS.items()
            },
            "deleting": pending,
            "error": error,
        }
    )


def _check_registries(run: PoolRun, actions: Sequence[Action]) -> None:
    """Raise PlanRefused for all actions if the queue of a worker is read-only."""
    named = {action.registry for action in actions}
    readonly = sorted(name for name in named if name and name not in run.sources.registries)
    if readonly:
        raise refusal(
            f"queue {', '.join(readonly)} is read-only, so fleet "
            "cannot enrol, drain or disable its workers; set `admin` on the queue, or `mode: "
            f"observe` or `pause` on pool {run.ref.pool}"
        )


def _prepare_change(
    run: PoolRun, creates: Sequence[Create], deletes: Sequence[Delete], held: ExitStack
) -> StackChange:
    """Prepare the stack change for these actions.

    Unchanged workers keep their inputs. Raises PlanRefused unless the engine would do exactly the
    planned steps.
    """
    going = {action.worker for action in deletes}
    recorded = run.stack.workers if run.stack else ()
    desired = {worker.name: worker for worker in recorded if worker.name not in going}
    desired |= {action.worker: action.inputs for action in creates}
    wanted = tuple(desired[name] for name in sorted(desired))
    change = held.enter_context(run.engine.prepare(run.ref, wanted))
    listed = {
        m.name
        for at, m in run.world.machines()
        if at == run.ref.provider and m.deleting_since is None
    }
    # Earlier runs deleted these machines, or their provider accepted the deletion. Only their
    # records are left to remove.
    gone = {each.worker for each in deletes if is_begun(each)} - listed
    planned = {(action.worker, "create") for action in creates}
    planned |= {(name, "delete") for name in going}
    previewed = {(step.worker, step.operation) for step in change.steps}
    unplanned = sorted(previewed - planned)
    missing = sorted(planned - previewed - {(name, "delete") for name in gone})
    if unplanned or missing:
        sentences = [f"would {what} {name}, which is not in the plan" for name, what in unplanned]
        static = {each.worker for each in run.plan.workers if each.reason is Reason.STATIC}
        sentences += [
            f"must not do that, as its worker is static; to forget it: fleet machine forget {name}"
            for name, _ in unplanned
            if name in static
        ]
        sentences += [f"would not {what} {name}, which is in the plan" for name, what in missing]
        raise refusal(f"the engine {'; '.join(sentences)}")
    return change


def note_departures(world: World, actions: Sequence[Action], store: Store) -> None:
    """Record why workers are about to be drained or disabled; keep existing records."""
    new = find_departures(world.departures, actions, world.time)
    if new:
        # Only `fleet machine delete --expired` reaches this line without a store.
        with suppress(StoreMissing):
            store.departures.write({each.key: each for each in new})


@dataclass
class _RegistrySteps:
    """The calls to registries before a change of a pool's stack, and their results."""

    run: PoolRun
    creates: list[Create] = field(default_factory=list)
    """The machines to create, whose workers are enrolled if they need a token."""
    user_data: dict[str, str] = field(default_factory=dict, repr=False)
    """Worker to user data with its token; empty if an earlier run provided the user data."""
    going: list[Delete] = field(default_factory=list)
    """Disabled workers, whose machines can be deleted."""
    busy: list[str] = field(default_factory=list)
    """Reasons why some workers are unchanged in this run."""
    troubles: list[str] = field(default_factory=list)
    """Errors; the workers with an error are also unchanged."""

    @property
    def kept(self) -> tuple[str, ...]:
        """Return a sentence per worker that is unchanged."""
        return (*self.busy, *self.troubles)

    @contextmanager
    def telling(self, action: Create | Delete, verb: str, failing: set[str]) -> Iterator[None]:
        """Catch and record an error that a registry raises in the block.

        `failing` collects the registries that failed; their remaining workers are skipped.
        """
        try:
            yield
        except WorkerBusy as busy:
            self.busy.append(f"{action.worker} not {verb}: {busy}")
        except FleetError as trouble:
            self.troubles.append(f"{action.worker} not {verb}: {trouble}")
            if action.registry and not isinstance(trouble, PlanRefused):
                failing.add(action.registry)

    def enrol(self, creates: Sequence[Create]) -> None:
        """Enrol each worker that needs a token; skip other workers of a failed registry."""
        run, failing = self.run, set[str]()
        listed = {machine.name for _, machine in run.world.machines()}
        for action in creates:
            if action.registry is None:
                self.creates.append(action)
                pool = run.fleet.pools.get(action.pool)
                # User commands get the swap as a variable.
                if isinstance(pool, Pool) and pool.swap and is_at_cloud(run.fleet, pool):
                    self.user_data[action.worker] = write_swap(pool.swap)
            elif action.worker in listed:
                # A killed run has already created this machine with a token.
                self.user_data[action.worker] = ""
                self.creates.append(action)
            elif action.registry not in failing:
                with self.telling(action, "created", failing):
                    self.user_data[action.worker] = _enrol(run, action, action.registry)
                    self.creates.append(action)

    def switch_off(self, deletes: Sequence[Delete]) -> None:
        """Disable the workers to delete; keep a worker that has received work or registered.

        If a registry fails, the machines of workers that are already disabled are still deleted.
        """
        failing = set[str]()
        for action in deletes:
            if action.registry in failing:
                continue
            with self.telling(action, "deleted", failing):
                if action.registry is not None:
                    _retire_worker(self.run.sources.registries[action.registry], action)
                self.going.append(action)

    def revoke(self) -> None:
        """Revoke the tokens of workers that are not in the stack; print errors.

        A worker in the stack may exist, or the next run creates it. After an interruption, other
        workers may exist too; the next run releases those without a machine.
        """
        after = self.run.read_stack() if self.user_data else None
        if isinstance(after, Unknown) or (after and after.interrupted):
            return
        for action in self.creates:
            is_known = after is not None and action.worker in after.names
            if action.registry is None or is_known or not self.user_data.get(action.worker):
                continue
            try:
                self.run.sources.registries[action.registry].revoke(action.worker)
            except FleetError as trouble:
                said = f"cannot revoke the token of {action.worker}: {trouble}"
                self.run.tell(f"{self.run.ref.pool}: {said}")


def _enrol(run: PoolRun, action: Create, registry: str) -> str:
    """Enrol a worker, and return the user data with its token."""
    delay = run.delays.get(action.worker, 0)
    pool, tags = run.fleet.pools[action.pool], static_tags(run.fleet, action.pool)
    seconds = boot_of(pool).registration + delay
    enrolment = Enrolment(
        worker=action.worker,
        fleet=run.fleet.fleet,
        pool=action.pool,
        provides=tags["provided_tags"],
        requires=tags["required_tags"],
        expires=run.world.time + timedelta(seconds=seconds) + MARGIN,
    )
    token = run.sources.enrollers[registry].enrol(enrolment)
    queue = run.fleet.queues[registry]
    url = queue.url if isinstance(queue, DebusineQueue) else ""
    swap = pool.swap if isinstance(pool, Pool) else 0
    return write_user_data(url, token, delay=delay, swap=swap)


def _retire_worker(registry: Registry, action: Delete) -> None:
    """Release, revoke or disable a worker at its queue. Raises WorkerBusy if it must stay."""
    if action.releases:
        # The worker has a ticket, but its machine is stopped.
        registry.release(action.worker)
    elif action.revokes:
        registry.revoke(action.worker)
    else:
        registry.disable(action.worker)


def _change_stack(
    run: PoolRun, steps: _RegistrySteps, prepared: StackChange | None, held: ExitStack
) -> tuple[str, ...]:
    """Change the stack, and return the changed workers.

    If that fails, revoke the tokens of workers without a machine. If `prepared` is None, release
    `held` and prepare a change for the permitted actions.
    """
    if not (steps.creates or steps.going):
        return ()
    try:
        if prepared is None:
            held.close()
            prepared = _prepare_change(run, steps.creates, steps.going, held)
        run.record_stack(serial=run.stack.serial if run.stack else 0)
        attempts = _begin_attempts(run, steps.creates)
        try:
            made = prepared.make(
                lambda step: run.tell(f"{run.ref.pool}: {step.operation} {step.worker}"),
                steps.user_data,
            )
        except StackFailed as failure:
            # The provider refused these creations. Other machines may still fail to boot.
            refused = [
                attempt.altered(result=classify(said, attempt.worker), detail=said[:_LINE_LIMIT])
                for attempt in attempts
                if (said := failure.failed.get(attempt.worker)) is not None
            ]
            run.sources.store.record_attempts(refused)
            raise
        finally:
            after = run.engine.read(run.ref)
            if isinstance(after, Stack):
                run.record_stack(serial=after.serial)
                if is_empty(after) and run.ref.pool not in run.fleet.pools:
                    run.sources.store.forget_stack(run.ref.name)
    except FleetError:
        steps.revoke()
        raise
    return tuple(step.worker for step in made)


def _begin_attempts(run: PoolRun, creates: Sequence[Create]) -> tuple[Attempt, ...]:
    """Record and return attempts to create machines. Some may be recorded already."""
    begun = {each.worker: each for each in run.world.attempts if each.result == "starting"}
    attempts = [
        begun.get(create.worker)
        or Attempt(
            pool=create.pool,
            worker=create.worker,
            type=create.inputs.type,
            market=market_of(create.inputs),
            image=create.inputs.image,
            at=run.world.time,
            result="starting",
        )
        for create in creates
    ]
    run.sources.store.record_attempts([each for each in attempts if each.worker not in begun])
    return tuple(attempts)


def is_orphan(action: Action) -> bool:
    """Return True if an action deletes a machine without a stack, as any apply may do."""
    return isinstance(action, Delete) and action.reason is Reason.ORPHAN


def is_gone(action: Action) -> bool:
    """Return True if an action only removes the record of a missing machine."""
    return isinstance(action, Delete) and action.forgets


def is_empty(stack: Stack | Unknown | None) -> bool:
    """Return True if a stack is certainly empty and has no unfinished deletion."""
    return isinstance(stack, Stack) and not (stack.workers or stack.ids or stack.interrupted)


def settle_attempts(
    fleet: Fleet,
    world: World,
    inventories: Mapping[str, PoolInventory],
    store: Store,
    *,
    besides: Collection[str] = (),
) -> None:
    """Record the results of earlier attempts to create machines, if observable.

    Tasks of the pools in `besides` are still running; their attempts are not settled.
    """
    if any(attempt.result == "starting" for attempt in world.attempts):
        settled = settle(fleet, world, inventories)
        store.record_attempts([each for each in settled if each.pool not in besides])


def stagger(actions: Sequence[Action]) -> dict[str, int]:
    """Map each new worker to its start delay in seconds. Delays differ within a queue."""
    waiting: dict[str, int] = {}
    delays = {}
    for action in actions:
        if isinstance(action, Create) and action.registry is not None:
            delays[action.worker] = waiting.get(action.registry, 0)
            waiting[action.registry] = delays[action.worker] + APART
    return delays


def release_all(plan: Plan, sources: Sources, tell: Tell) -> tuple[str, ...]:
    """Release workers as planned; return the released workers. The next run retries failures."""
    return tuple(
        each.worker
        for each in plan.releases
        if each.registry in sources.registries and _release(plan, each, sources, tell)
    )


def _release(plan: Plan, each: Release, sources: Sources, tell: Tell) -> bool:
    approvals = [known for known in plan.approvals if each.worker in known.passes]
    try:
        spent = spend(sources.store, approvals, (each,), None)
        try:
            sources.registries[each.registry].release(each.worker)
        except FleetError:
            refund(sources.store, spent, frozenset({each.worker}))
            raise
    except FleetError as trouble:
        tell(f"{each.worker} not released: {trouble}")
        return False
    tell(describe_release(each.pool, each.worker, each.because))
    return True


def resume_all(world: World, plan: Plan, sources: Sources, tell: Tell) -> tuple[str, ...]:
    """Resume planned workers that are not held; return them. The next run retries failures."""
    if not plan.resumes:
        return ()
    orders = sources.store.orders(world.time)
    held = {each.machine for each in orders if isinstance(each, Hold)}
    return tuple(
        each.worker
        for each in plan.resumes
        if each.registry in sources.registries
        and each.worker not in held
        and _resume(world, each, sources, tell)
    )


def _resume(world: World, each: Resume, sources: Sources, tell: Tell) -> bool:
    try:
        sources.registries[each.registry].resume(each.worker)
        own = (each.worker, each.registry)
        known = (d for d in world.departures if (d.worker, d.registry) == own)
        over = {each.key: each.altered(over=world.time) for each in known}
        sources.store.departures.write(over)
    except FleetError as trouble:
        tell(f"{each.worker} not given back: {trouble}")
        return False
    tell(describe_return(each.pool, each.worker, each.because))
    return True


def forget_departures(world: World, store: Store) -> None:
    """Remove the departure records of workers whose machines certainly no longer exist."""
    stacks = world.stacks
    unread = isinstance(stacks, Unknown) or any(
        isinstance(each, Unknown) for each in (*stacks.values(), *world.providers.values())
    )
    if unread or not world.departures:
        return
    there = {machine.name for _, machine in world.machines()}
    there |= {name for stack in world.known_stacks.values() for name in stack.names}
    store.departures.write({}, [d.key for d in world.departures if d.worker not in there])


def confirm_all(sources: Sources, tell: Tell) -> None:
    """Make each registry verify its changes; print failures. The next run observes them."""
    for name, registry in sorted(sources.registries.items()):

        def said(text: str, name: str = name) -> None:
            tell(f"{name}: {text}")

        try:
            registry.confirm(said)
        except FleetError as trouble:
            tell(str(trouble))


_Result = Literal["failed", "refused", "applied", "unchanged"]
_WORST_FIRST: tuple[_Result, ...] = ("failed", "refused", "applied", "unchanged")


def with_orphans(
    outcome: StackOutcome, world: World, plan: Plan, sources: Sources, tell: Tell
) -> StackOutcome:
    """Delete the pool's machines without a stack, and add the result to `outcome`."""
    orphans = [each for each in plan.actions if each.pool == outcome.pool and is_orphan(each)]
    if not orphans:
        return outcome
    return _combine(outcome, delete_unrecorded_machines(world, plan, orphans, sources, tell))


class _StopRequested(WorkerBusy):
    """The user requested a stop, so that no further step starts. This is no failure."""


def delete_unrecorded_machines(
    world: World, plan: Plan, actions: Sequence[Action], sources: Sources, tell: Tell
) -> StackOutcome:
    """Drain or delete a pool's machines without a stack; return the result.

    Queues are called one after the other. Machines are deleted concurrently if their provider
    permits it.
    """
    provider = next(p.provider for p in plan.pools if p.pool == actions[0].pool) or ""
    done: set[str] = set()
    pending: set[str] = set()
    staying: dict[str, FleetError] = {}
    going: list[tuple[Action, Callable[[], None]]] = []

    def tell_of(action: Action) -> None:
        tell(f"{action.pool}: {action.action} {action.worker}")
        done.add(action.worker)

    def delete(each: tuple[Action, Callable[[], None]]) -> None:
        _check_stop(sources)
        each[1]()

    note_departures(world, actions, sources.store)
    for action in actions:
        try:
            _check_stop(sources)
            if isinstance(action, Drain):
                _registry(sources, action.registry).drain(action.worker)
                tell_of(action)
            elif isinstance(action, Delete):
                going.append((action, _retire(world, provider, action, sources)))
        except FleetError as error:
            staying[action.worker] = error
    with closing(run_steps(sources.machine_apis.get(provider), going, delete)) as ended:
        for (action, _), trouble in ended:
            if isinstance(trouble, DeletionPending):
                pending.add(action.worker)
            elif trouble:
                staying[action.worker] = trouble
            else:
                tell_of(action)
    failures = [each for each in staying.values() if not isinstance(each, WorkerBusy)]
    is_refused = all(isinstance(each, PlanRefused) for each in failures)
    return StackOutcome(
        pool=actions[0].pool,
        result="applied" if not failures else "refused" if is_refused else "failed",
        drained=tuple(a.worker for a in actions if isinstance(a, Drain) and a.worker in done),
        deleted=tuple(a.worker for a in actions if isinstance(a, Delete) and a.worker in done),
        deleting=tuple(a.worker for a in actions if a.worker in pending),
        error="; ".join(
            f"{a.worker} not deleted: {staying[a.worker]}" for a in actions if a.worker in staying
        ),
    )


def _check_stop(sources: Sources) -> None:
    if sources.is_ending():
        raise _StopRequested("stopped by a signal")


def _retire(world: World, provider: str, action: Delete, sources: Sources) -> Callable[[], None]:
    """Release, revoke or disable a worker; return the deletion of its machine.

    Raises FleetError if the machine must be kept.
    """
    machine_api = sources.machine_apis.get(provider)
    machine = machine_at(world, provider, action.worker)
    if machine_api is None or machine is None:
        raise PlanRefused(
            f"no stack holds it, and fleet deletes machines of {provider} only through their "
            "stack; delete it in the provider's console"
        )
    if action.registry is not None:
        _retire_worker(_registry(sources, action.registry), action)
    return partial(machine_api.delete, machine.id)


def _registry(sources: Sources, name: str) -> Registry:
    if name not in sources.registries:
        raise PlanRefused(
            f"queue {name} is read-only, so fleet cannot drain or disable its workers"
        )
    return sources.registries[name]


def machine_at(world: World, provider: str, name: str) -> Machine | None:
    """Return the machine of this name in a provider's listing; None if it is not listed."""
    named = (m for at, m in world.machines() if at == provider and m.name == name)
    return next(named, None)


def by_pool(outcomes: Iterable[StackOutcome]) -> dict[str, StackOutcome]:
    """Map pool to outcome, combined from machines inside and outside a stack."""
    found: dict[str, StackOutcome] = {}
    for each in outcomes:
        found[each.pool] = _combine(found[each.pool], each) if each.pool in found else each
    return found


def _combine(one: StackOutcome, other: StackOutcome) -> StackOutcome:
    """Return the combined outcome of two steps on a pool."""
    results = {one.result, other.result}
    return one.altered(
        result=next(each for each in _WORST_FIRST if each in results),
        created=one.created + other.created,
        drained=one.drained + other.drained,
        deleted=one.deleted + other.deleted,
        deleting=one.deleting + other.deleting,
        forgotten=one.forgotten + other.forgotten,
        cleaned=one.cleaned + other.cleaned,
        error="; ".join(filter(None, (one.error, other.error))),
    )
