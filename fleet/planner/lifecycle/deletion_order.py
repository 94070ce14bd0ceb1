"""The order in which workers are deleted when some have to be.

What is due to be replaced goes first; then what is paid for no longer than the others; then what
the queue would use last. Debusine gives work to the worker that is connected for longest, so the
youngest machine is used last there; of other queues only what they did is known: what is idle
for longest was used least. Then by name, so that equal inputs give equal plans.
"""

from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise

from fleet.model.facts import Unknown, World, market_of
from fleet.model.prices import paid_until, tariff_of
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import NEVER, Unit
from fleet.schema.model import DebusineQueue, TicketQueue
from fleet.schema.units import write_duration

_DELETING = 120
"""Seconds from the start of a run until its machines are deleted, where no run has shown it."""
_LEAST = 60
"""Seconds that are allowed for at least: a run may start late."""
_GAPS = 2
"""Gaps between runs of which the shortest counts: one outage alone makes no slow timer."""


def scale_down_order(world: World, pool_plan: PoolPlan, units: Iterable[Unit]) -> list[Unit]:
    """Return units in the order in which to delete them."""

    def rank(unit: Unit) -> tuple[bool, int, timedelta, str]:
        paid, next_end = _paid_seconds(world, pool_plan, unit)
        return (
            unit.name not in pool_plan.due,
            # A later run cannot delete these within their paid time.
            paid if paid >= next_end else 0,
            _used_last(world, pool_plan, unit),
            unit.name,
        )

    return sorted(units, key=rank)


def youngest_first(booting: Iterable[Unit]) -> list[Unit]:
    """Return machines that boot in the order in which to delete them."""
    by_name = sorted(booting, key=lambda unit: unit.name)
    return sorted(by_name, key=lambda unit: unit.since or NEVER, reverse=True)


def paid_for(world: World, pool_plan: PoolPlan, unit: Unit) -> str:
    """Return why to keep a machine that is paid for anyway; empty when now is the last time.

    A machine that this run cannot delete before its next step of time is billed has that step
    too: it stays until the last run that can delete it before the end of that one.
    """
    paid, next_end = _paid_seconds(world, pool_plan, unit)
    if paid < next_end:
        return ""
    return (
        f"paid for another {write_duration(paid)}, what is billed while it is deleted included; "
        f"a later run can delete it in time (cadence is {write_duration(pool_plan.fleet.cadence)}"
        f", deleting takes up to {write_duration(deleting_seconds(world))})"
    )


def deleting_seconds(world: World) -> int:
    """Return how long a run takes to delete machines: as the latest ones, with a margin."""
    if world.delete_seconds is None:
        return _DELETING
    return max(_LEAST, world.delete_seconds)


def _paid_seconds(world: World, pool_plan: PoolPlan, unit: Unit) -> tuple[int, int]:
    """Return the end of the paid time of a machine that goes now, and when it goes otherwise.

    Both in seconds from now; otherwise the next run begins to delete it. 0 and 1: the price is
    unknown.
    """
    machine = unit.machine
    created = machine.created_at if machine else None
    if machine is None or created is None or pool_plan.pool is None or created > world.time:
        return 0, 1
    tariff = tariff_of(pool_plan.fleet, pool_plan.pool, machine.type, market_of(unit.inputs))
    if tariff is None:
        return 0, 1
    apart = _seconds_between_runs(world, pool_plan)
    gone = (_runs_to_go(pool_plan, unit) - 1) * apart + deleting_seconds(world)
    end = paid_until(tariff, created, world.time + timedelta(seconds=gone))
    return int((end - world.time).total_seconds()), gone + apart


def _runs_to_go(pool_plan: PoolPlan, unit: Unit) -> int:
    """Return how many runs it takes to delete a machine.

    A worker is drained by one run for each of its queues, and deleted by the next that sees it
    drained and idle. A machine without a registered worker is not drained, nor one that fleet
    alone gives out.
    """
    queue = pool_plan.fleet.queues.get(unit.registry or "")
    is_drained = unit.registry is not None and not isinstance(queue, TicketQueue)
    return 1 + unit.drains if is_drained else 1


def _seconds_between_runs(world: World, pool_plan: PoolPlan) -> int:
    """Return how far apart runs are: `cadence`, or more where the latest two were.

    By `cadence` alone, no run of a slower timer would ever be the last in time.
    """
    runs = () if isinstance(world.runs, Unknown) else world.runs
    latest = [each for each in (*runs, world.time) if each <= world.time][-_GAPS - 1 :]
    gaps = [int((b - a).total_seconds()) for a, b in pairwise(latest)]
    return max(pool_plan.fleet.cadence, min(gaps) if len(gaps) == _GAPS else 0)


def _used_last(world: World, pool_plan: PoolPlan, unit: Unit) -> timedelta:
    """Return what is smaller the later a unit's queue would use it."""
    queue = pool_plan.fleet.queues.get(unit.registry or "")
    created = unit.machine.created_at if unit.machine else None
    if isinstance(queue, DebusineQueue) and created is not None:
        return world.time - created
    return (unit.since or NEVER) - world.time
