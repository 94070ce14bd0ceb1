"""This module says what a machine is billed: steps of time, a minimum, a cap per month.

Money up to a moment is a function of that moment, so that parts add up to the whole exactly,
however time is cut. A provider bills a step when it begins; work is charged as time passes.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from fleet.catalogue import billing_of, find_types, price_of_type, price_per_hour
from fleet.schema.model import Fleet, Pool
from fleet.schema.pools import Market

_HOUR = 3600
_EXACT = Decimal("0.000000001")


@dataclass(frozen=True)
class Tariff:
    """What one machine costs, in the currency of the file."""

    price: Decimal
    """Per hour, address and disk included."""
    increment: int = 1
    """Seconds that are billed as a whole, from the creation of the machine."""
    minimum: int = 0
    """Seconds that are billed at least."""
    cap: Decimal | None = None
    """What one machine costs at most in a calendar month."""

    def is_by_second_after(self, seconds: int) -> bool:
        """Say whether every second after so many is billed alike."""
        return self.increment == 1 and self.minimum <= seconds and self.cap is None


MACHINE_HOURS = Tariff(price=Decimal(1))
"""What counts machine hours: one an hour, by the second."""


def tariff_of(fleet: Fleet, pool: Pool, kind: str, market: Market) -> Tariff | None:
    """Return what a pool's machine of this type costs; None where nobody knows its price."""
    for known in find_types(fleet, pool):
        if known.name == kind:
            return _tariff(fleet, pool.provider, price_per_hour(fleet, known, market))
    return tariff_at(fleet, pool.provider, kind, market)


def tariff_at(fleet: Fleet, provider: str, kind: str, market: Market) -> Tariff | None:
    """Return what a provider's machine of this type costs, whatever pool it was made for."""
    return _tariff(fleet, provider, price_of_type(fleet, provider, kind, market))


def _tariff(fleet: Fleet, provider: str, price: Decimal | None) -> Tariff | None:
    if price is None:
        return None
    billing = billing_of(fleet, provider)
    cap = None if billing.month is None else price * billing.month
    return Tariff(price, billing.increment, billing.minimum, cap)


def bill(tariff: Tariff, seconds: int) -> Decimal:
    """Return what a machine that exists for so long within one month is billed."""
    return _money(tariff, billed_seconds(tariff, seconds))


def billed_seconds(tariff: Tariff, seconds: int) -> int:
    """Return the seconds that are billed to a machine that exists for so long."""
    if seconds <= 0:
        return 0
    return _steps(max(seconds, tariff.minimum), tariff.increment)


def paid_until(tariff: Tariff, created_at: datetime, now: datetime) -> datetime:
    """Return until when a machine is paid for that exists from its creation to now."""
    seconds = max(1, -((created_at - now) // timedelta(seconds=1)))
    return created_at + timedelta(seconds=billed_seconds(tariff, seconds))


@dataclass(frozen=True)
class Life:
    """One machine from its creation on, and what it costs between two moments of one month."""

    tariff: Tariff
    created_at: datetime
    month: datetime
    """When the month began."""

    def billed(self, since: datetime, until: datetime) -> Decimal:
        """Return what its provider bills for the steps that begin in this time."""
        return self._billed(until) - self._billed(since)

    def accrued(self, since: datetime, until: datetime) -> Decimal:
        """Return what this time costs, as it passes: who works in it pays that."""
        return self._accrued(until) - self._accrued(since)

    def seconds(self, since: datetime, until: datetime) -> int:
        """Return how many seconds of this time the machine existed."""
        return self._age(until) - self._age(since)

    def _billed(self, until: datetime) -> Decimal:
        before = billed_seconds(self.tariff, self._age(self.month))
        return _money(self.tariff, billed_seconds(self.tariff, self._age(until)) - before)

    def _accrued(self, until: datetime) -> Decimal:
        return _money(self.tariff, self._age(until) - self._age(self.month))

    def _age(self, moment: datetime) -> int:
        return max(0, (moment - self.created_at) // timedelta(seconds=1))


def _steps(seconds: int, step: int) -> int:
    return -(-seconds // step) * step


def _money(tariff: Tariff, seconds: int) -> Decimal:
    money = tariff.price * seconds / _HOUR
    if tariff.cap is not None:
        money = min(money, tariff.cap)
    return money.quantize(_EXACT)
