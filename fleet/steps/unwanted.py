"""This step lets go of what was drained, what config no longer wants, and what is above max."""

from fleet.census import State
from fleet.draft import Draft
from fleet.plan import Reason


def delete_drained(draft: Draft) -> None:
    """Delete what was observed drained and idle; a busy one stays until it is done."""
    reason = unwanted_because(draft) or Reason.IDLE_TOO_LONG
    for unit in draft.census.having(State.DRAINING):
        draft.delete(unit, reason, "it was drained and is idle")
    for unit in draft.census.having(State.DISABLED):
        draft.delete(unit, Reason.DISABLED, "its worker is disabled, so it can serve nothing")


def drain_unwanted_pool(draft: Draft) -> None:
    """Empty a pool that was removed from fleet.yaml or is told to drain."""
    reason = unwanted_because(draft)
    if reason is None:
        return
    because = (
        "its pool is no longer in fleet.yaml"
        if reason is Reason.POOL_REMOVED
        else "its pool has mode: drain"
    )
    for unit in draft.census.having(State.IDLE):
        draft.drain(unit, reason, because)


def drain_above_max(draft: Draft) -> None:
    """Bring a pool down to its max as work ends; what is busy stays."""
    if draft.pool is None:
        return
    # What only one witness saw may be an error: nothing is scaled down because of it.
    seen = [u for u in draft.staying if u.state not in (State.MISSING, State.UNRECORDED)]
    held, limit = len(seen), draft.pool.workers.max
    idle = [u for u in draft.longest_idle(draft.staying) if u.state is State.IDLE]
    for unit in idle[: max(0, held - limit)]:
        draft.drain(unit, Reason.ABOVE_MAX, f"the pool holds {held}, workers.max is {limit}")


def unwanted_because(draft: Draft) -> Reason | None:
    """Return why config no longer wants a pool at all; None when it does."""
    if draft.pool is None:
        return Reason.POOL_REMOVED
    return Reason.POOL_DRAINING if draft.pool.mode == "drain" else None
