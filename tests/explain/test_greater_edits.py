"""Of two suggestions for the same keys, one that raises them further is left out."""

from decimal import Decimal

import pytest

from fleet.explain.edits import Edit
from fleet.explain.search import Remedy, without_greater
from fleet.explain.values import Suggestion
from fleet.schema.units import Money

MAX, BUDGET = ("pools", "std", "workers", "max"), ("budgets", "all", "per_day")
LESS = (6, "16.05")


def a_remedy(most: int, budget: str, harms: tuple[str, ...] = ()) -> Remedy:
    edits = (Edit(MAX, most), Edit(BUDGET, Money(amount=Decimal(budget), currency="EUR")))
    return Remedy(Suggestion(sentence="", harms=harms), edits)


@pytest.mark.parametrize(
    ("other", "is_kept"),
    [
        ((6, "17.05"), False),
        ((7, "16.05"), False),
        ((5, "17.05"), True),
        (LESS, True),
    ],
)
def test_greater_edit_is_left_out_when_a_smaller_one_is_enough(
    other: tuple[int, str], *, is_kept: bool
) -> None:
    less, more = a_remedy(*LESS), a_remedy(*other)

    assert without_greater([more, less]) == ([more, less] if is_kept else [less])


def test_greater_edit_is_kept_when_it_does_less_harm() -> None:
    less, more = a_remedy(*LESS, ("debian/5",)), a_remedy(6, "17.05")

    assert without_greater([more, less]) == [more, less]
