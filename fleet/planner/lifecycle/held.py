"""Keep machines that an operator holds: they get no new work and are not deleted.

The worker of a held machine is drained. After the hold it gets work again, unless there is another
reason to delete it. Earlier drains for another reason continue.
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
"""Seconds that a machine which failed to boot is held."""
_FROZEN_BY_UNREAD: Mapping[str, Frozen] = {"attempts": "creates", "departures": "deletes"}
"""Unreadable record to the actions that it freezes: creations that may fail, or deletions."""


def orders_of(fleet: Fleet, world: World) -> tuple[Order, ...]:
    """Return the active orders, by the current names of pools.

    If they are unreadable, everything is frozen. An unreadable record freezes the actions that it
    might forbid.
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


def why_frozen(fleet: Fleet, world: World, pool: str, kind: Frozen = "creates") -> str:
    """Return why creations, or deletions, in a pool are frozen; empty if they are not."""
    for order in orders_of(fleet, world):
        if isinstance(order, Freeze) and order.pool in (None, pool) and kind in order.stops:
            return order.sentence
    return ""


def hold_or_delete(pool_plan: PoolPlan, unit: Unit, because: str) -> Proposal:
    """Return whether a machine that failed to boot is held: if `boot.on_failure` has a free slot.

    A machine is held only in the run that detects its failure: a released one is deleted.
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
    """Return whether creations are frozen in all pools: then shared resources are not changed."""
    return bool(why_frozen(fleet, world, ""))


class HeldMachine(LifeRule):
    """An operator, or fleet after a failed boot, holds it."""

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:
        """Drain held machines and report the holder."""
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
                # A machine that registered during fleet's hold failed to boot: it is deleted.
                reason = Reason.BOOT_FAILED if unit.held.by == FLEET else Reason.HELD
                yield drain(unit, reason, because)
