"""Compute the time and cost of a machine, and of a build on a new machine.

The plan, budgets, the ledger, explain, comparisons and pages take these figures from here.

A new machine boots, works, is idle for its time-out, and is then deleted: one run drains the
machine and a later run deletes it. The deletion takes a whole number of runs. The bill is then
exact if runs are punctual and the billing increment is a multiple of `cadence`.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from fleet.model.facts import World
from fleet.model.pool_limits import boot_of
from fleet.model.prices import FREE, Tariff, bill, tariff_of
from fleet.planner.demand import Place
from fleet.planner.durations import Expected, kind_at
from fleet.planner.lifecycle.rule import MachineLife
from fleet.planner.lifecycle.surplus import deleting_seconds, deletion_age
from fleet.planner.lifecycle.table import idle_limit
from fleet.schema.model import Fleet, Market, Pool


def removal_seconds(fleet: Fleet, world: World) -> int:
    """Return the seconds from the end of a machine's idle time-out to its deletion."""
    deletion_runs = -(-deleting_seconds(world) // fleet.cadence)
    return (1 + deletion_runs) * fleet.cadence


def idle_seconds(world: World, life: MachineLife) -> int:
    """Return the seconds from the end of a machine's work to its deletion."""
    return idle_limit(life).most + removal_seconds(life.fleet, world)


def deletion_time(
    pool: Pool | None, tariff: Tariff | None, created_at: datetime, moment: datetime
) -> datetime:
    """Return the deletion time of a surplus machine that runs may delete from `moment` on."""
    age = -((created_at - moment) // timedelta(seconds=1))
    return created_at + timedelta(seconds=deletion_age(pool, tariff or FREE, age))


class Way(NamedTuple):
    """The pool, machine type and market (on-demand or spot) of a planned machine."""

    pool: str
    type: str
    market: Market


class BuildEstimate(NamedTuple):
    """The time and cost of a build on a new machine."""

    seconds: int | None
    """Duration of the build; None if unknown."""
    cost: Decimal | None
    """Bill of the machine until its deletion; None if the duration or price is unknown."""
    source: str
    """Source of the duration on this machine type; empty if stated or equal on all types."""
    is_late: bool
    """The build cannot end before its deadline."""


def build_at(place: Place, expected: Expected) -> BuildEstimate:
    """Return the time and cost of a build at a place, from its expected duration."""
    reference, timing = expected
    seconds = timing.slowest(place.kinds, reference) if timing else reference
    if seconds is None:
        return BuildEstimate(None, None, "", is_late=False)
    source = timing.source_on(place.kinds[0]) if timing else ""
    is_late = timing is not None and timing.is_late(place.kinds, reference)
    return BuildEstimate(seconds, place.billed(seconds), source, is_late)


def new_place(fleet: Fleet, world: World, way: Way, *, on_demand: bool) -> Place:
    """Return the Place for new machines of a way. Raises TypeError for a static pool."""
    name, kind, market = way
    pool = fleet.dynamic_pool(name)
    if pool is None:
        raise TypeError(name)
    key = f"{name}/{kind}/{market}"

    def find() -> Place:
        tariff = tariff_of(fleet, pool, kind, market)
        life = MachineLife(fleet, pool, on_demand=on_demand, tariff=tariff)
        seconds = boot_of(pool).expected + idle_seconds(world, life)
        return Place(
            key=key,
            pool=name,
            makes=True,
            type=kind,
            market=market,
            setup=bill(tariff, seconds) if tariff else Decimal(0),
            setup_seconds=seconds,
            price=tariff.price if tariff else Decimal(0),
            kinds=(kind_at(fleet, name, kind),),
            tariff=tariff,
        )

    about = "place", key, removal_seconds(fleet, world)
    return fleet.cached(about, (pool, on_demand), find)
