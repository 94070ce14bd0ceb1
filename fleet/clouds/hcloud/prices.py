"""Read the prices of Hetzner Cloud at one location."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fleet.clouds.cloud import trimmed
from fleet.clouds.hcloud.api import ARCHITECTURES, HcloudApi, PagedReply
from fleet.errors import SourceUnreachable
from fleet.model.facts import PriceList, Quote
from fleet.model.values import Amount, Line
from fleet.schema.model import HcloudProvider


class _PricingReply(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Net(_PricingReply):
    net: Amount


class _PriceAt(_PricingReply):
    location: Line
    price_hourly: _Net
    price_monthly: _Net


class _AddressPrices(_PricingReply):
    type: Line
    prices: tuple[_PriceAt, ...]


class _Volume(_PricingReply):
    price_per_gb_month: _Net


class _Pricing(_PricingReply):
    currency: Line
    primary_ips: tuple[_AddressPrices, ...]
    volume: _Volume


class _PricingPage(_PricingReply):
    pricing: _Pricing


class _PricedType(_PricingReply):
    name: Line
    cores: Annotated[int, Field(ge=0, le=10_000)]
    memory: Annotated[Decimal, Field(ge=0, le=2**20, description="In GB.")]
    disk: Annotated[int, Field(ge=0, le=2**30, description="In GB.")]
    architecture: Line
    prices: tuple[_PriceAt, ...]


class _TypesPage(PagedReply):
    server_types: tuple[_PricedType, ...]


class HcloudPrices:
    """The reader of prices of Hetzner Cloud at one location."""

    def __init__(self, provider: HcloudProvider, token: str) -> None:
        self.location = provider.location
        self._api = HcloudApi(token)

    def read(self, now: datetime) -> PriceList:
        """Return the current net prices; raises SourceUnreachable if prices are invalid."""
        with self._api.reading() as reading:
            pricing = reading.get("/pricing", {}, _PricingPage).pricing
            pages = list(reading.pages("/server_types", {}, _TypesPage))
        types = [each for page in pages for each in page.server_types]
        ipv4 = [each for each in pricing.primary_ips if each.type == "ipv4"]
        addresses = [at for each in ipv4 for at in _select_location(each.prices, self.location)]
        try:
            quotes = {each.name: _quote(each, self.location) for each in types}
            return PriceList(
                read_at=now,
                location=self.location,
                currency=pricing.currency,
                quotes={name: quote for name, quote in sorted(quotes.items()) if quote},
                address=next((trimmed(at.price_hourly.net) for at in addresses), None),
                disk=trimmed(pricing.volume.price_per_gb_month.net),
            )
        except (ArithmeticError, ValueError) as error:
            said = str(error).splitlines()[-1].strip()
            raise SourceUnreachable(
                f"{self._api.base} returned impossible prices: {said}"
            ) from error


def _quote(sold: _PricedType, location: str) -> Quote | None:
    """Return the price of a server type at a location; None if the type is not sold there."""
    for at in _select_location(sold.prices, location):
        return Quote(
            price=trimmed(at.price_hourly.net),
            month=trimmed(at.price_monthly.net),
            cores=sold.cores,
            memory=int(sold.memory * 1024),
            disk=sold.disk * 1024,
            architecture=ARCHITECTURES.get(sold.architecture, sold.architecture),
        )
    return None


def _select_location(prices: tuple[_PriceAt, ...], location: str) -> list[_PriceAt]:
    return [each for each in prices if each.location == location]
