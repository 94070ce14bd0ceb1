"""Machine types and their cost: shipped tables, providers' price lists, billing rules.

A table is loaded at its first use. The first lines of a table name the source and the date of each
column of prices; tools/refresh_catalogue.py writes them. An empty price is unknown.

Prices are net list prices per hour in the provider's currency at its location. A pool's `machine`
may override every figure. The cost of a machine is the sum of the prices of its type, its address
and additional disk; a price in the pool includes all of these.

Cost is computed as a function of time, so that the costs of consecutive periods add up exactly. A
provider bills each step at its start; work is charged in proportion to time.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache, cached_property
from pkgutil import get_data
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fleet.schema.model import (
    Fleet,
    MachineSettings,
    Money,
    Pool,
    Provider,
)
from fleet.schema.pools import Market

if TYPE_CHECKING:
    from fleet.model.facts import PriceList

_Found = TypeVar("_Found")


class Billing(NamedTuple):
    """The billing increments of a provider, and its prices of an address and of disk space."""

    increment: int = 1
    """Length of a billing increment in seconds, counted from the creation of the machine."""
    minimum: int = 0
    """Minimum billed time in seconds."""
    month: int | None = None
    """Maximum billed hours of a machine per calendar month."""
    address: Money | None = None
    """Price per hour of the public IPv4 address of a machine."""
    disk: Money | None = None
    """Price per hour of one GiB of disk beyond the disk of the machine type."""


class KindPrices(NamedTuple):
    """Price rules of a kind of provider, in addition to the table `KIND.csv`."""

    currency: str
    source: str = ""
    """URL of the public price list; empty for invented prices."""
    columns: Mapping[str, str] = MappingProxyType({})
    """Location to its price column; empty if the columns are named like the locations."""
    spot: Decimal | None = None
    """Price on the spot market as a fraction of the price on demand."""
    billing: Billing = Billing()


_KINDS = {
    "hcloud": KindPrices(
        currency="EUR",
        source="https://www.hetzner.com/cloud/ (primary IPv4 and volumes stated apart), "
        "https://docs.hetzner.com/cloud/billing/faq (full hours, up to the monthly price)",
        # All regions of a zone have the same prices.
        columns={
            "fsn1": "fsn1",
            "nbg1": "fsn1",
            "hel1": "fsn1",
            "ash": "ash",
            "hil": "ash",
            "sin": "sin",
        },
        billing=Billing(
            increment=3600,
            month=624,  # 24 hours of 26 days: the monthly price is 624 times the hourly one
            address=Money(amount=Decimal("0.0008"), currency="EUR"),  # 0.50 a month
            disk=Money(amount=Decimal("0.0000917"), currency="EUR"),  # 0.0572/month, 2026-05-27
        ),
    ),
    "aws": KindPrices(
        currency="USD",
        source="https://aws.amazon.com/ec2/pricing/on-demand/ (Linux; seconds, at least 60), "
        "https://aws.amazon.com/vpc/pricing/ (public IPv4), "
        "https://aws.amazon.com/ebs/pricing/ (gp3), https://aws.amazon.com/ec2/spot/pricing/ "
        "(changes all the time; counted near its ceiling, the price on demand)",
        # The spot price varies up to the price on demand. A lower value makes plans prefer spot.
        spot=Decimal("0.99"),
        billing=Billing(
            minimum=60,
            address=Money(amount=Decimal("0.005"), currency="USD"),
            disk=Money(amount=Decimal("0.0001304"), currency="USD"),  # 0.0952 for 730 hours
        ),
    ),
    "sim": KindPrices(currency="EUR"),
}


OLD_AFTER = timedelta(days=90)
"""Age after which the prices of a shipped table or a recorded list count as outdated."""


def source_of(kind: str) -> str:
    """Return the URL of the public price list of a kind; empty if no prices are shipped."""
    return _KINDS[kind].source if kind in _KINDS else ""


def locations_of(kind: str) -> Mapping[str, str]:
    """Map each location of a kind to its price column; empty if both have the same names."""
    return _KINDS[kind].columns if kind in _KINDS else {}


@dataclass(frozen=True)
class MachineType:
    """A machine type: memory and disk in MiB, price per hour in `currency`."""

    name: str
    cores: int
    memory: int
    disk: int
    price: Decimal | None
    currency: str
    architecture: str = "amd64"
    spot: Money | None = None
    """Price per hour on the spot market; None if unknown or if the type is not sold there."""
    extras: tuple[Money, ...] = ()
    """Additional costs of one machine per hour: its address and additional disk."""
    all_in: bool = False
    """True if the pool sets the on-demand price, so that it includes the additional costs."""
    line: str = ""
    """Product line of the provider: shared or dedicated cores, or the family at EC2."""
    speed: int = 0
    """Speed in percent of the default speed; 0 if not stated."""


class PriceTable(NamedTuple):
    """The machine types at one location, with their prices."""

    as_of: str = ""
    """Date of the prices; empty if the location has no prices."""
    source: str = ""
    types: Mapping[str, MachineType] = MappingProxyType({})


def table(kind: str, location: str) -> PriceTable:
    """Return the machine types that a kind of provider sells at a location or region."""
    if kind not in _KINDS:
        return PriceTable()
    return _table(kind, _KINDS[kind].columns.get(location, location))


@cache
def _table(kind: str, column: str) -> PriceTable:
    lines = (get_data(__package__, f"{kind}.csv") or b"").decode().splitlines()
    notes = dict(
        each[2:].split(": ", 1) for each in lines if each.startswith("# ") and ": " in each
    )
    rows = csv.DictReader(each for each in lines if not each.startswith("#"))
    as_of, _, source = notes.get(column, "").partition(" ")
    # A column has prices only if a note in the table states their date.
    types = (_type(kind, row, (as_of and row.get(column)) or None) for row in rows)
    return PriceTable(as_of, source, {each.name: each for each in types})


def _type(kind: str, row: Mapping[str, str], price: str | None) -> MachineType:
    prices = _KINDS[kind]
    known = MachineType(
        name=row["name"],
        cores=int(row["cores"]),
        memory=int(row["memory"]),
        disk=int(row["disk"]),
        price=None if price is None else Decimal(price),
        currency=prices.currency,
        architecture=row["architecture"],
        line=row["class"],
    )
    if prices.spot is None or known.price is None:
        return known
    return replace(known, spot=Money(amount=known.price * prices.spot, currency=known.currency))


class ProviderPrices(NamedTuple):
    """The price list of a provider, and the same prices as a table."""

    prices: "PriceList"
    table: PriceTable


def own_list(declared: Provider | None) -> ProviderPrices | None:
    """Return the price list that a provider reported; None if the provider reported no list."""
    listed = declared.listed if declared else None
    return listed if isinstance(listed, ProviderPrices) else None


GIB_DIGITS = Decimal("0.0000001")
"""Rounding unit of the price per hour of one GiB of disk."""


def billing_of(fleet: Fleet, provider: str) -> Billing:
    """Return the billing rules of a provider; by the second if the provider is unknown."""
    declared = fleet.providers.get(provider)
    if declared is None:
        return Billing()
    if declared.own_billing is not None:
        own = declared.own_billing
        return Billing(
            increment=own.increment,
            minimum=own.minimum or 0,
            month=own.hours_per_month,
            address=own.address,
            disk=own.disk,
        )
    billing = _KINDS[declared.kind].billing if declared.kind in _KINDS else Billing()
    if not (listed := own_list(declared)):
        return billing
    address, disk, currency = listed.prices.address, listed.prices.disk, listed.prices.currency
    hour = (disk / billing.month).quantize(GIB_DIGITS) if disk and billing.month else None
    return billing._replace(
        address=billing.address if address is None else Money(amount=address, currency=currency),
        disk=billing.disk if hour is None else Money(amount=hour, currency=currency),
    )


def type_names(pool: Pool) -> tuple[str, ...]:
    """Return the machine types of a pool in order; empty if the pool states sizes instead."""
    named = pool.machine if isinstance(pool.machine, str) else pool.machine.type
    if named is None:
        return ()
    return (named,) if isinstance(named, str) else tuple(dict.fromkeys(named))


def markets_of(pool: Pool) -> tuple[Market, ...]:
    """Return the markets (spot, on-demand) on which a pool buys machines, in order."""
    if isinstance(pool.machine, str):
        return ("on-demand",)
    return tuple(dict.fromkeys(pool.machine.market))


def find_types(fleet: Fleet, pool: Pool) -> tuple[MachineType, ...]:
    """Return the machine types of a pool with its overrides, in the order of fleet.yaml.

    Unknown types are left out. `price` is None if neither the price list nor the pool has a price.
    """

    def find() -> tuple[MachineType, ...]:
        if isinstance(pool.machine, str):
            known = _find_sold_type(fleet, pool.provider, pool.machine)
            return (known,) if known else ()
        return tuple(_overridden(fleet, pool, pool.machine))

    return _cache_for_machine(fleet, pool, "types", find)


def _cache_for_machine(
    fleet: Fleet, pool: Pool, about: object, find: Callable[[], _Found]
) -> _Found:
    """Return a value that depends only on a pool's `machine`, cached for equal settings."""
    about = about, id(pool.machine), pool.provider, pool.image
    return fleet.cached(about, (pool.machine,), find)


def _overridden(fleet: Fleet, pool: Pool, machine: MachineSettings) -> Iterator[MachineType]:
    image = fleet.images.get(pool.image)
    provider = fleet.providers.get(pool.provider)
    free = Decimal(0) if provider is not None and provider.is_free else None
    for name in type_names(pool) or ("own",):
        known = _find_sold_type(fleet, pool.provider, name) if machine.type else None
        if known is None and None in (machine.cores, machine.memory):
            continue
        price = known.price if known else free
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
            # If no machine type is set, only the image states the architecture.
            architecture=known.architecture if known else image.architecture if image else "amd64",
            spot=known.spot if known else None,
            extras=(*known.extras, *_find_disk_cost(fleet, pool, machine, known)) if known else (),
            all_in=machine.price is not None,
            speed=machine.speed or (known.speed if known else 0),
        )


def _find_disk_cost(
    fleet: Fleet, pool: Pool, machine: MachineSettings, known: MachineType
) -> Iterator[Money]:
    """Yield the prices per hour of disk and swap in excess of the machine type's disk."""
    price = billing_of(fleet, pool.provider).disk
    lacking = (machine.disk or 0) + (machine.swap or 0) - known.disk
    if price is not None and lacking > 0:
        amount = price.amount * lacking / 1024
        yield Money(amount=amount, currency=price.currency)


def price_per_hour(fleet: Fleet, known: MachineType, market: Market) -> Decimal | None:
    """Return the total price per hour in the currency of fleet.yaml; None if unknown."""
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
    """Return the price per hour of a provider's machine type with its address; None if unknown."""
    known = _find_sold_type(fleet, provider, name)
    return None if known is None else price_per_hour(fleet, known, market)


def convert(fleet: Fleet, amount: Decimal, currency: str) -> Decimal | None:
    """Return an amount in the currency of fleet.yaml; None if no exchange rate is set."""
    if currency == fleet.money.currency:
        return amount
    rate = fleet.money.exchange.get(currency)
    return amount * Decimal(str(rate.rate)) if rate else None


def find_type(fleet: Fleet, pool: Pool, name: str) -> MachineType | None:
    """Return a machine type with a pool's overrides, or as its provider sells it, or None."""
    own = (each for each in find_types(fleet, pool) if each.name == name)
    return next(own, None) or _find_sold_type(fleet, pool.provider, name)


def types_named(fleet: Fleet, name: str) -> Iterator[MachineType]:
    """Yield a machine type as each provider sells it, then as each pool overrides it."""
    found = (_find_sold_type(fleet, provider, name) for provider in sorted(fleet.providers))
    yield from (each for each in found if each)
    pools = (pool for _, pool in sorted(fleet.dynamic_pools.items()))
    yield from (each for pool in pools for each in find_types(fleet, pool) if each.name == name)


def known_types(fleet: Fleet, provider: str) -> tuple[str, ...]:
    """Return the names of the machine types that a provider of this fleet sells, sorted."""
    declared = fleet.providers.get(provider)
    return tuple(sorted({*table_of(declared).types, *(declared.own_types if declared else ())}))


def sold_types(fleet: Fleet, provider: str) -> Iterator[MachineType]:
    """Yield the machine types that a provider of this fleet sells, sorted by name."""
    found = (_find_sold_type(fleet, provider, name) for name in known_types(fleet, provider))
    return (each for each in found if each)


def shipped_types(fleet: Fleet, provider: str) -> Mapping[str, MachineType]:
    """Return a provider's own list of types, or else the shipped table, without overrides."""
    return table_of(fleet.providers.get(provider)).types


def _find_sold_type(fleet: Fleet, provider: str, name: str) -> MachineType | None:
    """Return a machine type of a provider; None if the provider does not sell this type."""
    declared = fleet.providers.get(provider)
    if declared is not None and name in declared.own_types:
        sold = declared.own_types[name]
        known = MachineType(
            name=name,
            cores=sold.cores,
            memory=sold.memory,
            disk=sold.disk or 0,
            price=sold.price.amount if sold.price else Decimal(0),
            currency=sold.price.currency if sold.price else fleet.money.currency,
            architecture=sold.architecture,
            spot=sold.spot,
            speed=sold.speed or 0,
        )
    elif listed := table_of(declared).types.get(name):
        known = listed
    else:
        return None
    address = billing_of(fleet, provider).address
    return known if address is None else replace(known, extras=(address,))


def table_of(declared: Provider | None) -> PriceTable:
    """Return the prices at a provider's location: its own list, or else the shipped table."""
    if listed := own_list(declared):
        return listed.table
    return table(declared.kind, declared.price_location) if declared else PriceTable()


_HOUR = 3600
_SECOND = timedelta(seconds=1)
_EXACT = Decimal("0.000000001")


class Tariff(NamedTuple):
    """The price and billing rules of a machine, in the currency of fleet.yaml."""

    price: Decimal
    """Price per hour, including address and disk."""
    increment: int = 1
    """Length of a billing increment in seconds, counted from the creation of the machine."""
    minimum: int = 0
    """Minimum billed time in seconds."""
    cap: Decimal | None = None
    """Maximum cost of a machine per calendar month."""


FREE = Tariff(price=Decimal(0))
"""Tariff of a machine whose price is unknown: cost 0."""
MACHINE_HOURS = Tariff(price=Decimal(1))
"""Tariff whose cost is the number of machine hours: price 1, billed by the second."""


def tariff_of(fleet: Fleet, pool: Pool, kind: str, market: Market) -> Tariff | None:
    """Return the tariff of a machine of this type in a pool; None if its price is unknown."""

    def find() -> Tariff | None:
        for known in find_types(fleet, pool):
            if known.name == kind:
                return _tariff(fleet, pool.provider, price_per_hour(fleet, known, market))
        return tariff_at(fleet, pool.provider, kind, market)

    return _cache_for_machine(fleet, pool, ("tariff", kind, market), find)


def tariff_at(fleet: Fleet, provider: str, kind: str, market: Market) -> Tariff | None:
    """Return the tariff of a machine type without overrides of pools; None if it has no price."""
    return _tariff(fleet, provider, price_of_type(fleet, provider, kind, market))


def tariff_of_machine(
    fleet: Fleet, pool: str, provider: str, kind: str, market: Market
) -> Tariff | None:
    """Return the tariff of a pool's machine, at the provider that bills it; None if unknown.

    fleet.yaml may have no such pool any more, or the pool may have moved to another provider.
    """
    declared = fleet.pools.get(pool)
    if isinstance(declared, Pool) and declared.provider == provider:
        return tariff_of(fleet, declared, kind, market)
    return tariff_at(fleet, provider, kind, market)


def _tariff(fleet: Fleet, provider: str, price: Decimal | None) -> Tariff | None:
    if price is None:
        return None
    billing = billing_of(fleet, provider)
    cap = None if billing.month is None else price * billing.month
    return Tariff(price, billing.increment, billing.minimum, cap)


def bill(tariff: Tariff, seconds: int) -> Decimal:
    """Return the bill of a machine that exists for this number of seconds within a month."""
    return _money(tariff, billed_seconds(tariff, seconds))


def billed_seconds(tariff: Tariff, seconds: int) -> int:
    """Return the number of seconds that a provider bills for a machine of this age."""
    if seconds <= 0:
        return 0
    return -(-max(seconds, tariff.minimum) // tariff.increment) * tariff.increment


def paid_until(tariff: Tariff, created_at: datetime, now: datetime) -> datetime:
    """Return the end of the machine's last billing increment that started before `now`."""
    seconds = max(1, -((created_at - now) // _SECOND))
    return created_at + timedelta(seconds=billed_seconds(tariff, seconds))


@dataclass(frozen=True)
class Life:
    """Calculator of a machine's cost between two times in a calendar month."""

    tariff: Tariff
    created_at: datetime
    month: datetime
    """Start of the calendar month."""

    def billed(self, since: datetime, until: datetime) -> Decimal:
        """Return the amount billed for the increments that start in this period."""
        return self.billed_at(self.age(until)) - self.billed_at(self.age(since))

    def accrued(self, since: datetime, until: datetime) -> Decimal:
        """Return the cost of this period in proportion to time. Work is charged this amount."""
        return self._compute_accrued_cost(until) - self._compute_accrued_cost(since)

    def seconds(self, since: datetime, until: datetime) -> int:
        """Return for how many seconds of this period the machine existed."""
        return self.age(until) - self.age(since)

    def billed_at(self, age: int) -> Decimal:
        """Return the amount billed from the start of the month until this age in seconds."""
        return _money(self.tariff, billed_seconds(self.tariff, age) - self._before)

    def age(self, moment: datetime) -> int:
        """Return the age of the machine in seconds; 0 before its creation."""
        return max(0, (moment - self.created_at) // _SECOND)

    @cached_property
    def _before(self) -> int:
        """Return the number of seconds that were billed before the month."""
        return billed_seconds(self.tariff, self.age(self.month))

    def _compute_accrued_cost(self, until: datetime) -> Decimal:
        return _money(self.tariff, self.age(until) - self.age(self.month))


def _money(tariff: Tariff, seconds: int) -> Decimal:
    money = tariff.price * seconds / _HOUR
    if tariff.cap is not None:
        money = min(money, tariff.cap)
    return money.quantize(_EXACT)
