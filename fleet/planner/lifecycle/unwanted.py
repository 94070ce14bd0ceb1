"""Delete drained workers; drain workers of removed pools and workers beyond `workers.max`."""

from collections.abc import Iterable, Iterator
from typing import ClassVar

from fleet.model.plan import Reason
from fleet.planner.lifecycle.deletion_order import scale_down_order, youngest_first
from fleet.planner.lifecycle.rule import LifeLimit, LifeRule, MachineLife, declared
from fleet.planner.pool_plan import PoolPlan, Proposal, delete, drain, is_going
from fleet.planner.units import Unit, UnitState
from fleet.schema.model import TicketQueue
from fleet.words import lives


class DrainedWorker(LifeRule):
    """Rule that deletes machines whose worker is disabled, or drained and idle."""

    clock: ClassVar = "idle"

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return an idle time of 0 for a drained worker; None for other workers."""
        return LifeLimit("idle", 0, (), "drained") if life.is_drained else None

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Propose to delete workers that are drained and idle, and disabled workers.

        The recorded reason of the drain counts. Without such a record, the first reason that
        applies counts.
        """
        above = _count_above_max(pool_plan, pool_plan.inventory.units)
        for unit in pool_plan.inventory.having(UnitState.DRAINING):
            due = pool_plan.due.get(unit.name)
            returned = _explain_returned(pool_plan, unit)
            if returned and not pool_plan.unwanted and not due:
                yield delete(unit, Reason.TICKET_RETURNED, returned)
                continue
            idle = Reason.NOT_WANTED if pool_plan.on_demand else Reason.IDLE_TOO_LONG
            otherwise = Reason.ABOVE_MAX if above > 0 else idle
            reason = pool_plan.unwanted or (due[0] if due else otherwise)
            yield delete(unit, reason, lives.DRAINED)
            above -= 1
        for unit in pool_plan.inventory.having(UnitState.DISABLED):
            because = lives.explain_disabled(unit.work_in_vain)
            yield delete(unit, Reason.DISABLED, because)


def _explain_returned(pool_plan: PoolPlan, unit: Unit) -> str:
    """Return why no ticket may use a machine again; empty if no ticket has used it yet."""
    is_desk = isinstance(pool_plan.fleet.queues.get(unit.registry or ""), TicketQueue)
    if not is_desk or unit.worker is None or not unit.worker.uses:
        return ""
    reuse = pool_plan.pool.reuse if pool_plan.pool else None
    return lives.explain_returned(reusable=reuse is not None)


class UnwantedPool(LifeRule):
    """Rule that removes machines of pools that left fleet.yaml or have `mode: drain`."""

    clock: ClassVar = "idle"
    keys: ClassVar = {Reason.POOL_DRAINING: ("mode",), Reason.POOL_PAUSED: ("mode",)}

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return an idle time of 0 for a pool with `mode: drain`; None for other pools."""
        pool = declared(life)
        is_drained = pool is not None and pool.mode == "drain"
        return LifeLimit("idle", 0, ("mode",), "drain") if is_drained else None

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Propose to delete booting machines and drain workers. Running work finishes."""
        reason = pool_plan.unwanted
        if reason is None:
            return
        because = lives.POOL_REMOVED if reason is Reason.POOL_REMOVED else lives.POOL_DRAINING
        for unit in pool_plan.booting:
            yield delete(unit, reason, because)
        for unit in pool_plan.inventory.having(
            UnitState.DISCONNECTED, UnitState.IDLE, UnitState.BUSY
        ):
            if unit.name not in pool_plan.leaving and not is_going(unit):
                yield drain(unit, reason, because)


class ExcessSize(LifeRule):
    """Rule that removes machines beyond the `workers.max` of their pool."""

    keys: ClassVar = {Reason.ABOVE_MAX: ("workers", "max")}

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Propose to shrink a pool to its max: booting, then idle, then busy machines.

        A busy worker finishes its work before its machine is deleted.
        """
        seen = _without_doubtful(pool_plan.staying)
        above = _count_above_max(pool_plan, seen)
        if above <= 0:
            return
        because = lives.explain_excess(len(seen), len(seen) - above)
        booting = youngest_first(pool_plan.booting)[:above]
        for unit in booting:
            yield delete(unit, Reason.ABOVE_MAX, because)
        order = scale_down_order(pool_plan, seen)
        states = (UnitState.DISCONNECTED, UnitState.IDLE, UnitState.BUSY)
        ready = [unit for state in states for unit in order if unit.state is state]
        for unit in ready[: above - len(booting)]:
            yield drain(unit, Reason.ABOVE_MAX, because)


def _count_above_max(pool_plan: PoolPlan, units: Iterable[Unit]) -> int:
    """Return the number of machines beyond `workers.max`; 0 or less if within the maximum."""
    return len(_without_doubtful(units)) - pool_plan.size.max if pool_plan.pool else 0


def _without_doubtful(units: Iterable[Unit]) -> list[Unit]:
    """Return the machines that both provider and stack report. Other machines may be errors."""
    return [u for u in units if u.state not in (UnitState.MISSING, UnitState.UNRECORDED)]
