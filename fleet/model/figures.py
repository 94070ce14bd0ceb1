"""Amounts that may be unknown: an amount, or the reason why it is unknown."""

from decimal import Decimal

from fleet.model.money import Rate
from fleet.model.values import ForPeople, Value


class UnknownFigure(Value):
    """An amount that is unknown."""

    unknown: ForPeople


Figure = Rate | UnknownFigure
"""An amount; never 0 in place of an unknown one."""


def amount_of(figure: Figure | None) -> Decimal | None:
    """Return an amount; None if it is unknown."""
    return figure if isinstance(figure, Decimal) else None
