"""A desk is told to let machines go, as every registry is."""

from datetime import timedelta
from pathlib import Path

import pytest

from fleet.queues.tickets import TicketDesk
from fleet.store.database import DatabaseStore
from fleet.store.tickets import DatabaseTickets
from fleet.tickets import Given, close
from tests.builders import NOW
from tests.fakes_engine import FixedClock
from tests.ticketing import a_ticket, a_ticket_fleet


@pytest.mark.parametrize("told", ["drain", "disable"])
def test_a_machine_whose_provider_s_clock_is_ahead_is_not_taken_for_a_new_one_once_it_is_let_go(
    told: str, tmp_path: Path
) -> None:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    book = DatabaseTickets(store.begin, "tickets")
    desk = TicketDesk(a_ticket_fleet(), book, FixedClock(NOW))
    ahead = NOW + timedelta(minutes=10)
    number = book.open(a_ticket(), most=9, most_of_submitter=9).id
    desk.lease([Given(number, "m1", "powerful", "192.0.2.1", ahead)], NOW)
    book.change(number, lambda ticket: close(ticket, NOW), NOW)

    getattr(desk, told)("m1")

    (tenancy,) = book.tenancies()
    assert tenancy.since == ahead
