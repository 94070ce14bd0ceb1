"""Delete orphans: machines for tickets that are in no stack and have no ticket.

A machine of an interrupted apply is no orphan: fleet resumes its creation. A machine whose name
fleet would not choose is no orphan either: an operator may be adopting it. Because one listing may
be wrong, a machine gets no ticket after the first listing, and is deleted after a listing ten
minutes later. If a pool has no stack, none of its machines is an orphan.
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
"""Minimum time between the first listing of an orphan and the listing that confirms it."""


class OrphanMachine(LifeRule):
    """Rule that deletes orphans: machines whose ticket ended and that no stack records."""

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Propose to drain orphans, and to delete an orphan after a second listing."""
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
                # `since` is the first listing or the end of the machine's last ticket. That ticket
                # proves an earlier listing, so the machine can be deleted in both cases.
                yield delete(unit, Reason.ORPHAN, because)


def _orphans(pool_plan: PoolPlan) -> list[Unit]:
    """Return the machines that only their provider lists, in pools that serve only tickets."""
    inventory = pool_plan.inventory
    desk = inventory.tokens and pool_plan.fleet.queues.get(inventory.tokens)
    serves_tickets = pool_plan.pool is not None and isinstance(desk, TicketQueue)
    if not serves_tickets or inventory.stack is None or not pool_plan.may_remove:
        return []
    # Skip names that a stack records: orders of operators refer to machines by name.
    known = inventory.stack.ids
    return [
        unit
        for unit in inventory.having(UnitState.UNRECORDED)
        if unit.name not in known and _is_named_by_us(pool_plan, unit)
    ]


def _is_named_by_us(pool_plan: PoolPlan, unit: Unit) -> bool:
    """Return True if fleet would choose the name of this machine in its pool."""
    if unit.machine is None:
        return False
    return is_named_by_fleet(pool_plan.fleet.fleet, unit.machine.pool, unit.name)
