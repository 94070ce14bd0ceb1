"""Select the prices of a plan: the price list that a provider reported, or the shipped table.

The lists are part of the world, so that a plan depends only on fleet.yaml and the world. A machine
type that is missing in its provider's list keeps its sizes and has no price.
"""

from dataclasses import replace

from pydantic import Field

from fleet.model.facts import PriceList, World
from fleet.model.prices import MachineType, PriceTable, ProviderPrices, table
from fleet.model.values import ForPeople, Value
from fleet.schema.model import Fleet, Provider


class PriceSource(Value):
    """The price list that a plan uses for a provider, and the date of the list."""

    provider: str
    own: bool = Field(description="The provider's own list; else the table shipped with fleet.")
    as_of: str = Field(description="The day of the table or the time of the list, UTC.")
    age_seconds: int | None = Field(description="Its age; null: no prices.")
    because: ForPeople = Field("", description="Reason to use no newer list.")


def with_price_lists(fleet: Fleet, world: World) -> Fleet:
    """Return the fleet with the price lists in the world. The function is idempotent."""
    lists = {name: own_prices(declared, world, name) for name, declared in fleet.providers.items()}
    if not any(lists.values()):
        return fleet

    def find() -> Fleet:
        found = fleet
        for name, prices in lists.items():
            if prices:
                found = with_price_list(found, name, prices)
        return found

    # Reuse the object if the lists are equal, so that values cached per fleet stay valid.
    return fleet.cached("price lists", (*lists.values(),), find)


def with_price_list(fleet: Fleet, provider: str, prices: PriceList) -> Fleet:
    """Return the fleet with this price list for a provider."""
    declared = fleet.providers[provider]
    shipped = table(declared.kind, prices.location).types
    sold = {
        name: MachineType(
            name=name,
            cores=quote.cores,
            memory=quote.memory,
            disk=quote.disk,
            price=quote.price,
            currency=prices.currency,
            architecture=quote.architecture,
        )
        for name, quote in prices.quotes.items()
    }
    gone = {name: replace(known, price=None) for name, known in shipped.items()}
    date = prices.read_at.date().isoformat()
    own = PriceTable(date, "its own price list", gone | sold)
    listed = {provider: declared.with_list(ProviderPrices(prices, own))}
    return fleet.model_copy(update={"providers": fleet.providers | listed})


def own_prices(declared: Provider, world: World, name: str) -> PriceList | None:
    """Return the price list that a provider reported; None if missing or for another location."""
    read = world.prices.get(name)
    return (
        read if isinstance(read, PriceList) and read.location == declared.price_location else None
    )
