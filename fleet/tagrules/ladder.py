"""This module writes numbers as plain tags, for queues that carry no numbers: a ladder of classes.

A worker provides the tag of every rung that it reaches, a request requires the lowest rung that
is not below its minimum. A minimum that stands on a rung is exact; one between two rungs asks
for more than it needs, never for less.
"""

from collections.abc import Iterable
from decimal import Decimal

from fleet.tagrules.numbers import Numbers

RUNGS: tuple[Decimal, ...] = (Decimal(0), *(Decimal(2**power) for power in range(41)))
"""0, then the powers of two up to above the highest number that a tag may state."""

PREFIX = "worker:class:"
"""Debusine lets only its administrators provide tags that begin like this."""


def ladder(name: str, number: Decimal, rungs: Iterable[Decimal] = RUNGS) -> tuple[str, ...]:
    """Return the tags that a worker with this number provides, lowest first."""
    return tuple(_tag(name, rung) for rung in sorted(set(rungs)) if rung <= number)


def rung_of_minimum(name: str, minimum: Decimal, rungs: Iterable[Decimal] = RUNGS) -> str | None:
    """Return the tag that stands for a minimum; None when it is above the highest rung."""
    above = [rung for rung in rungs if rung >= minimum]
    return _tag(name, min(above)) if above else None


def rungs_for(minimums: Iterable[Numbers]) -> tuple[Decimal, ...]:
    """Return the usual rungs with these minimums among them, so that each of them is exact."""
    asked = {number for numbers in minimums for _, number in numbers}
    return tuple(sorted({*RUNGS, *asked}))


def _tag(name: str, rung: Decimal) -> str:
    return f"{PREFIX}{name}-{rung:f}"
