"""This module lets go of what is beyond need: idle for long, and not paid for until later anyway.

Only registered workers count as ready: while a machine boots, the worker that it may stand in for
stays. The least regretted goes first. A machine that boots for nothing goes before it registers.
"""

from fleet.model.facts import World
from fleet.model.plan import Reason
from fleet.planner.lifecycle.order import least_regretted, paid_for, youngest_first
from fleet.planner.pool_plan import Draft
from fleet.planner.units import CAPACITY, State, Unit
from fleet.schema.model import TicketQueue
from fleet.schema.units import write_duration

_SERVING = CAPACITY | {State.BUSY}
_RUNS_TO_GO = 2
"""A worker is drained by one run, and deleted by the next that sees it drained and idle."""


def release_surplus(world: World, draft: Draft) -> None:
    """Drain what is idle for long, beyond min and spare, in the order of least regret."""
    if draft.pool is None or not draft.may_shrink:
        return
    idle = [u for u in draft.unused if u.state is State.IDLE and not _is_held(draft, u)]
    patience = draft.pool.retire.idle_after
    surplus = len(idle)
    if not draft.on_demand:
        ready = sum(unit.state in (State.IDLE, State.BUSY) for unit in draft.staying)
        workers = draft.pool.workers
        surplus = min(surplus - workers.spare, ready - workers.min)
    for unit in least_regretted(world, draft, idle):
        because = _idle_because(world, unit, None if draft.on_demand else patience)
        if surplus <= 0 or not because:
            continue
        surplus -= 1
        # What fleet alone gives out gets nothing while a run decides: it need not be drained.
        is_ours = isinstance(draft.fleet.queues.get(unit.registry or ""), TicketQueue)
        reason = Reason.NOT_WANTED if draft.on_demand else Reason.IDLE_TOO_LONG
        paid = _paid(world, draft, unit, runs=1 if is_ours else _RUNS_TO_GO)
        if paid:
            draft.kept.setdefault(unit.name, (Reason.PAID_FOR, f"{because}; {paid}"))
        elif is_ours:
            draft.delete(unit, reason, because)
        else:
            draft.drain(unit, reason, because)


def _paid(world: World, draft: Draft, unit: Unit, *, runs: int) -> str:
    """Return why to keep what is paid for anyway; empty where it goes at once, or that is wanted.

    It was given to nobody, so that any ticket may have it; of what one gave back, `returned` says.
    """
    at_once = draft.pool is not None and draft.pool.retire.at == "once"
    return "" if at_once else paid_for(world, draft, unit, runs=runs)


def _is_held(draft: Draft, unit: Unit) -> bool:
    """Say whether a machine is kept for the next ticket of its sandbox."""
    reuse = draft.pool.reuse if draft.pool else None
    if reuse is None or unit.worker is None or not unit.worker.uses:
        return False
    because = (
        "it is kept for the next ticket of its sandbox, reuse.opportunity is "
        f"{write_duration(reuse.opportunity)}"
    )
    draft.kept.setdefault(unit.name, (Reason.IDLE_RECENTLY, because))
    return True


def dismiss_booting(world: World, draft: Draft) -> None:
    """Let go of machines that boot for requests that were withdrawn, the youngest first.

    What is due to be replaced does not count: a machine that boots may be its replacement.
    """
    if draft.pool is None or not draft.may_shrink:
        return
    workers = draft.pool.workers
    fresh = [u for u in draft.staying if u.name not in draft.due and u.state in _SERVING]
    free = [u for u in fresh if u.state is not State.BUSY and u.name not in draft.used]
    surplus = len(free)
    if not draft.on_demand:
        surplus = min(surplus - workers.spare, len(fresh) - workers.min)
    unused = [unit for unit in draft.booting if unit.name not in draft.used]
    for unit in youngest_first(unused)[: max(0, surplus)]:
        because = "nothing that waits can use it; what it was made for was withdrawn or served"
        paid = _paid(world, draft, unit, runs=1)
        if paid:
            draft.kept.setdefault(unit.name, (Reason.PAID_FOR, f"{because}; {paid}"))
        else:
            draft.delete(unit, Reason.NOT_WANTED, because)


def _idle_because(world: World, unit: Unit, patience: int | None) -> str:
    """Return why an idle worker is idle for too long; empty when it is not; None: at once."""
    if unit.since is None:
        return ""
    if patience is None:
        return "it is idle and nothing asks for this on-demand pool"
    seconds = int((world.time - unit.since).total_seconds())
    if seconds < patience:
        return ""
    return f"idle for {write_duration(seconds)}, retire.idle_after is {write_duration(patience)}"
