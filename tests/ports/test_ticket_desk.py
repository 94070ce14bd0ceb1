"""The contract of TicketDesk: a ticket has one machine, a machine one ticket at a time."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from fleet.model.facts import Demand, Worker, WorkerState
from fleet.model.tickets import Given, Leased, Ticket, close, hear
from fleet.ports import TicketDesk
from fleet.state.store import Store
from fleet.tickets.desk import StoredTicketDesk
from fleet.tickets.store import DatabaseTickets
from tests.builders import NOW, ago
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket, a_ticket_fleet
from tests.fakes.engine import FixedClock
from tests.fakes.ticket_desk import FakeTicketDesk
from tests.ports.stores import postgres_store, postgres_url

__all__ = ["postgres_store", "postgres_url"]

FLEET = a_ticket_fleet()
LATER = NOW + timedelta(minutes=1)


class Client(Protocol):
    """What clients do meanwhile."""

    def open(self, ticket: Ticket) -> int: ...

    def change(self, number: int, step: Callable[[Ticket], Ticket], now: datetime) -> object: ...


class _Tickets:
    def __init__(self, book: DatabaseTickets) -> None:
        self.change = book.change
        self._book = book

    def open(self, ticket: Ticket) -> int:
        return self._book.open(ticket, most=100, most_of_submitter=100).id


class Place:
    """A desk, and its clients."""

    def __init__(self, desk: TicketDesk, client: Client) -> None:
        self.desk = desk
        self._client = client
        self.open = client.open

    def hears(self, number: int, now: datetime) -> None:
        self._client.change(number, lambda ticket: hear(ticket, now), now)

    def close(self, number: int, now: datetime = NOW) -> None:
        self._client.change(number, lambda ticket: close(ticket, now), now)

    def lease(
        self,
        number: int,
        machine: str = "m1",
        now: datetime = NOW,
        **said: Any,  # noqa: ANN401 - fields of Given
    ) -> Leased:
        given = Given(number, machine, "powerful", "192.0.2.1", ago(hours=1))
        return self.desk.lease([replace(given, **said)], now)

    def lend_once(self) -> None:
        """Have a ticket of sandbox s get machine m1, and give it back."""
        number = self.open(a_ticket(sandbox="s"))
        self.lease(number)
        self.close(number)

    def workers(self, now: datetime = NOW) -> tuple[Worker, ...]:
        workers = self.desk.read(now).workers
        assert isinstance(workers, tuple)
        return workers

    def worker(self, now: datetime = NOW) -> Worker:
        (worker,) = self.workers(now)
        return worker

    def waiting(self, now: datetime = NOW) -> list[int]:
        demand = self.desk.read(now).demand
        assert isinstance(demand, Demand)
        return [int(request.id) for request in demand.requests]


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "fake":
        fake = FakeTicketDesk(FLEET)
        return Place(fake, fake)
    if request.param == "sqlite":
        store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
        store.init()
    else:
        store = request.getfixturevalue("postgres_store")
    book = DatabaseTickets(store.begin, "tickets")
    return Place(StoredTicketDesk(FLEET, book, FixedClock(NOW)), _Tickets(book))


def test_open_ticket_is_demand_and_round_trips(place: Place) -> None:
    said = {"tags": ("arch_x86_64", "extra_powerful"), "team": "core", "sandbox": "s"}
    asked = a_ticket(1, priority=-3, background=True, lease=60, heard_at=NOW, **said)

    number = place.open(asked)

    assert (place.waiting(), place.workers()) == ([number], ())
    assert place.desk.settle(NOW, None) == (asked,)


def test_ticket_ids_increase_and_are_never_reused(place: Place) -> None:
    first = place.open(a_ticket())
    place.close(first)
    place.desk.settle(NOW + timedelta(days=400), frozenset())

    assert place.open(a_ticket()) == first + 1


def test_leased_ticket_is_ready_and_its_worker_busy(place: Place) -> None:
    number = place.open(a_ticket(sandbox="s"))
    tags = ("arch_x86_64", "extra_powerful")

    assert place.lease(number, tags=tags).tickets == (number,)
    assert place.lease(number, "m2").tickets == ()

    (ticket,) = place.desk.settle(NOW, None)
    worker = place.worker()
    assert (ticket.machine, ticket.answer) == ("m1", "192.0.2.1")
    assert (worker.name, worker.state, worker.pool) == ("m1", WorkerState.BUSY, "powerful")
    assert worker.work is not None
    assert (worker.running, worker.work.required) == (str(number), tags)
    assert (place.waiting(), place.desk.released()) == ([], ())


def test_ticket_closed_meanwhile_gets_no_machine(place: Place) -> None:
    number = place.open(a_ticket())
    assert place.waiting() == [number]
    place.close(number)

    before = place.lease(number).tickets
    place.desk.settle(NOW, None)

    assert before == place.lease(number).tickets == ()
    assert (place.waiting(), place.workers()) == ([], ())


def test_ticket_is_kept_when_client_was_heard_meanwhile(place: Place) -> None:
    number = place.open(a_ticket(lease=60, heard_at=NOW))
    place.desk.read(LATER)
    place.hears(number, LATER)

    place.desk.settle(LATER, None)

    assert place.waiting(LATER) == [number]


def test_closed_ticket_releases_its_machine_in_its_sandbox(place: Place) -> None:
    number = place.open(a_ticket(sandbox="s", team="blue"))
    place.lease(number)

    place.close(number, LATER)

    worker = place.worker(LATER + timedelta(minutes=1))
    assert (worker.state, worker.since, worker.draining) == (WorkerState.IDLE, LATER, False)
    assert (worker.requires, worker.uses) == (("sandbox:s",), 1)
    assert worker.ended is not None
    assert (worker.ended.work.team, worker.ended.at) == ("blue", LATER)
    assert place.desk.released() == ("m1",)


def test_released_machine_is_used_again_only_in_its_sandbox(place: Place) -> None:
    place.lend_once()
    other, same = place.open(a_ticket(sandbox="t")), place.open(a_ticket(sandbox="s"))

    refused, leased = (place.lease(each, now=LATER) for each in (other, same))

    assert (refused.tickets, list(refused.refused)) == ((), [other])
    assert tells(refused.refused[other], "m1", "sandbox s")
    assert leased.tickets == (same,)
    assert ([worker.uses for worker in place.workers()], place.waiting()) == ([2], [other])


def test_refused_machine_does_not_delay_other_leases(place: Place) -> None:
    first, second, third = (place.open(a_ticket(sandbox="s")) for _ in range(3))
    place.lease(first)

    given = Given(second, "m1", "powerful", "192.0.2.1", ago(hours=1))
    leased = place.desk.lease([given, replace(given, ticket=third, machine="m2")], NOW)

    assert (leased.tickets, list(leased.refused)) == ((third,), [second])
    assert tells(leased.refused[second], "m1", f"ticket {first}")
    assert place.waiting() == [second]
    assert [(w.name, w.uses) for w in place.workers()] == [("m1", 1), ("m2", 1)]


def test_new_machine_of_same_name_has_its_own_tenancy(place: Place) -> None:
    place.lend_once()
    second = place.open(a_ticket(sandbox="t"))

    assert place.lease(second, now=LATER, created_at=LATER) == Leased((second,))

    assert (place.worker().uses, place.worker().requires) == (1, ("sandbox:t",))


def test_machine_keeps_sandbox_when_provider_clock_is_ahead(place: Place) -> None:
    ahead = NOW + timedelta(minutes=10)
    first = place.open(a_ticket(sandbox="s"))
    place.lease(first, created_at=ahead)
    place.close(first, LATER)
    second = place.open(a_ticket(sandbox="t"))

    leased = place.lease(second, now=LATER, created_at=ahead)

    assert (leased.tickets, list(leased.refused)) == ((), [second])
    assert tells(leased.refused[second], "m1", "sandbox s")


def test_silent_client_loses_ticket_and_machine(place: Place) -> None:
    place.lease(place.open(a_ticket(lease=60, heard_at=NOW, sandbox="s")))

    assert place.desk.settle(LATER, None) == ()

    assert place.worker(LATER).state is WorkerState.IDLE


def test_settle_forgets_vanished_machines_without_ticket(place: Place) -> None:
    numbers = [place.open(a_ticket(sandbox="s")) for _ in range(3)]
    for number in numbers:
        place.lease(number, f"m{number}")
    for number in numbers[:2]:
        place.close(number)

    place.desk.settle(NOW, None)
    unread = [worker.name for worker in place.workers()]
    place.desk.settle(NOW, {f"m{numbers[1]}"})

    assert unread == [f"m{n}" for n in numbers]
    assert [worker.name for worker in place.workers()] == [f"m{n}" for n in numbers[1:]]


def test_ticket_of_broken_machine_fails_with_reason(place: Place) -> None:
    place.lease(place.open(a_ticket(sandbox="s")))

    assert place.desk.settle(NOW, None, {"m1"}) == ()

    assert (place.worker().state, place.worker().uses) == (WorkerState.IDLE, 1)


@pytest.mark.parametrize("trouble", ["", "no room"])
def test_machine_is_leased_again_unless_cleaning_failed(place: Place, trouble: str) -> None:
    place.lend_once()
    second = place.open(a_ticket(sandbox="s"))

    place.desk.clean("m1", trouble)
    cleaned = place.desk.released()
    leased = place.lease(second, now=LATER)

    assert cleaned == (("m1",) if trouble else ())
    assert leased.tickets == (() if trouble else (second,))
    assert ("m1" in leased.refused.get(second, "")) == bool(trouble)
    assert place.worker().draining == bool(trouble)


def test_note_is_kept_until_ticket_gets_its_machine(place: Place) -> None:
    first, second = place.open(a_ticket()), place.open(a_ticket())

    def notes(now: datetime) -> dict[int, str]:
        return {each.id: each.note for each in place.desk.settle(now, None)}

    place.desk.note({first: "budgets.blue.per_day is 2.00 EUR", second: "the same"})
    held = notes(NOW)
    place.desk.note({second: "the same"})
    place.lease(second, now=LATER, note="without extra_powerful")

    assert held == {first: "budgets.blue.per_day is 2.00 EUR", second: "the same"}
    assert notes(LATER) == {first: "", second: "without extra_powerful"}


def test_machine_is_kept_once_for_an_unknown_ticket(place: Place) -> None:
    (number,) = place.desk.keep({"m1": "powerful"}, NOW).values()

    worker = place.worker()
    assert (worker.name, worker.pool, worker.running) == ("m1", "powerful", str(number))
    assert worker.state is WorkerState.BUSY
    assert place.desk.keep({"m1": "powerful"}, NOW) == {}
    place.close(number)
    assert (place.worker().state, place.worker().uses) == (WorkerState.IDLE, 1)
    assert place.desk.known_since() is None
