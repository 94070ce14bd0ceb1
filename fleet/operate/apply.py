"""This module makes a plan so, pool by pool: drain, enrol, disable, change, record.

A failing pool blocks no other, and what a queue cannot be told is left out of the change. The
engine must be about to do exactly what the plan says of workers; anything else is refused before
it is done. A busy worker is never deleted.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from fleet.bystanders import said_of_rivals
from fleet.errors import FleetError, PlanRefused, StackFailed, WorkerBusy
from fleet.facts import Listing, Stack, Unknown, WorkerInputs, World
from fleet.guard_results import ApprovalVerdict
from fleet.operate.attempts import begin_attempts, end_attempts, settle_attempts
from fleet.operate.charging import charge_ledger
from fleet.operate.confirming import confirm_all
from fleet.operate.enrolment import Enrolled, Enrolling, stagger
from fleet.operate.observe import Sources, stack_ref
from fleet.operate.releases import release_all
from fleet.operate.spending import refund, spend, undone
from fleet.plan import (
    Action,
    Create,
    Delete,
    Drain,
    Outcome,
    Plan,
    PoolVerdict,
    Reason,
    StackOutcome,
)
from fleet.ports import Change, Engine, StackRecord, StackRef, Step
from fleet.schema.model import Fleet

Tell = Callable[[str], None]


def apply_plan(fleet: Fleet, world: World, plan: Plan, sources: Sources, tell: Tell) -> Outcome:
    """Carry out a guarded plan and return what became of each pool; `tell` hears each step."""
    charge_ledger(fleet, world, sources.store, tell)
    settle_attempts(fleet, world, sources.store)
    rivalry = _rivalry(world, plan)
    if rivalry:
        return Outcome(plan=plan.digests.plan, refused=rivalry)
    released = release_all(plan, sources, tell)
    enrolling = Enrolling(fleet, world, sources, stagger(plan.actions))
    outcomes: dict[str, StackOutcome] = {}

    def apply_one(verdict: PoolVerdict) -> None:
        if not sources.is_ending():
            ref = stack_ref(
                fleet, verdict.pool, verdict.provider or "", _observed(world, verdict.pool)
            )
            work = _Work(fleet, world, plan, ref, sources, tell, enrolling)
            outcomes[ref.pool] = _apply_one(work)

    pools = [verdict for verdict in plan.pools if verdict.mode != "static"]
    sources.crew([partial(apply_one, verdict) for verdict in pools])
    _forget_emptied(fleet, world, {verdict.pool for verdict in plan.pools}, sources)
    confirm_all(sources, tell)
    refused = tuple(result.because for result in plan.guards if result.result == "refused")
    return Outcome(
        plan=plan.digests.plan,
        stacks=tuple(outcomes[each.pool] for each in pools if each.pool in outcomes),
        left=tuple(each.pool for each in pools if each.pool not in outcomes),
        released=released,
        refused=refused,
    )


def _rivalry(world: World, plan: Plan) -> tuple[str, ...]:
    """Return why nothing may be done at queues that make machines by themselves too."""
    touched = {each.registry for each in (*plan.actions, *plan.releases)}
    bought = {each.registry for each in plan.actions if isinstance(each, Create)}
    refused = []
    for queue, reading in sorted(world.queues.items()):
        if queue in touched and reading.rivals:
            refused.append(said_of_rivals(queue, reading.rivals))
        elif queue in bought and isinstance(reading.workers, Unknown):
            refused.append(
                f"nobody knows whether queue {queue} makes machines by itself too: its workers "
                f"are unknown: {reading.workers.unknown}"
            )
    return tuple(refused)


@dataclass(frozen=True)
class _Work:
    """What carrying out one pool's actions needs."""

    fleet: Fleet
    world: World
    plan: Plan
    ref: StackRef
    sources: Sources
    tell: Tell
    enrolling: Enrolling

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return the pool's actions."""
        return tuple(each for each in self.plan.actions if each.pool == self.ref.pool)

    @property
    def approvals(self) -> tuple[ApprovalVerdict, ...]:
        """Return the approvals that let some of the pool's actions pass."""
        own = (each for each in self.plan.approvals if each.pool == self.ref.pool)
        return tuple(each for each in own if each.passes)

    @property
    def stack(self) -> Stack | None:
        """Return the pool's stack as it was observed."""
        return _observed(self.world, self.ref.pool)

    @property
    def blind(self) -> str:
        """Return why the pool's stack or machines are unknown; nothing may be done then."""
        if isinstance(self.world.stacks, Unknown):
            return self.world.stacks.unknown
        listing = self.world.providers.get(self.ref.provider)
        for reading in (self.world.stacks.get(self.ref.pool), listing):
            if isinstance(reading, Unknown):
                return reading.unknown
        return ""


def _observed(world: World, pool: str) -> Stack | None:
    """Return a pool's stack as it was observed; None where none was."""
    stacks = {} if isinstance(world.stacks, Unknown) else world.stacks
    stack = stacks.get(pool)
    return stack if isinstance(stack, Stack) else None


def _apply_one(work: _Work) -> StackOutcome:
    if work.blind:
        return StackOutcome(pool=work.ref.pool, result="refused", error=work.blind)
    try:
        if work.actions:
            return _apply_approved(work, work.actions)
        _remember(work)
    except FleetError as failure:
        return StackOutcome(pool=work.ref.pool, result="failed", error=str(failure))
    return StackOutcome(pool=work.ref.pool, result="unchanged")


def _remember(work: _Work) -> None:
    """Record a stack that was observed, so that its loss would be noticed."""
    if work.stack is not None:
        _record(work, work.sources.engine_of(work.ref.provider), serial=work.stack.serial)


def _forget_emptied(
    fleet: Fleet, world: World, planned: Collection[str], sources: Sources
) -> None:
    """Forget the stacks of removed pools that were observed empty: nothing is left to lose."""
    stacks = {} if isinstance(world.stacks, Unknown) else world.stacks
    for pool, stack in stacks.items():
        if pool not in fleet.pools and pool not in planned and _is_empty(stack):
            sources.store.forget_stack(stack_ref(fleet, pool, "", _observed(world, pool)).name)


def _is_empty(stack: Stack | Unknown | None) -> bool:
    """Say whether a stack surely holds nothing, not even something half deleted."""
    return isinstance(stack, Stack) and not (stack.workers or stack.ids or stack.interrupted)


def _apply_approved(work: _Work, actions: Sequence[Action]) -> StackOutcome:
    """Carry out a pool's actions; approvals are spent first, and taken back where nothing was."""
    store = work.sources.store
    spent = spend(store, work.approvals, actions, work.stack)
    outcome = _apply_pool(work, actions)
    done = {*outcome.created, *outcome.drained, *outcome.deleted}
    if any(name not in done for machines in spent.values() for name in machines):
        refund(store, spent, undone(actions, outcome, _stack_now(work)))
    return outcome


def _stack_now(work: _Work) -> Stack | Unknown | None:
    try:
        return work.sources.engine_of(work.ref.provider).read(work.ref)
    except FleetError as failure:
        return Unknown(unknown=str(failure))


def _apply_pool(work: _Work, actions: Sequence[Action]) -> StackOutcome:
    creates = [action for action in actions if isinstance(action, Create)]
    deletes = [action for action in actions if isinstance(action, Delete)]
    drained: list[str] = []
    done: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    error = ""
    result = "applied"
    try:
        _check_registries(work, actions)
        with ExitStack() as held:
            change = _prepare(work, creates, deletes, held) if creates or deletes else None
            for action in actions:
                if isinstance(action, Drain):
                    work.tell(f"{action.pool}: drain {action.worker}")
                    work.sources.registries[action.registry].drain(action.worker)
                    drained.append(action.worker)
            enrolled = work.enrolling.enrol(creates)
            switched = _disable(work, deletes)
            kept = (*enrolled.refused, *switched.kept, *enrolled.troubles, *switched.troubles)
            error = "; ".join(kept)
            result = "failed" if enrolled.troubles or switched.troubles else "applied"
            if kept:
                # What was looked at is more than what may be done now.
                change = None
            steps = _change(work, enrolled, switched.going, change, held)
            done = tuple(step.worker for step in steps)
    except PlanRefused as refusal:
        result, error = "refused", str(refusal)
    except StackFailed as failure:
        result, error, done = "failed", "; ".join((*kept, str(failure))), failure.done
    except FleetError as failure:
        result, error = "failed", str(failure)
    return StackOutcome.model_validate(
        {
            "pool": work.ref.pool,
            "result": result,
            "created": tuple(action.worker for action in creates if action.worker in done),
            "drained": tuple(drained),
            "deleted": tuple(action.worker for action in deletes if action.worker in done),
            "error": error,
        }
    )


def _check_registries(work: _Work, actions: Sequence[Action]) -> None:
    """Refuse before anything changes when a worker's queue cannot be told to let go of it."""
    named = {action.registry for action in actions}
    deaf = sorted(name for name in named if name and name not in work.sources.registries)
    if deaf:
        raise PlanRefused(
            f"refused, nothing was changed: queue {', '.join(deaf)} can be read, but not be told "
            "to enrol, drain or disable a worker; give it `admin` in fleet.yaml, or set "
            f"`mode: observe` or `pause` on pool {work.ref.pool}"
        )


@dataclass
class _Switched:
    """What became of the workers that go."""

    going: list[Delete] = field(default_factory=list)
    """Those that are switched off: their machines can be deleted."""
    kept: list[str] = field(default_factory=list)
    """Why some stay."""
    troubles: list[str] = field(default_factory=list)
    """What failed; what it is about stays too."""


def _disable(work: _Work, deletes: Sequence[Delete]) -> _Switched:
    """Switch off the workers that go; one that took work or registered meanwhile stays.

    Where a registry fails, what was switched off before goes all the same.
    """
    switched = _Switched()
    failing: set[str] = set()
    for action in deletes:
        if action.registry in failing:
            continue
        try:
            _switch_off(work, action)
        except WorkerBusy as busy:
            switched.kept.append(f"{action.worker} stays: {busy}")
        except FleetError as trouble:
            switched.troubles.append(f"{action.worker} stays: {trouble}")
            if not isinstance(trouble, PlanRefused):
                failing.add(action.registry or "")
        else:
            switched.going.append(action)
    return switched


def _switch_off(work: _Work, action: Delete) -> None:
    if action.registry is None:
        return
    registry = work.sources.registries[action.registry]
    if action.releases:
        registry.release(action.worker)
    elif action.revokes:
        registry.revoke(action.worker)
    else:
        registry.disable(action.worker)


def _desired(
    work: _Work, creates: Sequence[Create], deletes: Sequence[Delete]
) -> tuple[WorkerInputs, ...]:
    """Return the stack's workers after these actions; those that stay keep their inputs."""
    going = {action.worker for action in deletes}
    recorded = work.stack.workers if work.stack else ()
    desired = {worker.name: worker for worker in recorded if worker.name not in going}
    desired |= {action.worker: action.inputs for action in creates}
    return tuple(desired[name] for name in sorted(desired))


def _prepare(
    work: _Work, creates: Sequence[Create], deletes: Sequence[Delete], held: ExitStack
) -> Change:
    """Return the change that these actions come to, refusing what the plan does not say."""
    engine = work.sources.engine_of(work.ref.provider)
    change = held.enter_context(engine.prepare(work.ref, _desired(work, creates, deletes)))
    _check_preview(change.steps, creates, deletes, gone=_gone(work, deletes))
    return change


def _gone(work: _Work, deletes: Sequence[Delete]) -> set[str]:
    """Return what an apply that was killed has deleted already: the engine only forgets it."""
    listing = work.world.providers.get(work.ref.provider)
    listed = {m.name for m in listing.machines} if isinstance(listing, Listing) else set()
    interrupted = {each.worker for each in deletes if each.reason is Reason.INTERRUPTED}
    return interrupted - listed


def _change(
    work: _Work,
    enrolled: Enrolled,
    going: Sequence[Delete],
    prepared: Change | None,
    held: ExitStack,
) -> tuple[Step, ...]:
    """Change the stack; what was enrolled and not made has its token revoked.

    Where nothing is prepared, what is `held` is given up for what these actions come to.
    """
    creates = enrolled.creates
    if not (creates or going):
        return ()
    try:
        if prepared is None:
            held.close()
            prepared = _prepare(work, creates, going, held)
        return _make(work, prepared, enrolled)
    except FleetError:
        if enrolled.user_data:
            for trouble in work.enrolling.revoke(creates, enrolled, _stack_now(work)):
                work.tell(f"{work.ref.pool}: {trouble}")
        raise


def _make(work: _Work, change: Change, enrolled: Enrolled) -> tuple[Step, ...]:
    engine = work.sources.engine_of(work.ref.provider)
    _record(work, engine, serial=work.stack.serial if work.stack else 0)
    attempts = begin_attempts(work.world, enrolled.creates, work.sources.store)
    try:
        return change.make(lambda step: work.tell(_said(work.ref, step)), enrolled.user_data)
    except StackFailed as failure:
        end_attempts(attempts, failure, work.sources.store)
        raise
    finally:
        after = engine.read(work.ref)
        if isinstance(after, Stack):
            _record(work, engine, serial=after.serial)
            if _is_empty(after) and work.ref.pool not in work.fleet.pools:
                work.sources.store.forget_stack(work.ref.name)


def _check_preview(
    steps: Sequence[Step],
    creates: Sequence[Create],
    deletes: Sequence[Delete],
    *,
    gone: Collection[str] = (),
) -> None:
    """Refuse unless the engine is about to do exactly what the plan says."""
    planned = {(action.worker, "create") for action in creates}
    planned |= {(action.worker, "delete") for action in deletes}
    previewed = {(step.worker, step.operation) for step in steps}
    unplanned = sorted(previewed - planned)
    missing = sorted(planned - previewed - {(name, "delete") for name in gone})
    if unplanned or missing:
        sentences = [f"would {what} {name}, which is not in the plan" for name, what in unplanned]
        sentences += [f"would not {what} {name}, which is in the plan" for name, what in missing]
        raise PlanRefused(f"refused, nothing was changed: the engine {'; '.join(sentences)}")


def _record(work: _Work, engine: Engine, *, serial: int) -> None:
    work.sources.store.record_stack(
        StackRecord(
            name=work.ref.name,
            pool=work.ref.pool,
            provider=work.ref.provider,
            project=work.ref.project,
            engine=engine.name,
            serial=serial,
        )
    )


def _said(ref: StackRef, step: Step) -> str:
    return f"{ref.pool}: {step.operation} {step.worker}"
