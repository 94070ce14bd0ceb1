"""This module says of each worker what it is, where, for whom it works and what that has cost.

Nothing of a provider's account is told but its name and place. What nobody knows is None.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from pydantic import Field

from fleet.model.facts import World
from fleet.model.plan import Rate
from fleet.model.prices import Life, MachineType, Tariff, find_types
from fleet.model.values import Moment, Value
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import Holding, holdings
from fleet.planner.machine_inputs import market_of
from fleet.planner.units import Unit
from fleet.schema.model import AwsProvider, Fleet, HcloudProvider, Machine, Pool
from fleet.schema.pools import Market

_EXACT = Decimal("0.0001")


class WorkerFacts(Value):
    """A worker's machine and its work."""

    provider: str | None = None
    location: str | None = Field(None, description="The provider's location or region.")
    market: Market | None = None
    cores: int | None = None
    memory: int | None = Field(None, description="MiB.")
    disk: int | None = Field(None, description="MiB.")
    swap: int | None = Field(None, description="MiB.")
    architecture: str | None = None
    created_at: Moment | None = None
    cost_so_far: Rate | None = Field(
        None, description="Billed for the machine since its creation, whole steps counted."
    )
    task: str | None = None
    package: str | None = Field(None, description="The source package that its work builds.")
    work_since: Moment | None = None
    work_cost: Rate | None = Field(None, description="What its work has cost so far.")


def facts_of_workers(fleet: Fleet, world: World) -> dict[str, WorkerFacts]:
    """Return by worker what is known of it."""
    inventory = take_inventory(fleet, world)
    held = {each.unit.name: each for each in holdings(fleet, world, inventory) if each.unit}
    return {
        unit.name: _facts(fleet, world, unit, pool.provider, held.get(unit.name))
        for pool in inventory.values()
        for unit in pool.units
    }


def _facts(
    fleet: Fleet, world: World, unit: Unit, provider: str, held: Holding | None
) -> WorkerFacts:
    machine, work = unit.machine, unit.worker.work if unit.worker else None
    known = _type(fleet, unit)
    pool = fleet.pools.get(unit.pool)
    stated = pool.machine if isinstance(pool, Pool) and isinstance(pool.machine, Machine) else None
    started = work.started_at if work else None
    since = machine.created_at if machine else None
    return WorkerFacts(
        provider=provider or None,
        location=_location(fleet, provider),
        market=market_of(unit.inputs) if unit.inputs else None,
        cores=known.cores if known else None,
        memory=known.memory if known else None,
        disk=known.disk or None if known else None,
        swap=stated.swap if stated else None,
        architecture=known.architecture if known else None,
        created_at=since,
        cost_so_far=_cost(fleet, world, held, since, work=False),
        task=work.task or None if work else None,
        package=work.package if work else None,
        work_since=started,
        work_cost=_cost(fleet, world, held, started, work=True),
    )


def _type(fleet: Fleet, unit: Unit) -> MachineType | None:
    """Return what the machine is, as its pool says; None where its type is none of the pool's."""
    pool = fleet.pools.get(unit.pool)
    if unit.machine is None or not isinstance(pool, Pool):
        return None
    return next((t for t in find_types(fleet, pool) if t.name == unit.machine.type), None)


def _location(fleet: Fleet, provider: str) -> str | None:
    match fleet.providers.get(provider):
        case HcloudProvider(location=location):
            return location
        case AwsProvider(region=region):
            return region
        case _:
            return None


def _cost(
    fleet: Fleet, world: World, held: Holding | None, since: datetime | None, *, work: bool
) -> Decimal | None:
    """Return what a machine, or the work on it, has cost since a moment; None: nobody knows."""
    if held is None or held.tariff is None or since is None or since > world.time:
        return None
    zone = ZoneInfo(fleet.money.time_zone)
    months = _by_month(held.tariff, held.created_at, (since, world.time), zone, work=work)
    return sum(months, Decimal(0)).quantize(_EXACT)


def _by_month(
    tariff: Tariff,
    created_at: datetime,
    span: tuple[datetime, datetime],
    zone: ZoneInfo,
    *,
    work: bool,
) -> Iterator[Decimal]:
    """Yield what each month's part of a time costs: a provider bills at most so much a month."""
    start, until = span
    while start < until:
        local = start.astimezone(zone)
        month = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        end = min(until, (month + timedelta(days=32)).replace(day=1))
        life = Life(tariff, created_at, month)
        yield life.accrued(start, end) if work else life.billed(start, end)
        start = end
