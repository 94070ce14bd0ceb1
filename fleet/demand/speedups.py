"""This module fits from history how long a package runs on each machine type.

Of each type that has run a task for a package often enough the median run counts: a build that
hung or broke off early does not move it. One type alone says nothing of how fast another is.
"""

from collections import defaultdict
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from fleet.facts import Demand, World

LEAST_RUNS = 3
"""Fewer runs on a machine type are no sample."""
LEAST_TYPES = 2


class Fitted(NamedTuple):
    """What history says of a package on one machine type."""

    type: str
    seconds: int
    """The median run."""
    runs: int


Fits = Mapping[tuple[str, str], tuple[Fitted, ...]]
"""Task and package to what is known of two machine types or more, that with most runs first."""


def fit(world: World) -> Fits:
    """Return what the runs that queues tell of say of each package."""
    runs: defaultdict[tuple[str, str], defaultdict[str, list[int]]]
    runs = defaultdict(lambda: defaultdict(list))
    for reading in world.queues.values():
        for each in reading.demand.runs if isinstance(reading.demand, Demand) else ():
            runs[each.task, each.package][each.machine] += each.seconds
    fits = {about: _of_types(types) for about, types in runs.items()}
    return {about: fitted for about, fitted in fits.items() if len(fitted) >= LEAST_TYPES}


def said_of(fitted: tuple[Fitted, ...]) -> str:
    """Return what a fit rests on, as `fitted from 7 runs on ccx33 and 5 on ccx63`."""
    first, *others = fitted
    said = [f"{first.runs} runs on {first.type}", *(f"{x.runs} on {x.type}" for x in others)]
    return f"fitted from {', '.join(said[:-1])} and {said[-1]}"


def _of_types(types: Mapping[str, list[int]]) -> tuple[Fitted, ...]:
    known = (
        Fitted(name, max(1, round(median(seconds))), len(seconds))
        for name, seconds in types.items()
        if len(seconds) >= LEAST_RUNS
    )
    return tuple(sorted(known, key=lambda each: (-each.runs, each.type)))
