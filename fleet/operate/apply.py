"""This module makes a plan so, pool by pool: drain, enrol, disable, change, record.

A failing pool blocks no other, and what a queue cannot be told is left out of the change. The
engine must be about to do exactly what the plan says of workers; anything else is refused before
it is done. A busy worker is never deleted.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial

from fleet.errors import FleetError, PlanRefused, StackFailed
from fleet.facts import Unknown, World
from fleet.operate.attempts import settle_attempts
from fleet.operate.changing import change_stack, prepare_change
from fleet.operate.charging import charge_ledger
from fleet.operate.confirming import confirm_all
from fleet.operate.crew import Task
from fleet.operate.enrolment import Enrolling, stagger
from fleet.operate.observe import Sources
from fleet.operate.pool_run import PoolRun, is_empty, observed_stack
from fleet.operate.releases import release_all
from fleet.operate.spending import refund, spend, undone
from fleet.operate.stacks import stack_ref
from fleet.operate.strays import both, with_orphans
from fleet.operate.switching import check_registries, switch_off
from fleet.plan import Action, Create, Delete, Drain, Plan, PoolVerdict
from fleet.plan.outcome import Outcome, StackOutcome
from fleet.ports import Tell
from fleet.schema.model import Fleet
from fleet.verdicts.bystanders import said_of_rivals


def apply_plan(fleet: Fleet, world: World, plan: Plan, sources: Sources, tell: Tell) -> Outcome:
    """Carry out a guarded plan and return what became of each pool; `tell` hears each step."""
    charge_ledger(fleet, world, sources.store, tell)
    settle_attempts(fleet, world, sources.store, besides=sources.crew.under_way)
    refused = rivalry(world, plan)
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
    sources.crew.run(
        [
            Task(
                each.pool, each.provider or "", _touched(plan, each.pool), partial(apply_one, each)
            )
            for each in pools
        ]
    )
    outcomes: dict[str, StackOutcome] = {}
    for each in sources.crew.ended():
        before = outcomes.get(each.pool)
        outcomes[each.pool] = both(before, each) if before else each
    under_way = sources.crew.under_way
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


def rivalry(world: World, plan: Plan) -> tuple[str, ...]:
    """Return why nothing may be done at queues that make machines by themselves too."""
    let = {name for each in plan.approvals if each.guard == "rival" for name in each.passes}
    made = [each for each in plan.actions if isinstance(each, Create)]
    touched = {queue for each in made if each.worker not in let for queue in each.queues}
    bought = {each.registry for each in made}
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
