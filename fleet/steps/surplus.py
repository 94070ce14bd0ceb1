"""This step releases what is idle beyond need."""

from fleet.census import CAPACITY, State
from fleet.draft import Draft
from fleet.facts import World
from fleet.plan import Reason
from fleet.schema.units import write_duration


def release_surplus(world: World, draft: Draft) -> None:
    """Drain what is idle for long, beyond min and spare; longest idle first."""
    if draft.pool is None:
        return
    workers, on_demand = draft.pool.workers, draft.on_demand
    patience = 0 if on_demand else draft.pool.retire.idle_after
    unused = draft.unused
    surplus = len(unused)
    if not on_demand:
        sure = [u for u in draft.staying if u.state in CAPACITY or u.state is State.BUSY]
        surplus = min(surplus - workers.spare, len(sure) - workers.min)
    idle = [unit for unit in draft.longest_idle(unused) if unit.state is State.IDLE]
    for unit in idle[: max(0, surplus)]:
        seconds = int((world.time - unit.since).total_seconds()) if unit.since else -1
        if seconds >= patience:
            because = (
                "it is idle and nothing asks for this on-demand pool"
                if on_demand
                else f"idle for {write_duration(seconds)}, "
                f"retire.idle_after is {write_duration(patience)}"
            )
            draft.drain(unit, Reason.IDLE_TOO_LONG, because)
