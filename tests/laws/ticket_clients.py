"""`fleet serve` over the tickets of a farm: it is killed, and finds no store."""

from collections.abc import Callable
from datetime import datetime
from xmlrpc.client import Fault

from fleet.errors import StoreFailed
from fleet.model.tickets import Ticket, expire
from fleet.tickets.service import TicketCalls
from tests.fakes.engine import Killed
from tests.laws.ticket_farm import TicketFarm


class Book:
    """The tickets of a farm as a service keeps them; it may die of writing one down."""

    def __init__(self, farm: TicketFarm) -> None:
        self._farm = farm
        self.is_away = False
        self.kills = False

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the open tickets."""
        self._reach()
        return self._farm.desk.tickets()

    def open(
        self, ticket: Ticket, *, most: int, most_of_submitter: int, most_of_address: int
    ) -> Ticket:
        """Open a ticket; here there is room for all."""
        del most, most_of_submitter, most_of_address
        self._reach()
        number = self._farm.desk.open(ticket)
        self._die()
        return self._farm.desk.all[number]

    def change(
        self, number: int, step: Callable[[Ticket], Ticket], now: datetime
    ) -> Ticket | None:
        """Take a step with a ticket."""
        self._reach()
        if number not in self._farm.desk.all:
            return None
        self._farm.desk.change(number, step, now)
        self._die()
        return self._farm.desk.all[number]

    def _reach(self) -> None:
        if self.is_away:
            raise StoreFailed("the store does not answer")

    def _die(self) -> None:
        if self.kills:
            raise Killed


class Service:
    """What clients call, started again whenever it was killed; `known` is what they were told."""

    def __init__(self, farm: TicketFarm) -> None:
        self._farm = farm
        self._book = Book(farm)
        self._start()
        self.known: set[int] = set()

    def take(self, name: str, place: str, tags: tuple[str, ...], fate: str) -> None:
        """Take a ticket; a client that is not answered does not know of it."""
        there = len(self._farm.desk.all)
        sandbox = f"{name}/{place}--{name}" if place else ""
        number = self._call(fate, "takeTicket", [*tags], sandbox)
        if isinstance(number, int):
            self.known.add(number)
        assert len(self._farm.desk.all) == there + (fate != "no store")

    def close(self, number: int, fate: str) -> None:
        """Close a ticket, again where the answer was lost."""
        # It may have expired since anybody looked.
        was_open = expire(self._farm.desk.all[number], self._farm.now).is_open
        answer = self._call(fate, "closeTicket", number)
        assert answer in (was_open, None)
        if answer is None:
            # It may have been killed before it was closed, or after.
            assert self._call("answered", "closeTicket", number) in (was_open, False)
        assert not self._farm.desk.all[number].is_open

    def collect(self, number: int) -> object:
        """Return what is told of a ticket, which is the same from a service that starts now."""
        told = self._call("answered", "collectTicket", number)
        self._start()
        assert self._call("answered", "collectTicket", number) == told
        return told

    def _call(self, fate: str, name: str, *arguments: object) -> object:
        """Return the answer to a call; None where there is none."""
        self._book.is_away, self._book.kills = fate == "no store", fate == "killed"
        try:
            return self._calls.answer("anybody", name, arguments)
        except Killed:
            self._book.kills = False
            self._start()
            return None
        except Fault:
            if not self._book.is_away:
                raise
            return None

    def _start(self) -> None:
        farm = self._farm
        self._calls = TicketCalls("tickets", self._book, _Clock(farm), lambda: farm.fleet, _ring)


class _Clock:
    """The time of a farm."""

    def __init__(self, farm: TicketFarm) -> None:
        self._farm = farm

    def now(self) -> datetime:
        """Return what time it is there."""
        return self._farm.now


def _ring() -> None:
    """Wake nobody: a rule says when is applied."""
