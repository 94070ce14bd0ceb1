"""Run the service of tickets inside a test, without the loop beside it."""

from datetime import timedelta
from pathlib import Path
from typing import Self

from fleet.model.tickets import Given, fail
from fleet.schema.model import Fleet
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from fleet.tickets.service import TicketCalls
from fleet.tickets.store import DatabaseTickets
from fleet.tickets.xml_rpc import XmlRpcServer
from tests.builders import NOW
from tests.builders.ticketing import a_ticket_fleet
from tests.fakes.engine import FixedClock
from tests.rigs.resalloc_client import OldClient

TOKENS = {"copr": "a-token-of-copr-invented", "packit": "a-token-of-packit-invented"}


class TicketService:
    """A service over a store of its own; `rung` counts how often the loop would be woken."""

    def __init__(self, folder: Path, fleet: Fleet | None = None, *, named: bool = False) -> None:
        store = Store(sqlite_url(folder / "store.db"), "debian-ci")
        store.init()
        self.fleet = fleet or a_ticket_fleet()
        self.book = DatabaseTickets(store.begin, "tickets")
        self.clock = FixedClock(NOW)
        self.rung = 0
        self.calls = TicketCalls("tickets", self.book, self.clock, lambda: self.fleet, self._ring)
        tokens = TOKENS if named else None
        self._server = XmlRpcServer(("127.0.0.1", 0), self.calls.answer, tokens=tokens)
        self.url = self._server.url
        self.client = OldClient(self.url)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *reason: object) -> None:
        self.calls.end()
        self._server.__exit__(*reason)

    def of(self, name: str) -> OldClient:
        """Return a client that names itself by its token."""
        return OldClient(self.url.replace("//", f"//{name}:{TOKENS[name]}@"))

    def give(self, number: int, machine: str = "m1", answer: str = "192.0.2.1") -> None:
        """Give a machine to a ticket, as a run does, and tell who waits."""
        now = self.clock.now()
        self.book.lease([Given(number, machine, "powerful", answer, now)], now)
        self.calls.tell()

    def lose(self, number: int) -> None:
        """Have the machine of a ticket be gone."""
        now = self.clock.now()
        self.book.change(number, lambda each: fail(each, "its machine m1 is gone", now), now)

    def later(self, **time: int) -> None:
        """Have time pass."""
        self.clock.moment += timedelta(**time)

    def _ring(self) -> None:
        self.rung += 1
