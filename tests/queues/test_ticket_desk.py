"""A desk is told to let machines go, as every registry is."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fleet.queues.tickets import TicketDesk
from fleet.store.database import DatabaseStore
from fleet.store.tickets import DatabaseTickets
from fleet.tickets import Given, close
from tests.builders import NOW
from tests.ticketing import a_ticket, a_ticket_fleet

LATER = NOW + timedelta(minutes=1)


class Hands:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        """Return what the test said."""
        return self.time


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def book(tmp_path: Path) -> DatabaseTickets:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    return DatabaseTickets(store.begin, "tickets")


@pytest.fixture
def desk(book: DatabaseTickets, clock: Hands) -> TicketDesk:
    return TicketDesk(a_ticket_fleet(), book, clock)


@pytest.mark.parametrize("told", ["drain", "disable"])
def test_a_machine_whose_provider_s_clock_is_ahead_is_not_taken_for_a_new_one_once_it_is_let_go(
    told: str, desk: TicketDesk, book: DatabaseTickets
) -> None:
    ahead = NOW + timedelta(minutes=10)
    number = book.open(a_ticket(), most=9, most_of_submitter=9).id
    desk.lease([Given(number, "m1", "powerful", "192.0.2.1", ahead)], NOW)
    book.change(number, lambda ticket: close(ticket, NOW), NOW)

    getattr(desk, told)("m1")

    (tenancy,) = book.tenancies()
    assert tenancy.since == ahead


def test_a_machine_drains_since_it_was_first_told_to(
    desk: TicketDesk, book: DatabaseTickets, clock: Hands
) -> None:
    desk.drain("m1")
    clock.time = LATER

    desk.drain("m1")

    assert [tenancy.since for tenancy in book.tenancies()] == [NOW]


def test_a_machine_drains_also_where_one_of_its_name_drained_and_was_switched_off(
    desk: TicketDesk, book: DatabaseTickets, clock: Hands
) -> None:
    desk.drain("m1")
    desk.disable("m1")
    clock.time = LATER

    desk.drain("m1")

    assert [tenancy.since for tenancy in book.tenancies()] == [LATER]
