"""This module asks Hetzner Cloud what it charges at one location."""

import os
from collections.abc import Mapping
from decimal import Decimal
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from fleet.catalogue.prices import Quote, Tariff
from fleet.errors import SourceUnreachable
from fleet.providers.hcloud import ARCHITECTURES, ENDPOINT, advise
from fleet.schema.model import HcloudProvider

_OK = 200
_PER_PAGE = 50
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


class _Pagination(_Answer):
    next_page: int | None


class _Meta(_Answer):
    pagination: _Pagination


class _TypesPage(_Answer):
    server_types: tuple[_Type, ...]
    meta: _Meta


_Page = TypeVar("_Page", bound=BaseModel)


def read_tariff(provider: HcloudProvider, token: str) -> Tariff:
    """Return the prices at a provider's location; SourceUnreachable where they cannot be told."""
    # httpx is slow to load, and most commands ask for no price.
    from fleet.web.reader import Reader

    base = os.environ.get("HCLOUD_ENDPOINT") or ENDPOINT
    headers = {"Authorization": f"Bearer {token}"}
    with Reader(base) as reader:

        def ask(path: str, query: Mapping[str, str], page: type[_Page]) -> _Page:
            reply = reader.get(path, query, headers)
            if reply.status != _OK:
                raise SourceUnreachable(
                    f"{reply.place} answered with status {reply.status}: {advise(reply.status)}"
                )
            return reply.parse(page)

        pricing = ask("/pricing", {}, _PricingPage).pricing
        types: list[_Type] = []
        number: int | None = 1
        while number is not None and number <= _MAX_PAGES:
            query = {"page": str(number), "per_page": str(_PER_PAGE)}
            page = ask("/server_types", query, _TypesPage)
            types += page.server_types
            number = page.meta.pagination.next_page
    quotes = {each.name: _quote(each, provider.location) for each in types}
    ipv4 = [each for each in pricing.primary_ips if each.type == "ipv4"]
    addresses = [at for each in ipv4 for at in _here(each.prices, provider.location)]
    return Tariff(
        currency=pricing.currency,
        quotes={name: quote for name, quote in quotes.items() if quote},
        address=next((at.price_hourly.net for at in addresses), None),
        disk=pricing.volume.price_per_gb_month.net,
    )


def _quote(sold: _Type, location: str) -> Quote | None:
    """Return what a type costs at a location; None where it is not sold there."""
    for at in _here(sold.prices, location):
        return Quote(
            price=at.price_hourly.net,
            month=at.price_monthly.net,
            cores=sold.cores,
            memory=int(sold.memory * 1024),
            disk=sold.disk * 1024,
            architecture=ARCHITECTURES.get(sold.architecture, sold.architecture),
        )
    return None


def _here(prices: tuple[_PriceAt, ...], location: str) -> list[_PriceAt]:
    return [each for each in prices if each.location == location]
