"""This module carries out deliveries of rules: tried first, changed then, read back last."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fleet.errors import PlanRefused, SourceUnreachable
from fleet.exports.delivering import Delivery


class Counted(Protocol):
    """How many entries a post changes."""

    @property
    def updated(self) -> int:
        """Return how many get another content."""

    @property
    def removed(self) -> int:
        """Return how many are deleted."""

    @property
    def unchanged(self) -> int:
        """Return how many stay."""


class RuleBook(Protocol):
    """Where entries of rules are kept, by place; each raises SourceUnreachable where it fails."""

    def stored(self, place: str) -> list[dict[str, Any]]:
        """Return all entries just as they are stored."""

    def post(self, place: str, entries: Sequence[dict[str, Any]], *, dry_run: bool) -> Counted:
        """Replace all entries, or say what that would change."""


@dataclass(frozen=True)
class Delivered:
    """What became of the deliveries: lines of what was done, and why one failed."""

    done: tuple[str, ...]
    failed: str = ""

    @property
    def exit_code(self) -> int:
        """Return 0 done, 1 failed, 5 partly done."""
        return (5 if self.done else 1) if self.failed else 0


def deliver(deliveries: Sequence[tuple[RuleBook, Delivery]]) -> Delivered:
    """Write what differs; PlanRefused before the first change where the server disagrees."""
    due = [(book, delivery) for book, delivery in deliveries if not delivery.is_empty]
    for book, delivery in due:
        _check(delivery, book.post(delivery.place, delivery.to_post(), dry_run=True))
    done: list[str] = []
    for book, delivery in due:
        try:
            book.post(delivery.place, delivery.to_post(), dry_run=False)
            _read_back(book, delivery)
        except SourceUnreachable as error:
            return Delivered(tuple(done), str(error))
        done.append(f"{delivery.place}: {delivery.added} added, {delivery.deleted} deleted")
    return Delivered(tuple(done))


def _check(delivery: Delivery, counted: Counted) -> None:
    """Refuse where the server would change entries that fleet did not write."""
    own = len(delivery.held) - len(delivery.others)
    kept = len(delivery.others) + delivery.kept
    changed = counted.removed + counted.updated
    if counted.unchanged != kept or changed != own - delivery.kept:
        raise PlanRefused(
            f"refused, nothing was changed: {delivery.place}: the server would change {changed} "
            f"entries, of which fleet wrote {own - delivery.kept}: somebody changed its task "
            "configuration meanwhile; run this again"
        )


def _read_back(book: RuleBook, delivery: Delivery) -> None:
    now = Delivery(delivery.place, delivery.path, book.stored(delivery.place), delivery.entries)
    if not now.is_empty or any(entry not in now.others for entry in delivery.others):
        raise SourceUnreachable(
            f"{delivery.place}: the entries read back differ from those written: somebody changed "
            "the task configuration at the same time; see `fleet export debusine --diff`"
        )
