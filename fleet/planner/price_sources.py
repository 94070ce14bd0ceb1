"""Find the source and the age of each provider's prices in a plan."""

from collections.abc import Iterator
from datetime import date

from fleet.model.facts import PriceList, Unknown, World
from fleet.model.price_lists import PriceSource, own_prices
from fleet.model.prices import PriceTable, source_of, table
from fleet.schema.model import Fleet
from fleet.schema.units import write_time
from fleet.words.runs import describe_location


def find_price_sources(fleet: Fleet, world: World) -> Iterator[PriceSource]:
    """Yield the source of prices per provider with pools, sorted by provider name."""
    used = {pool.provider for pool in fleet.dynamic_pools.values()}
    for name, declared in sorted(fleet.providers.items()):
        if name not in used:
            continue
        prices = own_prices(declared, world, name)
        if prices is not None:
            yield _own_source(world, name, prices)
        elif source_of(declared.kind):
            yield _shipped_source(world, name, table(declared.kind, declared.price_location))


def _own_source(world: World, name: str, prices: PriceList) -> PriceSource:
    return PriceSource(
        provider=name,
        own=True,
        as_of=write_time(prices.read_at),
        age_seconds=_seconds(prices.read_at, world.time),
        because=prices.stale,
    )


def _shipped_source(world: World, name: str, shipped: PriceTable) -> PriceSource:
    read = world.prices.get(name)
    because = ""
    if isinstance(read, Unknown):
        because = read.unknown
    elif read is not None:
        because = describe_location(read.location)
    day = date.fromisoformat(shipped.as_of) if shipped.as_of else None
    return PriceSource(
        provider=name,
        own=False,
        as_of=shipped.as_of,
        age_seconds=None if day is None else _seconds(day, world.time.date()),
        because=because,
    )


def _seconds(since: date, until: date) -> int:
    return max(0, int((until - since).total_seconds()))
