"""Types of money in a plan, and their formats for people."""

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, PlainSerializer

_PLACES = Decimal("0.0001")


_MOST = Decimal(10) ** 15


def _bounded(amount: Decimal) -> Decimal:
    if not (amount.is_finite() and abs(amount) < _MOST):
        raise ValueError(f"money below {_MOST:,}")
    return amount


@lru_cache(maxsize=10_000)  # many machines, few prices
def _money(amount: Decimal) -> Decimal:
    return _bounded(amount).quantize(_PLACES) + 0  # no negative zero: equal values, equal JSON


@lru_cache(maxsize=10_000)
def _written(amount: Decimal) -> str:
    return format(_money(amount), "f")


Rate = Annotated[
    Decimal,
    AfterValidator(_money),
    PlainSerializer(_written, return_type=str),
]
"""Money per hour in the currency of the plan, four places, a string in JSON."""


@lru_cache(maxsize=10_000)  # many machines, few bills
def _plain(amount: Decimal) -> str:
    return format(amount.normalize() + 0, "f")


Bill = Annotated[Decimal, AfterValidator(_bounded), PlainSerializer(_plain, return_type=str)]
"""Billed money, unrounded, so that parts add up to the total; a string in JSON."""


def rates(amounts: Sequence[Decimal], *, sign: bool = False) -> list[str]:
    """Format amounts of money with equal decimal places: as many as needed, at least two."""
    decimals = max(map(_decimals, amounts), default=2)
    form = f"{'+' if sign else ''}.{decimals}f"
    return [format(amount, form) for amount in amounts]


def rate(amount: Decimal) -> str:
    """Format one amount of money with two to four decimal places."""
    return rates([amount])[0]


def _decimals(amount: Decimal) -> int:
    exponent = amount.normalize().as_tuple().exponent
    return max(2, -exponent) if isinstance(exponent, int) else 2
