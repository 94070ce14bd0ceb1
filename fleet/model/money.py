"""The types of money in a plan, and their text formats.

An amount may be unknown: it is then the reason why, never zero.
"""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, PlainSerializer

from fleet.model.values import ForPeople, Value

_PLACES = Decimal("0.0001")


_MAX_AMOUNT = Decimal(10) ** 15


def _require_bounds(amount: Decimal) -> Decimal:
    if not (amount.is_finite() and abs(amount) < _MAX_AMOUNT):
        raise ValueError(f"money below {_MAX_AMOUNT:,}")
    return amount


@lru_cache(maxsize=10_000)  # many machines have few different prices
def as_rate(amount: Decimal) -> Decimal:
    """Round money per hour to four decimal places, so that displayed sums add up exactly."""
    return (
        _require_bounds(amount).quantize(_PLACES) + 0
    )  # + 0 avoids a negative zero: equal values have equal JSON


@lru_cache(maxsize=10_000)
def _format_amount(amount: Decimal) -> str:
    return format(as_rate(amount), "f")


Rate = Annotated[
    Decimal,
    AfterValidator(as_rate),
    PlainSerializer(_format_amount, return_type=str),
]
"""Money per hour in the currency of the plan, with four decimal places; a string in JSON."""


@lru_cache(maxsize=10_000)  # many machines have few different bills
def _plain(amount: Decimal) -> str:
    return format(amount.normalize() + 0, "f")


Bill = Annotated[
    Decimal, AfterValidator(_require_bounds), PlainSerializer(_plain, return_type=str)
]
"""Billed money, not rounded, so that parts add up to the total; a string in JSON."""


def rates(amounts: Sequence[Decimal], *, sign: bool = False) -> list[str]:
    """Format amounts with the same number of decimal places: as many as needed, at least two."""
    decimals = max(map(_decimals, amounts), default=2)
    form = f"{'+' if sign else ''}.{decimals}f"
    return [format(amount, form) for amount in amounts]


def rate(amount: Decimal) -> str:
    """Format an amount with as many decimal places as needed, at least two."""
    return rates([amount])[0]


def _decimals(amount: Decimal) -> int:
    exponent = amount.normalize().as_tuple().exponent
    return max(2, -exponent) if isinstance(exponent, int) else 2


CENT = Decimal("0.01")


def in_cents(amounts: Sequence[Decimal]) -> list[Decimal]:
    """Round amounts to cents in such a way that they add up to the rounded total."""
    total = sum(amounts, Decimal(0)).quantize(CENT, ROUND_HALF_EVEN)
    cents = [amount.quantize(CENT, ROUND_FLOOR) for amount in amounts]
    left = int((total - sum(cents, Decimal(0))) / CENT)
    by_rest = sorted(range(len(cents)), key=lambda nth: (cents[nth] - amounts[nth], nth))
    for nth in by_rest[: max(0, left)]:
        cents[nth] += CENT
    return cents


class UnknownFigure(Value):
    """The reason why an amount is unknown."""

    unknown: ForPeople


Figure = Rate | UnknownFigure
"""An amount of money, or the reason why the amount is unknown; 0 never means unknown."""


def amount_of(figure: Figure | None) -> Decimal | None:
    """Return the amount of a figure; None if the amount is unknown."""
    return figure if isinstance(figure, Decimal) else None
