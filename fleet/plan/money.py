"""This module holds what a plan says of money: rates, how far budgets are used up, the proof."""

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainSerializer

from fleet.facts.values import Value

_PLACES = Decimal("0.0001")
_OFF = Decimal("0.0002")
"""Two figures that are rounded to four places may differ by so much and mean the same."""


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


def _plain(amount: Decimal) -> str:
    return format(amount.normalize(), "f")


Bill = Annotated[Decimal, AfterValidator(_bounded), PlainSerializer(_plain, return_type=str)]
"""Money as it is billed, unrounded, so that parts add up to the whole; a string in JSON."""


def rates(amounts: Sequence[Decimal], *, sign: bool = False) -> list[str]:
    """Return amounts of money with as many places as the finest of them needs, at least two."""
    places = max(map(_places, amounts), default=2)
    form = f"{'+' if sign else ''}.{places}f"
    return [format(amount, form) for amount in amounts]


def rate(amount: Decimal, *, sign: bool = False) -> str:
    """Return one amount of money with two to four places."""
    return rates([amount], sign=sign)[0]


def _places(amount: Decimal) -> int:
    exponent = amount.normalize().as_tuple().exponent
    return max(2, -exponent) if isinstance(exponent, int) else 2


PeriodName = Literal["hour", "day", "month"]
_WHEN: dict[PeriodName, tuple[str, str]] = {
    "hour": ("this hour", "in the next hour"),
    "day": ("today", "tomorrow"),
    "month": ("this month", "next month"),
}


def say_when(period: PeriodName, *, coming: bool) -> str:
    """Return how people say the current or the next hour, day or month."""
    return _WHEN[period][coming]


class BudgetVerdict(Value):
    """How far one budget is used up in one of its periods, this plan counted."""

    budget: str = Field(description="Name under `budgets`, or of the pool whose budget it is.")
    path: tuple[str | int, ...] = Field(description="The key of fleet.yaml that sets the limit.")
    period: PeriodName
    unit: str = Field(description="A currency, or `machine hours`.")
    limit: Rate
    spent: Rate = Field(description="So far in this period.")
    reserved: Rate = Field(description="What existing machines and work are expected to add.")
    planned: Rate = Field(description="What this plan adds.")
    exceeded: bool = Field(False, description="Spent and reserved alone pass the limit already.")
    coming: bool = Field(False, description="It is about the next hour, day or month.")
    known: bool = Field(
        True, description="False: what was spent could not be read, and nothing more is bought."
    )

    @property
    def when(self) -> str:
        """Return which period it is about, the way people say it."""
        return say_when(self.period, coming=self.coming)

    @property
    def left(self) -> Decimal | None:
        """Return what is left after this plan, never less than nothing; None: nobody knows."""
        left = self.limit - self.spent - self.reserved - self.planned
        return max(Decimal(0), left) if self.known else None


class Optimum(Value):
    """What the machines cost that this plan makes for waiting requests, and how good that is.

    `cost` is what these machines are billed until they are deleted after their idle time-out. The
    allocation was chosen by a model: its figures are about all machines that it asks for, before
    guards, with the same requests served.
    """

    cost: Rate = Field(description="The sum of what the machines are billed (`until_idle`).")
    machines: int = Field(0, description="How many machines that is.")
    withheld: int = Field(0, description="How many more a guard keeps back; not in `cost`.")
    assumed: int = Field(
        0, description="Requests they serve that are taken to run for an hour: nothing is known."
    )
    unpriced: int = Field(0, description="Machines whose price nobody knows; each counts as 0.")
    model: Rate | None = Field(None, description="What the allocation costs in the model.")
    bound: Rate = Field(description="No allocation that serves the same requests costs less.")
    relaxed: Rate = Field(description="The bound if parts of machines could be bought (root LP).")
    gap: float = Field(description="(model - bound) / model; 0: proven to be the best.")
    because: str = Field("", description="Where the gap is not 0: what ended the search.")

    @property
    def is_about_cost(self) -> bool:
        """Say whether the model's figures are about the cost that is shown, but for rounding."""
        return not self.withheld and self.model is not None and abs(self.cost - self.model) <= _OFF

    @property
    def is_optimal(self) -> bool:
        """Say whether no other machines could serve the same requests for less."""
        return self.is_about_cost and not self.gap
