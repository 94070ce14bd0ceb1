"""Keep machines that an operator holds: they get no new work and are not deleted.

fleet drains the worker of a held machine. After the hold, the worker gets work again, unless it
was drained for another reason, or there is a reason to delete the machine.
"""

from collections.abc import Iterator, Mapping

from fleet.model.facts import Unknown, World
from fleet.model.orders import FLEET, Freeze, Frozen, Hold, Order
from fleet.model.plan import BootHold, Reason
from fleet.model.pool_limits import boot_of
from fleet.planner.inventory import takers_of
from fleet.planner.lifecycle.rule import LifeRule
from fleet.planner.pool_plan import PoolPlan, Proposal, delete, drain, keep
from fleet.planner.units import Unit, UnitState
from fleet.schema.model import Fleet
from fleet.words import lives

HOLD_SECONDS = 86400
"""Seconds for which fleet holds a machine that failed to boot."""
_FROZEN_BY_UNREAD: Mapping[str, Frozen] = {"attempts": "creates", "departures": "deletes"}
"""Record to the kind of actions that are frozen if the record is unreadable."""


def orders_of(fleet: Fleet, world: World) -> tuple[Order, ...]:
    """Return the active orders of operators. A renamed pool has its current name.

    If the orders are unreadable, all actions are frozen. If a record of another kind is
    unreadable, for example attempts, the actions that it might forbid are frozen.
    """
    freeze = Freeze(by=FLEET, at=world.time, until=world.time, reason="")
    if isinstance(world.orders, Unknown):
        return (freeze.altered(reason=lives.explain_unread_orders(world.orders.unknown)),)
    takers = takers_of(fleet, world)
    orders = (
        order
        if isinstance(order, Hold) or order.pool not in takers
        else order.altered(pool=takers[order.pool])
        for order in world.orders
        if order.until > world.time
    )
    unread = (
        freeze.altered(
            reason=lives.explain_unread(record, why), stops=(_FROZEN_BY_UNREAD[record],)
        )
        for record, why in sorted(world.unread.items())
    )
    return (*orders, *unread)


def find_freeze(fleet: Fleet, world: World, pool: str, kind: Frozen = "creates") -> Freeze | None:
    """Return the freeze of creations or deletions in a pool that ends last; None if allowed."""
    freezes = (
        order
        for order in orders_of(fleet, world)
        if isinstance(order, Freeze) and order.pool in (None, pool) and kind in order.stops
    )
    return max(freezes, key=lambda order: (order.is_precaution, order.until), default=None)


def hold_or_delete(pool_plan: PoolPlan, unit: Unit, because: str) -> Proposal:
    """Propose to hold a machine that failed to boot, or to delete it.

    Hold the machine unless fleet already holds `boot.on_failure.hold` machines of the pool. Only
    the run that detects the failure holds a machine, so a released machine is deleted.
    """
    wanted = boot_of(pool_plan.pool).on_failure
    held = [each for each in pool_plan.inventory.units if each.held and each.held.by == FLEET]
    room = wanted.hold - len(held) - len(pool_plan.holds) if wanted else 0
    is_new = any(
        attempt.worker == unit.name and attempt.result == "starting"
        for attempt in pool_plan.world.attempts
    )
    is_held = wanted is not None and room > 0 and is_new and pool_plan.may_remove
    if wanted is None or not is_held or unit.machine is None or unit.held:
        return delete(unit, Reason.BOOT_FAILED, because)
    message = lives.explain_failed_boot(because)
    holding = BootHold(
        pool=pool_plan.name,
        worker=unit.name,
        provider=pool_plan.inventory.provider,
        machine=unit.machine.id,
        registry=pool_plan.inventory.tokens if unit.awaits_token else None,
        log=wanted.log,
        because=message,
    )
    held_for = lives.explain_held_boot(HOLD_SECONDS, message)
    return Proposal("keep", unit, Reason.HELD, held_for, holding=holding)


def is_all_frozen(fleet: Fleet, world: World) -> bool:
    """Return True if creations are frozen in all pools. Shared resources then do not change."""
    return find_freeze(fleet, world, "") is not None


class HeldMachine(LifeRule):
    """Rule that keeps machines held by an operator, or by fleet after a failed boot."""

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Propose to keep and drain held machines. The reason names the holder."""
        for unit in pool_plan.inventory.units:
            if unit.held is None:
                continue
            because = lives.describe_hold(unit.held.said)
            yield keep(unit, Reason.HELD, because)
            is_drained = unit.worker is not None and unit.worker.draining
            if (
                unit.state in (UnitState.IDLE, UnitState.BUSY, UnitState.DISCONNECTED)
                and not is_drained
            ):
                # If a machine registers during fleet's hold, it is deleted as a failed boot.
                reason = Reason.BOOT_FAILED if unit.held.by == FLEET else Reason.HELD
                yield drain(unit, reason, because)
