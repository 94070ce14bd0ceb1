"""This module knows machine types: cores, memory, disk and list price, each table dated.

Prices are net list prices per hour in the provider's currency, where the provider is. They are
data, not advice: a pool's `machine` may override every figure. What a machine costs is its
type's price, its address, and the disk it needs above the type's own; a price that the pool
states says it all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from fleet.catalogue.listed import ListedHcloud
from fleet.catalogue.tables import MachineType, Table, table
from fleet.facts.prices import PriceList
from fleet.schema.model import (
    AwsProvider,
    Fleet,
    HcloudProvider,
    LocalMachineType,
    LocalProvider,
    Machine,
    Money,
    Pool,
    Provider,
    SimBilling,
    SimMachineType,
    SimProvider,
)
from fleet.schema.pools import Market

SOURCE = {
    "hcloud": "https://www.hetzner.com/cloud/ (primary IPv4 and volumes stated apart), "
    "https://docs.hetzner.com/cloud/billing/faq (full hours, up to the monthly price)",
    "aws": "https://aws.amazon.com/ec2/pricing/on-demand/ (Linux; seconds, at least "
    "60), https://aws.amazon.com/vpc/pricing/ (public IPv4), https://aws.amazon.com/ebs/pricing/ "
    "(gp3), https://aws.amazon.com/ec2/spot/pricing/ (changes all the time; counted near its "
    "ceiling, the price on demand)",
}
"""Where a person compares by hand."""
GIB_DIGITS = Decimal("0.0000001")
"""To which part of money it is known what a GiB of disk costs per hour."""


@dataclass(frozen=True)
class Billing:
    """How a provider counts time, and what it bills beside the machine."""

    increment: int = 1
    """Seconds that are billed as a whole, from the creation of the machine."""
    minimum: int = 0
    """Seconds that are billed at least."""
    month: int | None = None
    """Hours of a calendar month that are billed at most."""
    address: Money | None = None
    """The public IPv4 address of one machine, per hour."""
    disk: Money | None = None
    """One GiB of disk above what the machine type has, per hour."""


def billing_of(fleet: Fleet, provider: str) -> Billing:
    """Return how a provider of this fleet bills; what is not known bills by the second."""
    declared = fleet.providers.get(provider)
    if declared is None:
        return Billing()
    if isinstance(declared, SimProvider):
        return _simulated(declared.billing)
    billing = _BILLING.get(declared.kind, Billing())
    return _told(billing, declared.prices) if isinstance(declared, ListedHcloud) else billing


def _told(billing: Billing, prices: PriceList) -> Billing:
    """Return how a provider bills, at the prices of its own list; what that lacks stays."""
    address, disk = prices.address, prices.disk
    hour = (disk / billing.month).quantize(GIB_DIGITS) if disk and billing.month else None
    return replace(
        billing,
        address=billing.address
        if address is None
        else Money(amount=address, currency=prices.currency),
        disk=billing.disk if hour is None else Money(amount=hour, currency=prices.currency),
    )


def _simulated(billing: SimBilling) -> Billing:
    return Billing(
        increment=billing.increment,
        minimum=billing.minimum or 0,
        month=billing.hours_per_month,
        address=billing.address,
        disk=billing.disk,
    )


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
    if isinstance(pool.machine, str):
        known = _sold(fleet, pool.provider, pool.machine)
        return (known,) if known else ()
    return tuple(_overridden(fleet, pool, pool.machine))


def _overridden(fleet: Fleet, pool: Pool, machine: Machine) -> Iterator[MachineType]:
    image = fleet.images.get(pool.image)
    for name in type_names(pool) or ("own",):
        known = _sold(fleet, pool.provider, name) if machine.type else None
        if known is None and None in (machine.cores, machine.memory):
            continue
        price = known.price if known else _own_price(fleet.providers.get(pool.provider))
        yield MachineType(
            name=name,
            cores=machine.cores or (known.cores if known else 0),
            memory=machine.memory or (known.memory if known else 0),
            disk=machine.disk or (known.disk if known else 0),
            price=machine.price.amount if machine.price else price,
            currency=machine.price.currency
            if machine.price
            else known.currency
            if known
            else fleet.money.currency,
            # Nobody says what an own machine is but the image that it boots.
            architecture=known.architecture if known else image.architecture if image else "amd64",
            spot=known.spot if known else None,
            extras=(*known.extras, *_more_disk(fleet, pool, machine, known)) if known else (),
            all_in=machine.price is not None,
            speed=machine.speed or (known.speed if known else 0),
        )


def _more_disk(fleet: Fleet, pool: Pool, machine: Machine, known: MachineType) -> Iterator[Money]:
    """Yield the price per hour of the disk that a pool's machines need above the type's own."""
    price = billing_of(fleet, pool.provider).disk
    lacking = (machine.disk or 0) + (machine.swap or 0) - known.disk
    if price is not None and lacking > 0:
        amount = price.amount * lacking / 1024
        yield Money(amount=amount, currency=price.currency)


def price_per_hour(fleet: Fleet, known: MachineType, market: Market) -> Decimal | None:
    """Return what a machine costs per hour, all in, in the currency of the file; None: unknown."""
    if market == "spot":
        parts = None if known.spot is None else (known.spot, *known.extras)
    elif known.price is None:
        parts = None
    else:
        price = Money(amount=known.price, currency=known.currency)
        parts = (price, *(() if known.all_in else known.extras))
    converted = [convert(fleet, each.amount, each.currency) for each in parts or ()]
    if parts is None or None in converted:
        return None
    return sum((each for each in converted if each is not None), Decimal(0))


def price_of_type(
    fleet: Fleet, provider: str, name: str, market: Market = "on-demand"
) -> Decimal | None:
    """Return what a provider's machine type costs per hour, its address included."""
    known = _sold(fleet, provider, name)
    return None if known is None else price_per_hour(fleet, known, market)


def convert(fleet: Fleet, amount: Decimal, currency: str) -> Decimal | None:
    """Return an amount in the currency of the file; None without a stated exchange rate."""
    if currency == fleet.money.currency:
        return amount
    rate = fleet.money.exchange.get(currency)
    return amount * Decimal(str(rate.rate)) if rate else None


def find_type(fleet: Fleet, pool: Pool, name: str) -> MachineType | None:
    """Return a machine type as a pool overrides it, else as its provider sells it."""
    own = (each for each in find_types(fleet, pool) if each.name == name)
    return next(own, None) or _sold(fleet, pool.provider, name)


def types_named(fleet: Fleet, name: str) -> Iterator[MachineType]:
    """Yield a machine type as each provider sells it, then as each pool overrides it."""
    found = (_sold(fleet, provider, name) for provider in sorted(fleet.providers))
    yield from (each for each in found if each)
    pools = (pool for _, pool in sorted(fleet.pools.items()) if isinstance(pool, Pool))
    yield from (each for pool in pools for each in find_types(fleet, pool) if each.name == name)


def known_types(fleet: Fleet, provider: str) -> tuple[str, ...]:
    """Return the names of the machine types that a provider of this fleet sells, sorted."""
    declared = fleet.providers.get(provider)
    own = declared.types if isinstance(declared, SimProvider | LocalProvider) else {}
    return tuple(sorted({*_listed(declared), *own}))


def shipped_types(fleet: Fleet, provider: str) -> Mapping[str, MachineType]:
    """Return the machine types of the table of a provider's kind, without any override."""
    return _listed(fleet.providers.get(provider))


def listed_type(fleet: Fleet, provider: str, name: str) -> MachineType | None:
    """Return a machine type as the table of a provider's kind has it, without any override."""
    return _listed(fleet.providers.get(provider)).get(name)


def _sold(fleet: Fleet, provider: str, name: str) -> MachineType | None:
    """Return one machine type of a provider; None where it sells none of this name."""
    declared = fleet.providers.get(provider)
    if isinstance(declared, SimProvider) and name in declared.types:
        known = _own_type(name, declared.types[name])
    elif isinstance(declared, LocalProvider) and name in declared.types:
        known = _local_type(name, declared.types[name], fleet.money.currency)
    elif name in _listed(declared):
        known = _listed(declared)[name]
    else:
        return None
    address = billing_of(fleet, provider).address
    return known if address is None else replace(known, extras=(address,))


def table_of(declared: Provider | None) -> Table:
    """Return what a provider sells where it is: its own list, else the table of its kind."""
    match declared:
        case ListedHcloud():
            return declared.listed
        case HcloudProvider():
            return table("hcloud", declared.location)
        case AwsProvider():
            return table("aws", declared.region)
        case SimProvider():
            return table("sim", "sim")
        case _:
            return Table()


def _listed(declared: Provider | None) -> Mapping[str, MachineType]:
    return table_of(declared).types


def _own_type(name: str, sold: SimMachineType) -> MachineType:
    return MachineType(
        name=name,
        cores=sold.cores,
        memory=sold.memory,
        disk=sold.disk,
        price=sold.price.amount,
        currency=sold.price.currency,
        architecture=sold.architecture,
        spot=sold.spot,
        speed=sold.speed or 0,
    )


def _local_type(name: str, local: LocalMachineType, currency: str) -> MachineType:
    return MachineType(
        name=name,
        cores=local.cores,
        memory=local.memory,
        disk=local.disk or 0,
        price=Decimal(0),
        currency=currency,
        architecture=local.architecture,
        speed=local.speed or 0,
    )


def _own_price(provider: object) -> Decimal | None:
    """Return what an own machine costs where no price is stated: on this computer nothing."""
    return Decimal(0) if isinstance(provider, LocalProvider) else None


_BILLING = {
    "hcloud": Billing(
        increment=3600,
        month=624,  # 24 hours of 26 days: the monthly price is 624 times the hourly one
        address=Money(amount=Decimal("0.0008"), currency="EUR"),  # 0.50 a month
        disk=Money(amount=Decimal("0.0000917"), currency="EUR"),  # 0.0572 a month, on 2026-05-27
    ),
    "aws": Billing(
        minimum=60,
        address=Money(amount=Decimal("0.005"), currency="USD"),
        disk=Money(amount=Decimal("0.0001304"), currency="USD"),  # 0.0952 a month of 730 hours
    ),
}
