"""Amounts of money that may be unknown: an amount, or the reason why the amount is unknown."""

from decimal import Decimal

from fleet.model.money import Rate
from fleet.model.values import ForPeople, Value


class UnknownFigure(Value):
    """The reason why an amount is unknown."""

    unknown: ForPeople


Figure = Rate | UnknownFigure
"""An amount of money, or the reason why the amount is unknown; 0 never means unknown."""


def amount_of(figure: Figure | None) -> Decimal | None:
    """Return the amount of a figure; None if the amount is unknown."""
    return figure if isinstance(figure, Decimal) else None
