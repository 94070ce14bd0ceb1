"""This module says what was spent: charges by pool and payer, and the ledger that adds them up."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field, PlainSerializer

from fleet.facts.values import Moment, Tags, Value

Cents = Annotated[Decimal, PlainSerializer(lambda amount: format(amount, "f"), return_type=str)]
"""An exact amount of money in the currency of the file; text in JSON."""


class Charge(Value):
    """Machine time and money of one pool and payer, in the current hour, day and month."""

    pool: str
    scope: str | None = Field(None, description="None: boot and idle time, which the pool pays.")
    team: str | None = None
    owner: str | None = None
    tags: Tags = Field((), description="Tags that the work it was charged for required.")
    seconds: tuple[int, int, int] = Field(
        description="Machine seconds in the current hour, day and month."
    )
    money: tuple[Cents, Cents, Cents] = Field(
        description="Money in the current hour, day and month."
    )


class Entry(Value):
    """Machine time and money of one pool and payer in one hour, to be added to the ledger."""

    hour: Moment = Field(description="When the hour of `money.time_zone` began.")
    pool: str
    scope: str | None = Field(None, description="None: boot and idle time, which the pool pays.")
    team: str | None = None
    owner: str | None = None
    tags: Tags = ()
    seconds: int
    money: Cents


class Ledger(Value):
    """What was spent in the current calendar hour, day and month of `money.time_zone`."""

    charged_until: Moment | None = Field(
        None, description="When machines were last charged; None: never."
    )
    charges: tuple[Charge, ...] = ()
