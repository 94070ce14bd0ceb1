"""Define the order in which workers are deleted.

Machines due for replacement come first, then machines with the shortest paid time, then machines
that the queue would use last. Debusine assigns work to the worker that has been connected longest,
so Debusine uses the youngest machine last. For other queues, the machine that has been idle
longest comes first. Ties are broken by name, so that equal inputs give equal plans.
"""

from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise

from fleet.model.facts import Unknown, World, market_of
from fleet.model.prices import Tariff, billed_seconds, paid_until, tariff_of_machine
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import NEVER, Unit
from fleet.schema.model import DebusineQueue, Pool, TicketQueue
from fleet.words import lives

_DEFAULT_DELETE_SECONDS = 120
"""Seconds from the start of a run until its deletions are done, if no run measured them yet."""
_MIN_DELETE_SECONDS = 60
"""Minimum seconds from the start of a run until its deletions are done: a run may start late."""
_MAX_GAPS = 2
"""The shortest of this number of latest gaps between runs counts: an outage is only one gap."""


def scale_down_order(pool_plan: PoolPlan, units: Iterable[Unit]) -> list[Unit]:
    """Sort machines in the order of their deletion."""

    def rank(unit: Unit) -> tuple[bool, int, timedelta, str]:
        paid, next_end = _paid_seconds(pool_plan, unit)
        return (
            unit.name not in pool_plan.due,
            # Units that the next run can still delete within their paid time come last.
            paid if paid >= next_end else 0,
            _queue_preference(pool_plan, unit),
            unit.name,
        )

    return sorted(units, key=rank)


def youngest_first(booting: Iterable[Unit]) -> list[Unit]:
    """Sort booting machines in the order of their deletion: the youngest first."""
    by_name = sorted(booting, key=lambda unit: unit.name)
    return sorted(by_name, key=lambda unit: unit.since or NEVER, reverse=True)


def paid_for(pool_plan: PoolPlan, unit: Unit) -> str:
    """Return the reason to keep a machine within its paid time; empty to delete it now.

    A machine is deleted by the last run that can finish before the next billing increment. If this
    run cannot finish in time, the next increment counts as paid. With `retire.at: once`, a machine
    is not kept.
    """
    if pool_plan.pool is None or not _is_kept_while_paid(pool_plan.pool):
        return ""
    paid, next_end = _paid_seconds(pool_plan, unit)
    if paid < next_end:
        return ""
    return lives.explain_paid(paid, pool_plan.fleet.cadence, deleting_seconds(pool_plan.world))


def deletion_age(pool: object, tariff: Tariff, seconds: int) -> int:
    """Return the age, in seconds, at which a machine surplus at age `seconds` is deleted.

    This is the end of the billing increment; with `retire.at: once`, it is `seconds`.
    """
    age = max(1, seconds)
    if isinstance(pool, Pool) and not _is_kept_while_paid(pool):
        return age
    return billed_seconds(tariff, age)


def _is_kept_while_paid(pool: Pool) -> bool:
    return pool.retire.at != "once"


def deleting_seconds(world: World) -> int:
    """Return the measured seconds from the start of a run until its deletions are done."""
    if world.delete_seconds is None:
        return _DEFAULT_DELETE_SECONDS
    return max(_MIN_DELETE_SECONDS, world.delete_seconds)


def _paid_seconds(pool_plan: PoolPlan, unit: Unit) -> tuple[int, int]:
    """Return (end of the paid time if deleted now, deletion time by the next run).

    Both are in seconds from now. Return (0, 1) if the price is unknown.
    """
    machine, now = unit.machine, pool_plan.world.time
    created = machine.created_at if machine else None
    if machine is None or created is None or pool_plan.pool is None or created > now:
        return 0, 1
    provider, market = pool_plan.inventory.provider, market_of(unit.inputs)
    tariff = tariff_of_machine(pool_plan.fleet, pool_plan.name, provider, machine.type, market)
    if tariff is None:
        return 0, 1
    apart = _seconds_between_runs(pool_plan)
    gone = (_count_removal_runs(pool_plan, unit) - 1) * apart + deleting_seconds(pool_plan.world)
    end = paid_until(tariff, created, now + timedelta(seconds=gone))
    return int((end - now).total_seconds()), gone + apart


def _count_removal_runs(pool_plan: PoolPlan, unit: Unit) -> int:
    """Return the number of runs that a machine's deletion takes.

    One run per queue drains the worker; then a run deletes the drained and idle worker. A machine
    without a registered worker, or of a ticket queue, needs no drain.
    """
    queue = pool_plan.fleet.queues.get(unit.registry or "")
    is_drained = unit.registry is not None and not isinstance(queue, TicketQueue)
    return 1 + unit.drains if is_drained else 1


def _seconds_between_runs(pool_plan: PoolPlan) -> int:
    """Return the shorter of the two latest gaps between runs in seconds, at least `cadence`.

    With `cadence` alone, each run of a slower timer would expect a further run in time.
    """
    world = pool_plan.world
    runs = () if isinstance(world.runs, Unknown) else world.runs
    latest = [each for each in (*runs, world.time) if each <= world.time][-_MAX_GAPS - 1 :]
    gaps = [int((b - a).total_seconds()) for a, b in pairwise(latest)]
    return max(pool_plan.fleet.cadence, min(gaps) if len(gaps) == _MAX_GAPS else 0)


def _queue_preference(pool_plan: PoolPlan, unit: Unit) -> timedelta:
    """Return a sort key. A machine with a smaller key gets new work later."""
    queue = pool_plan.fleet.queues.get(unit.registry or "")
    created = unit.machine.created_at if unit.machine else None
    if isinstance(queue, DebusineQueue) and created is not None:
        return pool_plan.world.time - created
    return (unit.since or NEVER) - pool_plan.world.time
