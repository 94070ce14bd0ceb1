"""The order in which workers are deleted when some have to be.

What is due to be replaced goes first; then what is paid for no longer than the others; then what
the queue would use last. Debusine gives work to the worker that is connected for longest, so the
youngest machine is used last there; of other queues only what they did is known: what is idle
for longest was used least. Then by name, so that equal inputs give equal plans.
"""

from collections.abc import Iterable
from datetime import timedelta

from fleet.model.facts import World, market_of
from fleet.model.prices import paid_until, tariff_of
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import NEVER, Unit
from fleet.schema.model import DebusineQueue
from fleet.schema.units import write_duration

_DELETING = 120
"""Seconds from the start of a run until its machines are deleted, where no run has shown it."""
_LEAST = 60
"""Seconds that are allowed for at least: a run may start late."""


def scale_down_order(world: World, pool_plan: PoolPlan, units: Iterable[Unit]) -> list[Unit]:
    """Return units in the order in which to delete them."""

    def rank(unit: Unit) -> tuple[bool, int, timedelta, str]:
        paid = _paid_seconds(world, pool_plan, unit)
        return (
            unit.name not in pool_plan.due,
            # What is paid for less than until the next run is at its last chance, like the others.
            paid if paid >= pool_plan.fleet.cadence else 0,
            _used_last(world, pool_plan, unit),
            unit.name,
        )

    return sorted(units, key=rank)


def youngest_first(booting: Iterable[Unit]) -> list[Unit]:
    """Return machines that boot in the order in which to delete them."""
    by_name = sorted(booting, key=lambda unit: unit.name)
    return sorted(by_name, key=lambda unit: unit.since or NEVER, reverse=True)


def paid_for(world: World, pool_plan: PoolPlan, unit: Unit, *, runs: int) -> str:
    """Return why to keep a machine that is paid for anyway; empty when now is the last time.

    The next run would need so many runs more (a worker is drained by one and deleted by the
    next), and the last of them has to end before the next step of time is billed.
    """
    left = _paid_seconds(world, pool_plan, unit)
    takes = deleting_seconds(world)
    if left < runs * pool_plan.fleet.cadence + takes:
        return ""
    return (
        f"paid for another {write_duration(left)}; a later run can delete it in time "
        f"(cadence is {write_duration(pool_plan.fleet.cadence)}, deleting takes up to "
        f"{write_duration(takes)})"
    )


def deleting_seconds(world: World) -> int:
    """Return how long a run takes to delete machines: as the latest ones, with a margin."""
    if world.delete_seconds is None:
        return _DELETING
    return max(_LEAST, world.delete_seconds)


def _paid_seconds(world: World, pool_plan: PoolPlan, unit: Unit) -> int:
    """Return for how long a unit's machine is paid for; 0: unknown."""
    machine = unit.machine
    if machine is None or pool_plan.pool is None or machine.created_at > world.time:
        return 0
    tariff = tariff_of(pool_plan.fleet, pool_plan.pool, machine.type, market_of(unit.inputs))
    if tariff is None:
        return 0
    return int((paid_until(tariff, machine.created_at, world.time) - world.time).total_seconds())


def _used_last(world: World, pool_plan: PoolPlan, unit: Unit) -> timedelta:
    """Return what is smaller the later a unit's queue would use it."""
    queue = pool_plan.fleet.queues.get(unit.registry or "")
    if isinstance(queue, DebusineQueue) and unit.machine is not None:
        return world.time - unit.machine.created_at
    return (unit.since or NEVER) - world.time
