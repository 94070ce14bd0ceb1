"""This module finds out on which machine types runs were, from the names of their machines.

A name may be given again long after its machine is gone: what was made last under it, before a run
began, is what that ran on. A run on a machine that nobody remembers making is left out.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from fleet.facts import Attempt, TaskRuns

Made = Callable[[], Iterable[Attempt]]
"""Returns the tries to make machines that are remembered, whatever became of them."""
_MADE = ("starting", "registered", "gone", "failed")
"""What a try ends as that made a machine."""
_MOST = 1000
"""Of more runs of a package on a machine type the latest count."""


class Run(NamedTuple):
    """A run that ended, on a machine that is known by its name."""

    task: str
    package: str
    machine: str
    began: datetime
    seconds: int


def by_type(runs: Iterable[Run], attempts: Iterable[Attempt]) -> tuple[TaskRuns, ...]:
    """Return how long runs took, by task, package and machine type."""
    made: defaultdict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for attempt in attempts:
        if attempt.result in _MADE:
            made[attempt.worker].append((attempt.at, attempt.type))
    for each in made.values():
        each.sort()
    found: defaultdict[tuple[str, str, str], list[tuple[datetime, int]]] = defaultdict(list)
    for run in runs:
        number = bisect_right(made.get(run.machine, ()), run.began, key=_moment)
        if number:
            _, kind = made[run.machine][number - 1]
            found[run.task, run.package, kind].append((run.began, run.seconds))
    return tuple(
        TaskRuns(task=task, package=package, machine=kind, seconds=_latest(took))
        for (task, package, kind), took in sorted(found.items())
    )


def _moment(made: tuple[datetime, str]) -> datetime:
    return made[0]


def _latest(took: list[tuple[datetime, int]]) -> tuple[int, ...]:
    return tuple(seconds for _, seconds in sorted(took)[-_MOST:])
