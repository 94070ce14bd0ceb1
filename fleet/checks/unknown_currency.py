"""This module finds money that cannot be added up."""

from collections.abc import Iterator

from fleet.catalogue import find_types
from fleet.schema.findings import Finding, Path
from fleet.schema.model import Fleet, Money, Pool, Section, SimProvider

_AMOUNTS = ("per_hour", "per_day", "per_month")


def unknown_currency(fleet: Fleet) -> Iterator[Finding]:
    """Require that all money is in the currency of the file or has an exchange rate."""
    for path, currency in _currencies(fleet):
        if currency != fleet.money.currency and currency not in fleet.money.exchange:
            yield Finding(
                "unknown-currency",
                f"there is no exchange rate from {currency} to {fleet.money.currency}",
                path,
                hint=f"add money: {{exchange: {{{currency}: {{rate: …, as_of: …}}}}}}",
            )


def _currencies(fleet: Fleet) -> Iterator[tuple[Path, str]]:
    for path, money in _written(fleet):
        yield path, money.currency
    for name, pool in fleet.pools.items():
        types = find_types(fleet, pool) if isinstance(pool, Pool) else ()
        for currency in dict.fromkeys(each.currency for each in types if each.price is not None):
            yield ("pools", name, "machine"), currency


def _written(fleet: Fleet) -> Iterator[tuple[Path, Money]]:
    for name, provider in fleet.providers.items():
        if isinstance(provider, SimProvider):
            yield from _simulated(("providers", name), provider)
    for name, pool in fleet.pools.items():
        if isinstance(pool, Pool) and pool.budget:
            yield from _amounts(("pools", name, "budget"), pool.budget)
    for name, budget in fleet.budgets.items():
        yield from _amounts(("budgets", name), budget)
    if fleet.guards.refuse.cost_increase:
        yield ("guards", "refuse", "cost_increase"), fleet.guards.refuse.cost_increase


def _simulated(path: Path, provider: SimProvider) -> Iterator[tuple[Path, Money]]:
    for key in ("address", "disk"):
        extra = getattr(provider.billing, key)
        if extra is not None:
            yield (*path, "billing", key), extra
    for kind, sold in provider.types.items():
        yield (*path, "types", kind, "price"), sold.price
        if sold.spot:
            yield (*path, "types", kind, "spot"), sold.spot


def _amounts(path: Path, section: Section) -> Iterator[tuple[Path, Money]]:
    for key in _AMOUNTS:
        amount = getattr(section, key)
        if amount is not None:
            yield (*path, key), amount
