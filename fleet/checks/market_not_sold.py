"""This module finds machines that are to be bought on a market where they are not sold."""

from collections.abc import Iterator

from fleet.catalogue import find_types, markets_of
from fleet.schema.findings import Finding
from fleet.schema.model import (
    Fleet,
    HcloudProvider,
    HooksProvider,
    LocalProvider,
    Pool,
    SimProvider,
)

_NEVER = (HcloudProvider, HooksProvider, LocalProvider)
"""Kinds of provider that sell nothing on the spot market."""


def market_not_sold(fleet: Fleet) -> Iterator[Finding]:
    """Require that machines can be bought on each market that their pool names."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool) or "spot" not in markets_of(pool):
            continue
        unsold = [known.name for known in find_types(fleet, pool) if known.spot is None]
        if unsold:
            yield _finding(fleet, name, pool, unsold)


def _finding(fleet: Fleet, name: str, pool: Pool, unsold: list[str]) -> Finding:
    provider = fleet.providers.get(pool.provider)
    if isinstance(provider, _NEVER):
        said = f"provider '{pool.provider}' sells no machines on the spot market"
    else:
        types = ", ".join(unsold)
        said = f"no spot price of {types} is known at provider '{pool.provider}'"
    number = markets_of(pool).index("spot")
    alone = len(markets_of(pool)) == 1 and len(unsold) == len(find_types(fleet, pool))
    return Finding(
        "market-not-sold",
        f"{said}, so none is bought there" + (": the pool makes no machine" if alone else ""),
        ("pools", name, "machine", "market", number),
        # Elsewhere a spot price that nobody knows today may be known tomorrow.
        severity="error" if alone and isinstance(provider, (*_NEVER, SimProvider)) else "warning",
        hint="buy on-demand",
    )
