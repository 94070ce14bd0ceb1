"""Every desk keeps one contract: a ticket has one machine, a machine one ticket at a time."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest

from fleet.model.facts import Demand, Worker, WorkerState
from fleet.model.tickets import Given, Leased, Ticket, close, hear
from fleet.ports import TicketDesk
from fleet.state.store import Store
from fleet.tickets.desk import StoredTicketDesk
from fleet.tickets.store import DatabaseTickets
from tests.builders import NOW
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


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[TicketDesk, Client]:
    """Return a desk, and its clients."""
    if request.param == "fake":
        fake = FakeTicketDesk(FLEET)
        return fake, fake
    if request.param == "sqlite":
        store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
        store.init()
    else:
        store = request.getfixturevalue("postgres_store")
    book = DatabaseTickets(store.begin, "tickets")
    return StoredTicketDesk(FLEET, book, FixedClock(NOW)), _Tickets(book)


def given(
    number: int, machine: str = "m1", created_at: datetime = NOW - timedelta(hours=1)
) -> Given:
    return Given(number, machine, "powerful", "192.0.2.1", created_at)


def lend_once(desk: TicketDesk, client: Client) -> None:
    """Have a ticket of sandbox s get machine m1, and give it back."""
    number = client.open(a_ticket(sandbox="s"))
    desk.lease([given(number)], NOW)
    client.change(number, lambda ticket: close(ticket, NOW), NOW)


def workers_of(desk: TicketDesk, now: datetime = NOW) -> tuple[Worker, ...]:
    workers = desk.read(now).workers
    assert isinstance(workers, tuple)
    return workers


def waiting(desk: TicketDesk, now: datetime = NOW) -> list[str]:
    demand = desk.read(now).demand
    assert isinstance(demand, Demand)
    return [request.id for request in demand.requests]


def test_open_ticket_is_demand(place: tuple[TicketDesk, Client]) -> None:
    desk, client = place

    number = client.open(a_ticket())

    assert waiting(desk) == [str(number)]
    assert workers_of(desk) == ()


def test_ticket_round_trips(place: tuple[TicketDesk, Client]) -> None:
    desk, client = place
    asked = a_ticket(
        1,
        tags=("arch_x86_64", "extra_powerful"),
        team="core",
        sandbox="s",
        priority=-3,
        background=True,
        lease=60,
        heard_at=NOW,
    )

    client.open(asked)

    assert desk.settle(NOW, None) == (asked,)


def test_ticket_ids_increase_and_are_never_reused(place: tuple[TicketDesk, Client]) -> None:
    desk, client = place
    first = client.open(a_ticket())
    client.change(first, lambda ticket: close(ticket, NOW), NOW)
    desk.settle(NOW + timedelta(days=400), frozenset())

    assert client.open(a_ticket()) == first + 1


def test_leased_ticket_is_ready_and_its_worker_busy(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    number = client.open(a_ticket(sandbox="s"))

    assert desk.lease([given(number)], NOW).tickets == (number,)

    (ticket,) = desk.settle(NOW, None)
    assert (ticket.machine, ticket.answer) == ("m1", "192.0.2.1")
    (worker,) = workers_of(desk)
    assert (worker.name, worker.state, worker.running, worker.pool) == (
        "m1",
        WorkerState.BUSY,
        str(number),
        "powerful",
    )
    assert waiting(desk) == []


def test_ticket_closed_meanwhile_gets_no_machine(place: tuple[TicketDesk, Client]) -> None:
    desk, client = place
    number = client.open(a_ticket())
    client.change(number, lambda ticket: close(ticket, NOW), NOW)

    assert desk.lease([given(number)], NOW).tickets == ()

    assert workers_of(desk) == ()


def test_lease_skips_ticket_closed_meanwhile(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    number = client.open(a_ticket())
    read = waiting(desk)
    client.change(number, lambda ticket: close(ticket, NOW), NOW)

    desk.settle(NOW, None)

    assert read == [str(number)]
    assert desk.lease([given(number)], NOW).tickets == ()
    assert waiting(desk) == []


def test_ticket_is_kept_when_client_was_heard_meanwhile(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    number = client.open(a_ticket(lease=60, heard_at=NOW))
    desk.read(LATER)
    client.change(number, lambda ticket: hear(ticket, LATER), LATER)

    desk.settle(LATER, None)

    assert waiting(desk, LATER) == [str(number)]


def test_ticket_with_a_machine_gets_no_other(place: tuple[TicketDesk, Client]) -> None:
    desk, client = place
    number = client.open(a_ticket())
    desk.lease([given(number)], NOW)

    assert desk.lease([given(number, "m2")], NOW).tickets == ()

    assert [worker.name for worker in workers_of(desk)] == ["m1"]


def test_closed_ticket_releases_its_machine_in_its_sandbox(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    number = client.open(a_ticket(sandbox="s"))
    desk.lease([given(number)], NOW)

    client.change(number, lambda ticket: close(ticket, LATER), LATER)

    (worker,) = workers_of(desk, LATER)
    assert (worker.state, worker.since, worker.requires, worker.uses) == (
        WorkerState.IDLE,
        LATER,
        ("sandbox:s",),
        1,
    )
    assert not worker.draining


def test_released_machine_may_be_used_again_in_its_sandbox(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    lend_once(desk, client)
    second = client.open(a_ticket(sandbox="s"))

    assert desk.lease([given(second)], LATER).tickets == (second,)

    assert [worker.uses for worker in workers_of(desk)] == [2]


def test_machine_of_another_sandbox_is_refused(place: tuple[TicketDesk, Client]) -> None:
    desk, client = place
    lend_once(desk, client)
    second = client.open(a_ticket(sandbox="t"))

    leased = desk.lease([given(second)], LATER)

    assert (leased.tickets, list(leased.refused)) == ((), [second])
    assert tells(leased.refused[second], "m1", "sandbox s")
    assert waiting(desk) == [str(second)]


def test_refused_machine_does_not_delay_other_leases(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    first = client.open(a_ticket(sandbox="s"))
    desk.lease([given(first)], NOW)
    second, third = (client.open(a_ticket(sandbox="s")) for _ in range(2))

    leased = desk.lease([given(second), given(third, "m2")], NOW)

    assert (leased.tickets, list(leased.refused)) == ((third,), [second])
    assert tells(leased.refused[second], "m1", f"ticket {first}")
    assert waiting(desk) == [str(second)]
    assert [(w.name, w.uses) for w in workers_of(desk)] == [("m1", 1), ("m2", 1)]


def test_new_machine_of_same_name_has_its_own_tenancy(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    lend_once(desk, client)
    second = client.open(a_ticket(sandbox="t"))

    assert desk.lease([given(second, created_at=LATER)], LATER) == Leased((second,))

    assert [(w.uses, w.requires) for w in workers_of(desk)] == [(1, ("sandbox:t",))]


def test_machine_keeps_sandbox_when_provider_clock_is_ahead(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    ahead = NOW + timedelta(minutes=10)
    first = client.open(a_ticket(sandbox="s"))
    desk.lease([given(first, created_at=ahead)], NOW)
    client.change(first, lambda ticket: close(ticket, LATER), LATER)
    second = client.open(a_ticket(sandbox="t"))

    leased = desk.lease([given(second, created_at=ahead)], LATER)

    assert (leased.tickets, list(leased.refused)) == ((), [second])
    assert tells(leased.refused[second], "m1", "sandbox s")


def test_silent_client_loses_ticket_and_machine(place: tuple[TicketDesk, Client]) -> None:
    desk, client = place
    number = client.open(a_ticket(lease=60, heard_at=NOW, sandbox="s"))
    desk.lease([given(number)], NOW)

    assert desk.settle(LATER, None) == ()

    assert [worker.state for worker in workers_of(desk, LATER)] == [WorkerState.IDLE]


def test_settle_forgets_vanished_machines_without_ticket(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    numbers = [client.open(a_ticket(sandbox="s")) for _ in range(3)]
    desk.lease([given(n, f"m{n}") for n in numbers], NOW)
    client.change(numbers[0], lambda ticket: close(ticket, NOW), NOW)
    client.change(numbers[1], lambda ticket: close(ticket, NOW), NOW)

    desk.settle(NOW, {f"m{numbers[1]}"})

    assert [worker.name for worker in workers_of(desk)] == [f"m{n}" for n in numbers[1:]]


def test_machines_of_unknown_existence_stay_recorded(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    lend_once(desk, client)

    desk.settle(NOW, None)

    assert [worker.name for worker in workers_of(desk)] == ["m1"]


def test_ticket_of_broken_machine_fails_with_reason(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    number = client.open(a_ticket(sandbox="s"))
    desk.lease([given(number)], NOW)

    assert desk.settle(NOW, None, {"m1"}) == ()

    (worker,) = workers_of(desk)
    assert (worker.state, worker.uses) == (WorkerState.IDLE, 1)


def test_machine_needs_cleaning_after_its_ticket_ended(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    number = client.open(a_ticket(sandbox="s"))
    desk.lease([given(number)], NOW)
    assert desk.released() == ()

    client.change(number, lambda ticket: close(ticket, NOW), NOW)

    assert desk.released() == ("m1",)


def test_cleaned_machine_may_be_leased_again(place: tuple[TicketDesk, Client]) -> None:
    desk, client = place
    lend_once(desk, client)
    second = client.open(a_ticket(sandbox="s"))

    desk.clean("m1", "")

    assert desk.released() == ()
    assert desk.lease([given(second)], LATER).tickets == (second,)


def test_uncleaned_machine_gets_no_other_ticket(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    lend_once(desk, client)
    second = client.open(a_ticket(sandbox="s"))

    desk.clean("m1", "no room")

    leased = desk.lease([given(second)], LATER)

    assert leased.tickets == ()
    assert "m1" in leased.refused[second]
    assert [worker.draining for worker in workers_of(desk)] == [True]


def test_note_is_kept_until_ticket_gets_its_machine(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    first, second = client.open(a_ticket()), client.open(a_ticket())

    desk.note({first: "budgets.blue.per_day is 2.00 EUR", second: "the same"})
    held = {each.id: each.note for each in desk.settle(NOW, None)}
    desk.note({second: "the same"})
    desk.lease([replace(given(second), note="without extra_powerful")], LATER)
    noted = {each.id: each.note for each in desk.settle(LATER, None)}

    assert held == {first: "budgets.blue.per_day is 2.00 EUR", second: "the same"}
    assert noted == {first: "", second: "without extra_powerful"}


def test_work_of_ticket_requires_tags_of_its_lease(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    number = client.open(a_ticket())

    desk.lease([replace(given(number), tags=("arch_x86_64", "extra_powerful"))], NOW)

    (worker,) = workers_of(desk)
    assert worker.work is not None
    assert worker.work.required == ("arch_x86_64", "extra_powerful")


def test_worker_has_its_last_work_with_end(place: tuple[TicketDesk, Client]) -> None:
    desk, client = place
    number = client.open(a_ticket(team="blue"))
    desk.lease([given(number)], NOW)

    client.change(number, lambda ticket: close(ticket, LATER), LATER)

    (worker,) = workers_of(desk, LATER + timedelta(minutes=1))
    assert worker.state is WorkerState.IDLE
    assert worker.ended is not None
    assert (worker.ended.work.team, worker.ended.at) == ("blue", LATER)


def test_machine_is_kept_for_an_unknown_ticket(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place

    (number,) = desk.keep({"m1": "powerful"}, NOW).values()

    (worker,) = workers_of(desk)
    assert (worker.name, worker.pool, worker.running) == ("m1", "powerful", str(number))
    assert worker.state is WorkerState.BUSY
    assert desk.keep({"m1": "powerful"}, NOW) == {}
    client.change(number, lambda ticket: close(ticket, NOW), NOW)
    (worker,) = workers_of(desk)
    assert (worker.state, worker.uses) == (WorkerState.IDLE, 1)


def test_machine_with_a_ticket_is_kept_for_no_other(
    place: tuple[TicketDesk, Client],
) -> None:
    desk, client = place
    desk.lease([given(client.open(a_ticket()))], NOW)

    assert desk.keep({"m1": "powerful"}, NOW) == {}
    assert desk.known_since() is None
