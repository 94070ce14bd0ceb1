"""Mark the repeats of a parametrized test as slow."""

from collections.abc import Iterable
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
