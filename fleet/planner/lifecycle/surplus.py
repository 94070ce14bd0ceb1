"""Scale down: delete machines that are idle for too long, at the end of their paid time.

Only registered workers count as ready, so the old worker is kept while its replacement boots.
`deletion_order.py` has the order. An unneeded booting machine is deleted before it registers.
"""

from abc import abstractmethod
from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar

from fleet.model.plan import Reason
from fleet.planner.lifecycle.deletion_order import paid_for, scale_down_order, youngest_first
from fleet.planner.lifecycle.returned import ReturnedMachine
from fleet.planner.lifecycle.rule import (
    LifeLimit,
    LifeRule,
    MachineLife,
    declared,
    life_of,
)
from fleet.planner.pool_plan import PoolPlan, Proposal, delete, drain, keep
from fleet.planner.units import Unit, UnitState
from fleet.schema.model import Pool, TicketQueue
from fleet.words import lives


class IdleRule(LifeRule):
    """Base class of rules that limit the idle time of workers beyond `min` and `spare`."""

    clock: ClassVar = "idle"
    reason: ClassVar[Reason]

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return the limit on idle time; None if the rule does not limit the machine."""
        pool = declared(life)
        return None if pool is None or _is_kept(life) else self.limit_in(pool, life)

    @abstractmethod
    def limit_in(self, pool: Pool, life: MachineLife) -> LifeLimit | None:
        """Return the limit on the idle time of a machine in a pool; None without a limit."""

    def explain(self, idle: int, limit: LifeLimit) -> str:
        """Return the reason to remove a worker that has been idle for `idle` seconds."""
        return lives.explain_idle(idle, ".".join(limit.key), limit.stated)

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Propose to drain workers beyond min and spare that are idle for too long."""
        if pool_plan.pool is None or not pool_plan.can_scale_down:
            return
        unused = [unit for unit in pool_plan.unused if unit.state is UnitState.IDLE]
        fleet, pool, on_demand = pool_plan.fleet, pool_plan.pool, pool_plan.on_demand
        facts = {u.name: life_of(fleet, pool, u, on_demand=on_demand) for u in unused}
        idle = [unit for unit in unused if not _is_kept(facts[unit.name])]
        ready = sum(unit.state in (UnitState.IDLE, UnitState.BUSY) for unit in pool_plan.staying)
        surplus = min(len(idle) - pool_plan.size.spare, ready - pool_plan.size.min)
        for unit in scale_down_order(pool_plan, idle):
            because = self._explain_idle(pool, unit, facts[unit.name], pool_plan.world.time)
            if surplus <= 0 or not because:
                continue
            surplus -= 1
            # A ticket queue assigns no work during a run, so its workers need no drain.
            is_ours = isinstance(pool_plan.fleet.queues.get(unit.registry or ""), TicketQueue)
            if paid := _explain_paid(pool_plan, unit):
                yield from _keep_paid(pool_plan, unit, lives.join(because, paid))
            elif is_ours:
                yield delete(unit, self.reason, because)
            else:
                yield drain(unit, self.reason, because)

    def _explain_idle(self, pool: Pool, unit: Unit, life: MachineLife, now: datetime) -> str:
        """Return why a worker is idle for too long; empty within the limit."""
        limit = self.limit_in(pool, life)
        if limit is None or unit.since is None:
            return ""
        idle = int((now - unit.since).total_seconds())
        return self.explain(idle, limit) if idle >= limit.most else ""


class OnDemandIdle(IdleRule):
    """Rule that removes idle machines of on-demand pools, which keep no machine without work."""

    reason: ClassVar = Reason.NOT_WANTED
    keys: ClassVar = {Reason.NOT_WANTED: ()}

    def limit_in(self, pool: Pool, life: MachineLife) -> LifeLimit | None:
        """Return an idle time of 0 for an on-demand pool; None for other pools."""
        is_kept = not life.on_demand or pool.mode == "pause"
        return None if is_kept else LifeLimit("idle", 0, ("provides",), "on demand")

    def explain(self, idle: int, limit: LifeLimit) -> str:  # noqa: ARG002 - it has no limit
        """Return the reason to remove an idle worker."""
        return lives.ON_DEMAND_IDLE


class IdleTimeout(IdleRule):
    """Rule that removes machines that are idle longer than `retire.idle_after`."""

    reason: ClassVar = Reason.IDLE_TOO_LONG
    keys: ClassVar = {
        Reason.IDLE_TOO_LONG: ("retire", "idle_after"),
        Reason.IDLE_RECENTLY: ("retire", "idle_after"),
    }

    def limit_in(self, pool: Pool, life: MachineLife) -> LifeLimit | None:  # noqa: ARG002 - for all
        """Return the maximum idle time `retire.idle_after`."""
        return LifeLimit("idle", pool.retire.idle_after, ("retire", "idle_after"))


def _is_kept(life: MachineLife) -> bool:
    """Return True if a machine is kept for the next ticket of its sandbox."""
    return ReturnedMachine().limit(life) is not None


def _explain_paid(pool_plan: PoolPlan, unit: Unit) -> str:
    """Return the reason to keep a machine within its paid time; empty to remove it now.

    `returned.py` handles machines that a ticket has used. If one queue already drains a machine,
    the other queues drain it now.
    """
    return "" if unit.is_leaving else paid_for(pool_plan, unit)


def _keep_paid(pool_plan: PoolPlan, unit: Unit, because: str) -> Iterator[Proposal]:
    """Propose to keep a machine within its paid time, unless it is kept for another reason."""
    if unit.name not in pool_plan.kept:
        yield keep(unit, Reason.PAID_FOR, because)


class UnneededBoot(LifeRule):
    """Rule that deletes booting machines whose request was withdrawn or is served elsewhere."""

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Propose to delete booting machines that neither requests nor `min` or `spare` need.

        Youngest first. Machines due for replacement do not count, because a booting machine may
        replace them.
        """
        if pool_plan.pool is None or not pool_plan.can_scale_down:
            return
        unused = [unit for unit in pool_plan.booting if unit.name not in pool_plan.used]
        if not unused:
            return
        fresh = [
            u
            for u in pool_plan.staying
            if u.name not in pool_plan.due and (u.is_capacity or u.state is UnitState.BUSY)
        ]
        free = [u for u in fresh if u.state is not UnitState.BUSY and u.name not in pool_plan.used]
        surplus = min(len(free) - pool_plan.size.spare, len(fresh) - pool_plan.size.min)
        for unit in youngest_first(unused)[: max(0, surplus)]:
            because = lives.REQUESTS_STOPPED if pool_plan.awaited else lives.UNNEEDED_BOOT
            if paid := _explain_paid(pool_plan, unit):
                yield from _keep_paid(pool_plan, unit, lives.join(because, paid))
            else:
                yield delete(unit, Reason.NOT_WANTED, because)
