"""This module lets go of what tickets gave back, once no ticket of its sandbox came in time.

Where its hour is paid for anyway it stays for such a ticket until the last run that can delete it
before the hour ends, unless a ticket that may not have it waits for its room. A ticket of its
sandbox that is not served (it is blocked, say, or over a limit) keeps nothing.
"""

from fleet.model.facts import Demand, World
from fleet.model.plan import Reason
from fleet.planner.lifecycle.order import paid_for
from fleet.planner.lifecycle.unwanted import unwanted_because
from fleet.planner.pool_plan import Draft
from fleet.planner.units import State, Unit
from fleet.schema.model import Reuse, TicketQueue
from fleet.schema.units import write_duration


def let_go_of_returned(world: World, draft: Draft, *, is_staffed: bool = False) -> None:
    """Delete what is kept for its sandbox for longer than `reuse.opportunity`, unless paid for.

    Before workers are counted for requests (`is_staffed`), all that waits may yet be served.
    """
    reuse = draft.pool.reuse if draft.pool else None
    if reuse is None or unwanted_because(draft):
        return
    for unit in draft.census.having(State.IDLE):
        because = _why_over(world, draft, unit, reuse)
        if not because or unit.name in draft.leaving:
            continue
        judged = unit.name in draft.used or unit.name in draft.kept
        if judged if is_staffed else any(_may_have(world, draft, unit)):
            continue
        paid = _why_paid(world, draft, unit)
        if paid:
            draft.kept.setdefault(unit.name, (Reason.PAID_FOR, f"{because}; {paid}"))
        else:
            draft.delete(
                unit,
                Reason.TICKET_RETURNED,
                "its ticket has ended, and no other ticket may have this machine: "
                f"`reuse` is over: {because}",
            )


def _why_over(world: World, draft: Draft, unit: Unit, reuse: Reuse) -> str:
    """Return why a unit is kept for its sandbox no longer; empty for what no ticket had."""
    is_desk = isinstance(draft.fleet.queues.get(unit.registry or ""), TicketQueue)
    if not is_desk or unit.worker is None or not unit.worker.uses or unit.since is None:
        return ""
    idle = int((world.time - unit.since).total_seconds())
    if idle < reuse.opportunity:
        return ""
    most = write_duration(reuse.opportunity)
    since = write_duration(idle)
    return f"no ticket of its sandbox came for {since}, reuse.opportunity is {most}"


def _why_paid(world: World, draft: Draft, unit: Unit) -> str:
    """Return why to keep it for the hour that is paid; empty where that is over or not wanted."""
    if draft.pool is None or draft.pool.retire.at == "once":
        return ""
    # What this plan makes is for somebody who waits: it takes nobody's room.
    is_full = len(draft.census.units) >= draft.pool.workers.max
    is_in_the_way = is_full and not all(_may_have(world, draft, unit))
    return "" if is_in_the_way else paid_for(world, draft, unit, runs=1)


def _may_have(world: World, draft: Draft, unit: Unit) -> list[bool]:
    """Return of each ticket that waits for such a machine whether it is of its sandbox."""
    reading = world.queues.get(unit.registry or "")
    if reading is None or unit.worker is None or not isinstance(reading.demand, Demand):
        return []
    own, offered = set(unit.worker.requires), set(draft.offer.provides)
    fitting = (each for each in reading.demand.requests if offered.issuperset(each.required))
    return [not own.isdisjoint(each.provided) for each in fitting]
