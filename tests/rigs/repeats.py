"""Mark the repeats of a parametrized test as slow."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

Value = TypeVar("Value")


def slow_but(first: Iterable[Value], values: Iterable[Value]) -> list[object]:
    """Return values as parameters; those that are not among the first are marked `slow`."""
    every_day = tuple(first)
    return [
        each if each in every_day else pytest.param(each, marks=pytest.mark.slow)
        for each in values
    ]


def slow_after(count: int, cases: Iterable[Sequence[object]]) -> list[object]:
    """Return cases of several parameters each; those after the first so many are `slow`."""
    return [
        case if number < count else pytest.param(*case, marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
