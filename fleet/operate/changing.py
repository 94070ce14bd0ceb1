"""This module changes a pool's stack; the engine must be about to do exactly what was planned."""

from collections.abc import Collection, Sequence
from contextlib import ExitStack

from fleet.errors import FleetError, PlanRefused, StackFailed
from fleet.facts import Listing, Stack, WorkerInputs
from fleet.operate.attempts import begin_attempts, end_attempts
from fleet.operate.enrolment import Enrolled
from fleet.operate.pool_run import PoolRun, is_empty
from fleet.plan import Create, Delete, Reason
from fleet.ports import Change, StackRef, Step


def prepare_change(
    run: PoolRun, creates: Sequence[Create], deletes: Sequence[Delete], held: ExitStack
) -> Change:
    """Return the change that these actions come to, refusing what the plan does not say."""
    change = held.enter_context(run.engine.prepare(run.ref, _desired(run, creates, deletes)))
    _check_preview(change.steps, creates, deletes, gone=_gone(run, deletes))
    return change


def change_stack(
    run: PoolRun,
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
            prepared = prepare_change(run, creates, going, held)
        return _make(run, prepared, enrolled)
    except FleetError:
        if enrolled.user_data:
            for trouble in run.enrolling.revoke(creates, enrolled, run.read_stack()):
                run.tell(f"{run.ref.pool}: {trouble}")
        raise


def _desired(
    run: PoolRun, creates: Sequence[Create], deletes: Sequence[Delete]
) -> tuple[WorkerInputs, ...]:
    """Return the stack's workers after these actions; those that stay keep their inputs."""
    going = {action.worker for action in deletes}
    recorded = run.stack.workers if run.stack else ()
    desired = {worker.name: worker for worker in recorded if worker.name not in going}
    desired |= {action.worker: action.inputs for action in creates}
    return tuple(desired[name] for name in sorted(desired))


def _gone(run: PoolRun, deletes: Sequence[Delete]) -> set[str]:
    """Return what an apply that was killed has deleted already: the engine only forgets it."""
    listing = run.world.providers.get(run.ref.provider)
    listed = {m.name for m in listing.machines} if isinstance(listing, Listing) else set()
    interrupted = {each.worker for each in deletes if each.reason is Reason.INTERRUPTED}
    return interrupted - listed


def _check_preview(
    steps: Sequence[Step],
    creates: Sequence[Create],
    deletes: Sequence[Delete],
    *,
    gone: Collection[str],
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


def _make(run: PoolRun, change: Change, enrolled: Enrolled) -> tuple[Step, ...]:
    run.record_stack(serial=run.stack.serial if run.stack else 0)
    attempts = begin_attempts(run.world, enrolled.creates, run.sources.store)
    try:
        return change.make(lambda step: run.tell(_said(run.ref, step)), enrolled.user_data)
    except StackFailed as failure:
        end_attempts(attempts, failure, run.sources.store)
        raise
    finally:
        after = run.engine.read(run.ref)
        if isinstance(after, Stack):
            run.record_stack(serial=after.serial)
            if is_empty(after) and run.ref.pool not in run.fleet.pools:
                run.sources.store.forget_stack(run.ref.name)


def _said(ref: StackRef, step: Step) -> str:
    return f"{ref.pool}: {step.operation} {step.worker}"
