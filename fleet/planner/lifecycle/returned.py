"""Delete machines whose ticket has ended, if no ticket of their sandbox follows in time.

A sandbox is a group of tickets that may share a machine. A machine with a paid hour is kept for
such a ticket until the last run that can delete it before the hour ends. But for each ticket that
waits only because the pool is full, one machine is deleted, shortest paid time first. A ticket of
the sandbox that cannot be served (blocked or over a limit) keeps no machine.
"""

from collections.abc import Iterator
from typing import ClassVar

from fleet.model.facts import Demand
from fleet.model.plan import Delete, Reason
from fleet.planner.lifecycle.deletion_order import paid_for, scale_down_order
from fleet.planner.lifecycle.rule import LifeLimit, LifeRule, MachineLife, declared, is_in_sandbox
from fleet.planner.pool_plan import PoolPlan, Proposal, delete, keep
from fleet.planner.units import Unit, UnitState
from fleet.schema.model import Reuse, TicketQueue
from fleet.words import lives


class ReturnedMachine(LifeRule):
    """Rule that deletes machines of ended tickets, if no ticket of the sandbox follows in time."""

    clock: ClassVar = "idle"
    keys: ClassVar = {Reason.TICKET_RETURNED: ("reuse",)}

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return the maximum idle time of a machine that waits for a ticket of its sandbox.

        `reuse.max_age` counts from the machine's first ticket, so it also limits the idle time.
        """
        pool = declared(life)
        if pool is None or pool.reuse is None or not life.in_sandbox:
            return None
        held, age = pool.reuse.opportunity, pool.reuse.max_age
        if age is not None and age < held:
            return LifeLimit("idle", age, ("reuse", "max_age"))
        return LifeLimit("idle", held, ("reuse", "opportunity"))

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Propose to delete machines that waited for their sandbox too long.

        `reuse.opportunity` is the limit. Keep a machine for its paid time. Before requests are
        assigned, also keep it if any waiting ticket fits, because that ticket may still get the
        machine.
        """
        reuse = pool_plan.pool.reuse if pool_plan.pool else None
        if reuse is None or pool_plan.unwanted:
            return
        # Deletions of this plan free capacity too.
        short = pool_plan.blocked_by_max - sum(isinstance(a, Delete) for a in pool_plan.actions)
        idle = pool_plan.inventory.having(UnitState.IDLE)
        for unit in scale_down_order(pool_plan, idle):
            because = _explain_reuse_over(pool_plan, unit, reuse)
            if unit.name in pool_plan.leaving:
                continue
            if not because:
                yield from _keep_for_sandbox(pool_plan, unit, reuse)
                continue
            paid = paid_for(pool_plan, unit)
            if not pool_plan.is_staffed:
                if paid or any(_match_sandboxes(pool_plan, unit)):
                    continue
            elif unit.name in pool_plan.used or unit.name in pool_plan.kept:
                continue
            elif paid and short <= 0:
                yield keep(unit, Reason.PAID_FOR, lives.join(because, paid))
                continue
            short -= 1
            yield delete(unit, Reason.TICKET_RETURNED, lives.explain_no_reuse(because))


def _keep_for_sandbox(pool_plan: PoolPlan, unit: Unit, reuse: Reuse) -> Iterator[Proposal]:
    """Propose to keep an idle machine for the next ticket of its sandbox, unless it is in use."""
    is_free = unit.name not in pool_plan.used and unit.name not in pool_plan.kept
    is_due = pool_plan.is_staffed and pool_plan.can_scale_down
    if is_due and is_free and is_in_sandbox(pool_plan.fleet, unit):
        yield keep(unit, Reason.IDLE_RECENTLY, lives.explain_sandbox(reuse.opportunity))


def _explain_reuse_over(pool_plan: PoolPlan, unit: Unit, reuse: Reuse) -> str:
    """Return why a machine is no longer kept for its sandbox; empty if it is kept.

    Also empty if no ticket has used the machine.
    """
    is_desk = isinstance(pool_plan.fleet.queues.get(unit.registry or ""), TicketQueue)
    if not is_desk or unit.worker is None or not unit.worker.uses or unit.since is None:
        return ""
    idle = int((pool_plan.world.time - unit.since).total_seconds())
    if idle < reuse.opportunity:
        return ""
    return lives.explain_reuse_over(idle, reuse.opportunity)


def _match_sandboxes(pool_plan: PoolPlan, unit: Unit) -> list[bool]:
    """Return, per waiting ticket that fits a machine, True if both have the same sandbox."""
    reading = pool_plan.world.queues.get(unit.registry or "")
    if reading is None or unit.worker is None or not isinstance(reading.demand, Demand):
        return []
    own, offered = set(unit.worker.requires), set(pool_plan.offer.provides)
    fitting = (
        request for request in reading.demand.requests if offered.issuperset(request.required)
    )
    return [not own.isdisjoint(request.provided) for request in fitting]
