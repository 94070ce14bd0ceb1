"""What the database keeps of tickets and their machines, and the desk that reads it."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from fleet.model.facts import Attempt, Demand
from fleet.model.tickets import Given, Ticket, close
from fleet.schema.rules import SOURCE_CHROOT
from fleet.state.store import Store
from fleet.tickets.desk import StoredTicketDesk
from fleet.tickets.store import DatabaseTickets
from tests.builders import NOW, an_attempt
from tests.builders.ticketing import a_ticket, a_ticket_fleet
from tests.fakes.engine import FixedClock

LATER = NOW + timedelta(minutes=1)


class Counted(DatabaseTickets):
    """Tickets that know how often they were read."""

    reads = 0

    def tickets(self) -> tuple[Ticket, ...]:
        """Return what is open."""
        self.reads += 1
        return super().tickets()


@pytest.fixture
def book(tmp_path: Path) -> DatabaseTickets:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    return DatabaseTickets(store.begin, "tickets")


@pytest.fixture
def desk(book: DatabaseTickets, clock: FixedClock) -> StoredTicketDesk:
    return StoredTicketDesk(a_ticket_fleet(), book, clock)


@pytest.mark.parametrize("told", ["drain", "disable"])
def test_deleted_machine_keeps_tenancy_when_clock_is_ahead(
    told: str, desk: StoredTicketDesk, book: DatabaseTickets
) -> None:
    ahead = NOW + timedelta(minutes=10)
    number = book.open(a_ticket(), most=9, most_of_submitter=9).id
    desk.lease([Given(number, "m1", "powerful", "192.0.2.1", ahead)], NOW)
    book.change(number, lambda ticket: close(ticket, NOW), NOW)

    getattr(desk, told)("m1")

    (tenancy,) = book.tenancies()
    assert tenancy.since == ahead


def test_settle_does_not_read_tickets_again(tmp_path: Path, book: DatabaseTickets) -> None:
    number = book.open(a_ticket(), most=9, most_of_submitter=9).id
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    counted = Counted(store.begin, "tickets")
    desk = StoredTicketDesk(a_ticket_fleet(), counted, FixedClock(NOW))

    desk.read(NOW)
    (ticket,) = desk.settle(NOW, None)
    assert (ticket.id, counted.reads) == (number, 1)
    desk.settle(NOW, None)

    assert counted.reads == 2


def test_oldest_ended_tickets_are_deleted_when_there_are_many(
    desk: StoredTicketDesk, book: DatabaseTickets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.tickets.store._MAX_TICKETS", 3)
    numbers = [book.open(a_ticket(), most=9, most_of_submitter=9).id for _ in range(3)]
    book.change(numbers[0], lambda ticket: close(ticket, NOW), NOW)
    desk.settle(NOW, None)
    kept = book.find(numbers[0])
    book.open(a_ticket(), most=9, most_of_submitter=9)

    desk.settle(NOW, None)

    assert kept is not None
    assert book.find(numbers[0]) is None
    assert [ticket.id for ticket in book.tickets()] == [2, 3, 4]


def test_closed_tickets_record_durations_by_machine_type(
    book: DatabaseTickets, clock: FixedClock
) -> None:
    tries = (made("m1", "ccx33"), made("m2", "ccx63"))
    desk = StoredTicketDesk(a_ticket_fleet(), book, clock, lambda: tries)
    for machine, package, hours in (
        *(("m1", "chromium", 20), ("m1", "chromium", 22), ("m2", "chromium", 3)),
        *(("m2", "hello", 1), ("gone", "chromium", 9), ("m1", "", 9)),
    ):
        had(desk, book, build_of(package), machine, hours)
    book.open(build_of("chromium"), most=9, most_of_submitter=9)

    demand = desk.read(LATER).demand

    assert isinstance(demand, Demand)
    assert [(each.package, each.machine, each.seconds) for each in demand.runs] == [
        ("chromium", "ccx33", (20 * 3600, 22 * 3600)),
        ("chromium", "ccx63", (3 * 3600,)),
    ]


def had(
    desk: StoredTicketDesk, book: DatabaseTickets, ticket: Ticket, machine: str, hours: int
) -> None:
    """Have a ticket had a machine for so long; it says for itself whether it is `built`."""
    number = book.open(ticket, most=9, most_of_submitter=9).id
    desk.lease([Given(number, machine, "powerful", "192.0.2.1", NOW)], NOW)
    end = NOW + timedelta(hours=hours)
    book.change(number, partial(close, now=end, built=ticket.built), end)


def build_of(package: str, chroot: str = "c") -> Ticket:
    """Return a ticket of one sandbox, which may have machines that had others of it."""
    return a_ticket(project="ping", chroot=chroot, package=package, sandbox="ada/ping", built=True)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOW)


def test_tenancy_drains_since_first_drain_of_its_machine(
    desk: StoredTicketDesk, book: DatabaseTickets, clock: FixedClock
) -> None:
    desk.drain("m1")
    clock.moment = LATER
    desk.drain("m1")
    first = [tenancy.since for tenancy in book.tenancies()]

    desk.disable("m1")
    clock.moment = LATER + timedelta(minutes=1)
    desk.drain("m1")

    assert (first, [tenancy.since for tenancy in book.tenancies()]) == ([NOW], [clock.moment])


def test_busy_machine_keeps_its_start_when_it_is_drained(
    desk: StoredTicketDesk, book: DatabaseTickets, clock: FixedClock
) -> None:
    number = book.open(a_ticket(), most=9, most_of_submitter=9).id
    desk.lease([Given(number, "m1", "powerful", "192.0.2.1", NOW)], NOW)
    clock.moment = LATER

    desk.drain("m1")

    assert [(each.since, each.draining) for each in book.tenancies()] == [(NOW, True)]


def test_only_complete_builds_of_closed_tickets_count(
    book: DatabaseTickets, clock: FixedClock
) -> None:
    copr = {"kind": "copr", "url": "https://copr.example", "tickets": "tickets"}
    fleet = a_ticket_fleet(queues={"tickets": {"kind": "tickets"}, "copr": copr})
    desks = [
        StoredTicketDesk(each, book, clock, lambda: (made("m1", "ccx33"),))
        for each in (a_ticket_fleet(), fleet)
    ]
    had(desks[0], book, build_of("chromium", SOURCE_CHROOT), "m1", 1)
    had(desks[0], book, build_of("chromium"), "m1", 5)
    had(desks[0], book, build_of("chromium")._replace(built=False), "m1", 2)
    had(desks[0], book, build_of("chromium", ""), "m1", 3)
    for chroot in ("c", SOURCE_CHROOT, ""):
        book.open(build_of("chromium", chroot), most=9, most_of_submitter=9)

    # Packages of a Copr have the runs of its tickets too.
    for desk in desks:
        demand = desk.read(LATER).demand
        assert isinstance(demand, Demand)
        assert [(each.task, each.seconds) for each in demand.runs] == [
            ("build", (5 * 3600,)),
            ("source", (3600,)),
        ]
        assert [each.task for each in demand.requests] == ["build", "source", ""]


def made(worker: str, kind: str) -> Attempt:
    return an_attempt(pool="powerful", worker=worker, type=kind, image="host-1")
