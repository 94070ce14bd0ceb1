"""Ask Hetzner Cloud what it charges at one location."""

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict

from fleet.clouds.hcloud.machines import ARCHITECTURES, ENDPOINT, Meta, advise, read_pages
from fleet.errors import SourceUnreachable
from fleet.model.facts import PriceList, Quote
from fleet.schema.model import HcloudProvider

if TYPE_CHECKING:
    from fleet.queues.http import Reader

_OK = 200
_MAX_PAGES = 100


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Net(_Answer):
    net: Decimal


class _PriceAt(_Answer):
    location: str
    price_hourly: _Net
    price_monthly: _Net


class _Address(_Answer):
    type: str
    prices: tuple[_PriceAt, ...]


class _Volume(_Answer):
    price_per_gb_month: _Net


class _Pricing(_Answer):
    currency: str
    primary_ips: tuple[_Address, ...]
    volume: _Volume


class _PricingPage(_Answer):
    pricing: _Pricing


class _Type(_Answer):
    name: str
    cores: int
    memory: Decimal
    disk: int
    architecture: str
    prices: tuple[_PriceAt, ...]


class _TypesPage(_Answer):
    server_types: tuple[_Type, ...]
    meta: Meta


_Page = TypeVar("_Page", bound=BaseModel)


class HcloudPrices:
    """What Hetzner says of its prices at one location: a PriceReader."""

    def __init__(self, provider: HcloudProvider, token: str) -> None:
        self.location = provider.location
        self._headers = {"Authorization": f"Bearer {token}"}
        self._base = os.environ.get("HCLOUD_ENDPOINT") or ENDPOINT

    def read(self, now: datetime) -> PriceList:
        """Return the prices, net; SourceUnreachable where not all of them can be told."""
        # httpx is slow to load, and most commands ask for no price.
        from fleet.queues.http import Reader

        with Reader(self._base) as reader:
            pricing = self._ask(reader, "/pricing", {}, _PricingPage).pricing
            types = list(self._types(reader))
        ipv4 = [each for each in pricing.primary_ips if each.type == "ipv4"]
        addresses = [at for each in ipv4 for at in _here(each.prices, self.location)]
        try:
            quotes = {each.name: _quote(each, self.location) for each in types}
            return PriceList(
                read_at=now,
                location=self.location,
                currency=pricing.currency,
                quotes={name: quote for name, quote in sorted(quotes.items()) if quote},
                address=next((_trimmed(at.price_hourly.net) for at in addresses), None),
                disk=_trimmed(pricing.volume.price_per_gb_month.net),
            )
        except (ArithmeticError, ValueError) as error:
            said = str(error).splitlines()[-1].strip()
            raise SourceUnreachable(f"{self._base} returned impossible prices: {said}") from error

    def _types(self, reader: "Reader") -> Iterator[_Type]:
        def ask(query: Mapping[str, str]) -> _TypesPage:
            return self._ask(reader, "/server_types", query, _TypesPage)

        for page in read_pages(ask, f"{reader.base}/server_types", most=_MAX_PAGES):
            yield from page.server_types

    def _ask(
        self, reader: "Reader", path: str, query: Mapping[str, str], page: type[_Page]
    ) -> _Page:
        reply = reader.get(path, query, self._headers)
        if reply.status != _OK:
            raise SourceUnreachable(
                f"{reply.place} answered with status {reply.status}: {advise(reply.status)}"
            )
        return reply.parse(page)


def _quote(sold: _Type, location: str) -> Quote | None:
    """Return what a type costs at a location; None where it is not sold there."""
    for at in _here(sold.prices, location):
        return Quote(
            price=_trimmed(at.price_hourly.net),
            month=_trimmed(at.price_monthly.net),
            cores=sold.cores,
            memory=int(sold.memory * 1024),
            disk=sold.disk * 1024,
            architecture=ARCHITECTURES.get(sold.architecture, sold.architecture),
        )
    return None


def _trimmed(amount: Decimal) -> Decimal:
    """Return a price without the noughts at its end."""
    return Decimal(format(amount.normalize(), "f"))


def _here(prices: tuple[_PriceAt, ...], location: str) -> list[_PriceAt]:
    return [each for each in prices if each.location == location]
