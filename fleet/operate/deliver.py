"""This module carries out deliveries of rules: tried, tried again and changed, read back."""

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
        _try(book, delivery)
    done: list[str] = []
    for book, delivery in due:
        try:
            # Tried again: others were written since, and a post replaces what somebody pushed.
            _try(book, delivery)
            counted = book.post(delivery.place, delivery.to_post(), dry_run=False)
        except SourceUnreachable as error:
            return Delivered(tuple(done), str(error))
        except PlanRefused as error:
            if not done:
                raise
            return Delivered(tuple(done), str(error))
        done.append(f"{delivery.place}: {delivery.said}")
        try:
            _check_done(delivery, counted)
            _read_back(book, delivery)
        except SourceUnreachable as error:
            return Delivered(tuple(done), str(error))
    return Delivered(tuple(done))


def _try(book: RuleBook, delivery: Delivery) -> None:
    """Refuse where the server would change entries that fleet did not write."""
    counted = book.post(delivery.place, delivery.to_post(), dry_run=True)
    if _strange(delivery, counted):
        raise PlanRefused(
            f"refused, nothing was changed at {delivery.place}: the server would change "
            f"{_strange(delivery, counted)}: somebody changed its task configuration meanwhile; "
            "run this again"
        )


def _check_done(delivery: Delivery, counted: Counted) -> None:
    """Raise SourceUnreachable where the server changed entries that fleet did not write."""
    if _strange(delivery, counted):
        raise SourceUnreachable(
            f"{delivery.place}: the server changed {_strange(delivery, counted)}: what somebody "
            "pushed at the same moment may be lost; let them push it again"
        )


def _strange(delivery: Delivery, counted: Counted) -> str:
    """Return what a server changes where that is not what a delivery changes; else nothing."""
    own = len(delivery.held) - len(delivery.others) - delivery.kept
    changed = counted.removed + counted.updated
    if changed == own and counted.unchanged == len(delivery.others) + delivery.kept:
        return ""
    return f"{changed} of its entries, of which fleet wrote {own}"


def _read_back(book: RuleBook, delivery: Delivery) -> None:
    now = Delivery(delivery.place, delivery.path, book.stored(delivery.place), delivery.entries)
    if not now.is_empty or any(entry not in now.others for entry in delivery.others):
        raise SourceUnreachable(
            f"{delivery.place}: the entries read back differ from those written: somebody changed "
            "the task configuration at the same time; see `fleet export debusine --diff`"
        )
