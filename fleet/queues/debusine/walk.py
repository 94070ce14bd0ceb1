"""This module walks the list of each scope page by page, all scopes in turn, from its two ends.

The newest come first. Of a list that is too long the rest of the time is for its other end: those
who have waited longest are served before all who came later with as high a priority.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fleet.queues.debusine.rows import Page, Row

OLDEST = "cj0x"
"""The cursor of Django REST framework's that begins at the end of a list: `r=1`, in base64."""


@dataclass
class Walk:
    """How far one scope's list was read; a row that moved to another page counts as last seen."""

    scope: str
    rows: dict[int, Row] = field(default_factory=dict)
    cursor: str | None = None
    asked: set[str | None] = field(default_factory=set)
    done: bool = False
    """Its last page was read, or both ends met."""
    newest: frozenset[int] | None = None
    """What was listed before it turned around; None where it did not."""

    def turn_around(self) -> None:
        """Go on from the other end of the list."""
        if self.newest is None:
            self.newest, self.cursor = frozenset(self.rows), OLDEST

    def take(self, page: Page) -> None:
        """Add a page."""
        self.asked.add(self.cursor)
        self.rows |= {row.id: row for row in page.results}
        if self.newest is None:
            self.cursor = page.cursor()
            self.done = self.cursor is None
        else:
            self.cursor = page.cursor_back()
            # A whole page: those that were made at one time are in no certain order.
            self.done = self.cursor is None or self.newest.issuperset(r.id for r in page.results)


def walk_in_turn(
    scopes: Iterable[str],
    next_page: Callable[[Walk], Page],
    is_over: Callable[[], bool],
    is_late: Callable[[], bool] = lambda: False,
) -> tuple[Walk, ...]:
    """Return how far each scope's list was read until time was over, its first page at least.

    A page of each in turn, so that of every long list both ends are known; what is not at its
    end when it is late goes on from the other one.
    """
    walks = tuple(map(Walk, scopes))
    for walk in walks:
        walk.take(next_page(walk))
    while not (is_over() or all(walk.done for walk in walks)):
        for walk in walks:
            if not (walk.done or is_over()):
                if is_late():
                    walk.turn_around()
                walk.take(next_page(walk))
    return walks
