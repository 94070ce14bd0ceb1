"""This module names who carries out the work on several pools: one by one, or several at once."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from fleet.plan.outcome import StackOutcome


class Task(NamedTuple):
    """Work on one pool, or on one machine."""

    what: str
    """The pool's name, or what is done to a machine: one of that name goes on at a time."""
    provider: str
    machines: Collection[str]
    """Those that it makes, deletes or cleans."""
    work: Callable[[], StackOutcome | None]
    """Returns None where nothing was begun, or nothing is to be told of it."""


class Crew(Protocol):
    """Carries out tasks."""

    def run(self, tasks: Sequence[Task]) -> None:
        """Carry out tasks; one that takes long may go on after this returns.

        What is under way is not begun again.
        """

    @property
    def under_way(self) -> Mapping[str, Collection[str]]:
        """Return what went on when this run began, or goes on now, with its machines."""

    def ended(self) -> Sequence[StackOutcome]:
        """Return what became of the tasks that have ended, each once; also of earlier runs'."""


class OneByOne:
    """Carries out each task to its end, in their order."""

    def __init__(self) -> None:
        self.under_way: Mapping[str, Collection[str]] = {}
        self._ended: list[StackOutcome] = []

    def run(self, tasks: Sequence[Task]) -> None:
        """Carry out tasks."""
        self._ended += [outcome for task in tasks if (outcome := task.work())]

    def ended(self) -> Sequence[StackOutcome]:
        """Return what became of them."""
        ended, self._ended = self._ended, []
        return ended
