"""This module finds pools that can make no machine because nothing says what one costs."""

from collections.abc import Iterator

from fleet.catalogue import find_types, markets_of, table_of, type_names
from fleet.catalogue.tables import LOCATIONS, MachineType
from fleet.schema.findings import Finding, nearest
from fleet.schema.model import AwsProvider, Fleet, HcloudProvider, Pool, Provider


def missing_price(fleet: Fleet) -> Iterator[Finding]:
    """Require a price of what a pool buys: the catalogue's, or the pool's own."""
    for name, pool in fleet.pools.items():
        provider = fleet.providers.get(pool.provider) if isinstance(pool, Pool) else None
        if not isinstance(pool, Pool) or provider is None or "on-demand" not in markets_of(pool):
            continue
        if pool.mode == "observe":
            continue
        types = find_types(fleet, pool)
        unpriced = [each for each in types if each.price is None]
        if unpriced:
            alone = len(unpriced) == len(types)
            # A cloud has a price of what it sells; Hetzner is asked for it.
            known = table_of(provider).types
            listed = isinstance(provider, HcloudProvider) and bool(type_names(pool))
            sold = listed or all(each.name in known for each in unpriced)
            said = _said(provider, unpriced, named=bool(type_names(pool)))
            yield Finding(
                "missing-price",
                said + (": the pool makes no machine" if alone else ", so none is bought"),
                ("pools", name, "machine"),
                severity="error" if alone and not sold else "warning",
                hint=_hint(pool.provider, provider),
            )


def _hint(name: str, provider: Provider) -> str:
    priced = "add price to machine, as in `price: 0.25 EUR/h`: all that one costs an hour"
    if not isinstance(provider, HcloudProvider) or provider.location in LOCATIONS:
        return priced
    places = ", ".join(sorted(LOCATIONS))
    meant = nearest(provider.location, sorted(LOCATIONS))
    said = f"did you mean {meant}?" if meant else f"known are {places}"
    return f"providers.{name}.location: {said}"


def _said(provider: Provider, unpriced: list[MachineType], *, named: bool) -> str:
    if not named:
        return "cores and memory are stated without a price"
    types = ", ".join(each.name for each in unpriced)
    match provider:
        case HcloudProvider():
            place = f" at {provider.location}"
        case AwsProvider():
            place = f" in {provider.region}"
        case _:
            place = ""
    as_of = table_of(provider).as_of
    dated = f" of {as_of}" if as_of else ""
    return f"the catalogue{dated} has no price of {types}{place}"
