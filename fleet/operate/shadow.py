"""This module repeats the tickets of a Resalloc at a queue of ours."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Protocol

from fleet.shadow import Seen, SeenTicket
from fleet.tickets import Ticket, TicketState, close
from fleet.tickets.resalloc import read_sandbox


class Book(Protocol):
    """The tickets of a queue of ours."""

    def open(self, ticket: Ticket, *, most: int, most_of_submitter: int) -> Ticket:
        """Add a ticket and return it with its id."""

    def change(
        self, number: int, step: Callable[[Ticket], Ticket], now: datetime
    ) -> Ticket | None:
        """Take a step with a ticket."""

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the open tickets."""


class Mirror:
    """A queue of ours that holds just the tickets that are open at a Resalloc.

    What an earlier mirror left open is closed: nobody knows whose it was.
    """

    def __init__(self, book: Book, *, most: int) -> None:
        self._book = book
        self._most = most
        self._own: dict[int, int] = {}
        """Ticket of Resalloc to that of ours."""
        self._is_fresh = False

    def follow(self, seen: Seen, now: datetime) -> int:
        """Open what was opened there, close what ended there, and return how many are new."""
        if not self._is_fresh:
            for left in self._book.tickets():
                self._close(left.id, now)
            self._is_fresh = True
        new = [ticket for ticket in seen.tickets if ticket.id not in self._own]
        for number in self._own.keys() - {ticket.id for ticket in seen.tickets}:
            self._close(self._own.pop(number), now)
        there = {ticket.id for ticket in self._book.tickets()}
        for ticket in seen.tickets:
            # Where a machine of ours broke, its ticket has failed here, and waits on there.
            if self._own.get(ticket.id) not in there:
                self._own[ticket.id] = self._open(ticket, now)
        return len(new)

    def waiting(self) -> int:
        """Return how many tickets have no machine of ours yet."""
        return sum(ticket.state is TicketState.WAITING for ticket in self._book.tickets())

    def _open(self, seen: SeenTicket, now: datetime) -> int:
        owner, _, submitter = read_sandbox(seen.sandbox) or ("", "", "")
        ticket = Ticket(
            0,
            tuple(sorted(set(seen.tags))),
            opened_at=now,
            heard_at=now,
            submitter=submitter,
            owner=owner,
            sandbox=seen.sandbox,
        )
        return self._book.open(ticket, most=self._most, most_of_submitter=self._most).id

    def _close(self, number: int, now: datetime) -> None:
        self._book.change(number, partial(close, now=now), now)
