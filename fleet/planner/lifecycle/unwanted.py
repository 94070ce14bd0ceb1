"""This module lets go of what was drained, what config no longer wants, and what is above max."""

from fleet.model.facts import World
from fleet.model.plan import Reason
from fleet.planner.lifecycle.order import least_regretted, youngest_first
from fleet.planner.pool_plan import Draft, gives_back, is_going
from fleet.planner.units import State, Unit
from fleet.schema.model import TicketQueue


def delete_drained(draft: Draft) -> None:
    """Delete what was observed drained and idle; a busy one stays until it is done."""
    unwanted = unwanted_because(draft)
    for unit in draft.census.having(State.DRAINING):
        due = draft.due.get(unit.name)
        returned = _why_returned(draft, unit)
        if returned and not unwanted and not due:
            draft.delete(unit, Reason.TICKET_RETURNED, returned)
            continue
        idle = Reason.NOT_WANTED if draft.on_demand else Reason.IDLE_TOO_LONG
        reason = unwanted or (due[0] if due else idle)
        draft.delete(unit, reason, "it was drained and is idle")
    for unit in draft.census.having(State.DISABLED):
        because = f"its worker is disabled, so it can serve nothing{gives_back(unit)}"
        draft.delete(unit, Reason.DISABLED, because)


def _why_returned(draft: Draft, unit: Unit) -> str:
    """Return why no ticket may have what another gave back; empty for what none had."""
    is_desk = isinstance(draft.fleet.queues.get(unit.registry or ""), TicketQueue)
    if not is_desk or unit.worker is None or not unit.worker.uses:
        return ""
    reuse = draft.pool.reuse if draft.pool else None
    rule = "`reuse` is over" if reuse else "its pool has no `reuse`"
    return f"its ticket has ended, and no other ticket may have this machine: {rule}"


def drain_unwanted_pool(draft: Draft) -> None:
    """Empty a pool that was removed from fleet.yaml or is told to drain; what runs is finished."""
    reason = unwanted_because(draft)
    if reason is None:
        return
    because = (
        "its pool is no longer in fleet.yaml"
        if reason is Reason.POOL_REMOVED
        else "its pool has mode: drain"
    )
    for unit in draft.booting:
        draft.delete(unit, reason, because)
    for unit in draft.census.having(State.DISCONNECTED, State.IDLE, State.BUSY):
        if unit.name not in draft.leaving and not is_going(unit):
            draft.drain(unit, reason, because)


def drain_above_max(world: World, draft: Draft) -> None:
    """Bring a pool down to its max: first what boots, then idle workers, then busy ones.

    A busy worker ends what it runs.
    """
    if draft.pool is None:
        return
    # What only one witness saw may be an error: nothing is scaled down because of it.
    seen = [u for u in draft.staying if u.state not in (State.MISSING, State.UNRECORDED)]
    held, limit = len(seen), draft.pool.workers.max
    if held <= limit:
        return
    because = f"the pool holds {held}, workers.max is {limit}"
    booting = youngest_first(draft.booting)[: held - limit]
    for unit in booting:
        draft.delete(unit, Reason.ABOVE_MAX, because)
    order = least_regretted(world, draft, seen)
    states = (State.DISCONNECTED, State.IDLE, State.BUSY)
    ready = [unit for state in states for unit in order if unit.state is state]
    for unit in ready[: held - limit - len(booting)]:
        draft.drain(unit, Reason.ABOVE_MAX, because)


def unwanted_because(draft: Draft) -> Reason | None:
    """Return why config no longer wants a pool at all; None when it does."""
    if draft.pool is None:
        return Reason.POOL_REMOVED
    return Reason.POOL_DRAINING if draft.pool.mode == "drain" else None
