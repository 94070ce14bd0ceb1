"""This module knows machine types: cores, memory, disk and list price, each table dated.

Prices are net list prices per hour in the provider's currency. They are data, not advice:
a pool's `machine` may override every figure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from fleet.schema.model import Fleet, Machine, Money, Pool, SimProvider
from fleet.schema.pools import Market

AS_OF = "2025-06-01"
SOURCE = {
    "hcloud": "https://www.hetzner.com/cloud/ (Germany, without IPv4 address)",
    "aws": "https://aws.amazon.com/ec2/pricing/on-demand/ (eu-central-1, Linux)",
}


@dataclass(frozen=True)
class MachineType:
    """One machine type: memory and disk in MiB, price per hour in `currency`."""

    name: str
    cores: int
    memory: int
    disk: int
    price: Decimal | None
    currency: str
    architecture: str = "amd64"
    spot: Money | None = None
    """Price per hour on the spot market; None: it is not sold there, or nobody knows for what."""


def type_names(pool: Pool) -> tuple[str, ...]:
    """Return the machine types that a pool names, in its order; none where it states figures."""
    named = pool.machine if isinstance(pool.machine, str) else pool.machine.type
    if named is None:
        return ()
    return (named,) if isinstance(named, str) else tuple(dict.fromkeys(named))


def markets_of(pool: Pool) -> tuple[Market, ...]:
    """Return the markets that a pool buys on, in its order."""
    if isinstance(pool.machine, str):
        return ("on-demand",)
    return tuple(dict.fromkeys(pool.machine.market))


def find_types(fleet: Fleet, pool: Pool) -> tuple[MachineType, ...]:
    """Return what a pool's machines are, overrides applied, in the order written.

    Types that are not known are left out; `price` is None where neither the catalogue nor the
    pool states one.
    """
    sold = _sold_by(fleet, pool.provider)
    if isinstance(pool.machine, str):
        return tuple(sold[name] for name in type_names(pool) if name in sold)
    return tuple(_overridden(fleet, pool, pool.machine, sold))


def _overridden(
    fleet: Fleet, pool: Pool, machine: Machine, sold: dict[str, MachineType]
) -> Iterator[MachineType]:
    image = fleet.images.get(pool.image)
    for name in type_names(pool) or ("own",):
        known = sold.get(name) if machine.type else None
        if known is None and None in (machine.cores, machine.memory):
            continue
        yield MachineType(
            name=name,
            cores=machine.cores or (known.cores if known else 0),
            memory=machine.memory or (known.memory if known else 0),
            disk=machine.disk or (known.disk if known else 0),
            price=machine.price.amount if machine.price else known.price if known else None,
            currency=machine.price.currency
            if machine.price
            else known.currency
            if known
            else fleet.money.currency,
            # Nobody says what an own machine is but the image that it boots.
            architecture=known.architecture if known else image.architecture if image else "amd64",
            spot=known.spot if known else None,
        )


def price_per_hour(fleet: Fleet, known: MachineType, market: Market) -> Decimal | None:
    """Return a machine's price per hour in the currency of the file; None: it is not known."""
    if market == "spot":
        return convert(fleet, known.spot.amount, known.spot.currency) if known.spot else None
    return None if known.price is None else convert(fleet, known.price, known.currency)


def price_of_type(
    fleet: Fleet, provider: str, name: str, market: Market = "on-demand"
) -> Decimal | None:
    """Return what a provider's machine type costs per hour in the currency of the file."""
    known = _sold_by(fleet, provider).get(name)
    return None if known is None else price_per_hour(fleet, known, market)


def convert(fleet: Fleet, amount: Decimal, currency: str) -> Decimal | None:
    """Return an amount in the currency of the file; None without a stated exchange rate."""
    if currency == fleet.money.currency:
        return amount
    rate = fleet.money.exchange.get(currency)
    return amount * Decimal(str(rate.rate)) if rate else None


def known_types(fleet: Fleet, provider: str) -> tuple[str, ...]:
    """Return the names of the machine types that a provider of this fleet sells, sorted."""
    return tuple(sorted(_sold_by(fleet, provider)))


def _sold_by(fleet: Fleet, provider: str) -> dict[str, MachineType]:
    declared = fleet.providers.get(provider)
    if declared is None:
        return {}
    if not isinstance(declared, SimProvider):
        return _TYPES.get(declared.kind, {})
    own = {
        name: MachineType(
            name=name,
            cores=sold.cores,
            memory=sold.memory,
            disk=sold.disk,
            price=sold.price.amount,
            currency=sold.price.currency,
            architecture=sold.architecture,
            spot=sold.spot,
        )
        for name, sold in declared.types.items()
    }
    return _TYPES["hcloud"] | own


def _table(rows: str, currency: str) -> dict[str, MachineType]:
    """Read rows of `name cores memory-GiB disk-GB price architecture`."""
    types = {}
    for row in rows.strip().splitlines():
        name, cores, memory, disk, price, architecture = row.split()
        types[name] = MachineType(
            name=name,
            cores=int(cores),
            memory=int(memory) * 1024,
            disk=int(disk) * 1024,
            price=Decimal(price),
            currency=currency,
            architecture=architecture,
        )
    return types


_TYPES: dict[str, dict[str, MachineType]] = {
    "hcloud": _table(
        """
        ccx13  2    8   80 0.0200 amd64
        ccx23  4   16  160 0.0392 amd64
        ccx33  8   32  240 0.0777 amd64
        ccx43 16   64  360 0.1546 amd64
        ccx53 32  128  600 0.3085 amd64
        ccx63 48  192  960 0.4620 amd64
        cax11  2    4   40 0.0060 arm64
        cax21  4    8   80 0.0104 arm64
        cax31  8   16  160 0.0200 arm64
        cax41 16   32  320 0.0392 arm64
        """,
        "EUR",
    ),
    "aws": _table(
        """
        c7a.2xlarge  8  16 0 0.4680 amd64
        c7a.4xlarge 16  32 0 0.9360 amd64
        c7a.8xlarge 32  64 0 1.8720 amd64
        c7g.4xlarge 16  32 0 0.6620 arm64
        c7g.8xlarge 32  64 0 1.3240 arm64
        """,
        "USD",
    ),
}
