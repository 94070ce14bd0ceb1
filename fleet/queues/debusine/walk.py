"""This module walks the list of each scope, page by page and newest first, all scopes in turn."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fleet.queues.debusine.rows import Page, Row


@dataclass
class Walk:
    """How far one scope's list was read; a row that moved to a later page counts as last seen."""

    scope: str
    rows: dict[int, Row] = field(default_factory=dict)
    cursor: str | None = None
    asked: set[str | None] = field(default_factory=set)
    done: bool = False
    """Its last page was read."""

    def take(self, page: Page) -> None:
        """Add a page."""
        self.asked.add(self.cursor)
        self.rows |= {row.id: row for row in page.results}
        self.cursor = page.cursor()
        self.done = self.cursor is None


def walk_in_turn(
    scopes: Iterable[str], next_page: Callable[[Walk], Page], is_over: Callable[[], bool]
) -> tuple[Walk, ...]:
    """Return how far each scope's list was read until time was over, its first page at least.

    A page of each in turn, so that of every long list the newest part is known.
    """
    walks = tuple(map(Walk, scopes))
    for walk in walks:
        walk.take(next_page(walk))
    while not (is_over() or all(walk.done for walk in walks)):
        for walk in walks:
            if not (walk.done or is_over()):
                walk.take(next_page(walk))
    return walks
