"""Delete orphans: machines for tickets that are in no stack and have no ticket.

A machine of an interrupted apply is resumed and no orphan. Neither is a machine whose name no run
would choose: an operator may be adopting it. One listing may be wrong: after the first the machine
gets no ticket, and a later one, after ten minutes, confirms its deletion. Without the pool's
stack, no machine is an orphan.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from fleet.model.plan import Reason
from fleet.planner.lifecycle.rule import LifeRule
from fleet.planner.pool_plan import PoolPlan, Proposal, delete, drain, keep
from fleet.planner.units import Unit, UnitState
from fleet.schema.model import TicketQueue, is_named_by_fleet
from fleet.words import lives

CONFIRMATION_DELAY = timedelta(minutes=10)
"""Minimum time between the first listing and the one that confirms it."""


class OrphanMachine(LifeRule):
    """It is for tickets, and neither a stack nor a ticket knows it."""

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Drain orphans, and delete those that two listings confirm."""
        for unit in _orphans(pool_plan):
            since = unit.worker.since if unit.worker and unit.worker.draining else None
            if unit.worker is not None and unit.may_run:
                because = lives.explain_busy_orphan(unit.worker.running)
                yield keep(unit, Reason.ORPHAN, because)
                continue
            drained = None if since is None else pool_plan.world.time - since
            # A stopped machine is of no use to its ticket.
            because = lives.explain_orphan(unit.work_in_vain, CONFIRMATION_DELAY, drained)
            if drained is None:
                told = replace(unit, registry=pool_plan.inventory.tokens)
                yield drain(told, Reason.ORPHAN, because)
            elif drained < CONFIRMATION_DELAY:
                yield keep(unit, Reason.ORPHAN, because)
            else:
                # Idle since a listing reported it, or since its last ticket ended. It was listed
                # when assigned to that ticket and is for no other one: it is deleted in any case.
                yield delete(unit, Reason.ORPHAN, because)


def _orphans(pool_plan: PoolPlan) -> list[Unit]:
    """Return the machines that only their provider lists, in pools that serve only tickets."""
    inventory = pool_plan.inventory
    desk = inventory.tokens and pool_plan.fleet.queues.get(inventory.tokens)
    serves_tickets = pool_plan.pool is not None and isinstance(desk, TicketQueue)
    if not serves_tickets or inventory.stack is None or not pool_plan.may_remove:
        return []
    # Another machine may have a name that a stack records: orders refer to names.
    known = inventory.stack.ids
    return [
        unit
        for unit in inventory.having(UnitState.UNRECORDED)
        if unit.name not in known and _is_named_by_us(pool_plan, unit)
    ]


def _is_named_by_us(pool_plan: PoolPlan, unit: Unit) -> bool:
    """Return whether a machine's name matches those that fleet creates for its pool."""
    if unit.machine is None:
        return False
    return is_named_by_fleet(pool_plan.fleet.fleet, unit.machine.pool, unit.name)
