"""A Resalloc's tickets are repeated, and both sides are added up by day."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.migrate.shadow import (
    Look,
    Mirror,
    Seen,
    SeenTicket,
    Side,
    days_of,
    days_to_text,
    look_of,
)
from fleet.model.tickets import fail
from fleet.state.store import DatabaseStore
from fleet.tickets.store import DatabaseTickets
from tests.builders import NOW, a_plan, a_pool_verdict

FIRST = SeenTicket(id=71, tags=("big",), sandbox="ada/x--ben", waits=True)
SECOND = SeenTicket(id=72, tags=("big",), waits=False)


@pytest.fixture
def book(tmp_path: Path) -> DatabaseTickets:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "shadow")
    store.init()
    return DatabaseTickets(store.begin, "tickets")


def test_what_is_opened_and_closed_there_is_opened_and_closed_here(book: DatabaseTickets) -> None:
    mirror = Mirror(book, most=100)

    opened = [
        mirror.follow(Seen(tickets=tickets), NOW)
        for tickets in ((FIRST,), (FIRST, SECOND), (SECOND,))
    ]

    (left,) = book.tickets()
    assert opened == [1, 1, 0]
    assert (left.tags, mirror.waiting()) == (("big",), 1)


def test_a_ticket_whose_machine_broke_here_waits_again(book: DatabaseTickets) -> None:
    mirror = Mirror(book, most=100)
    mirror.follow(Seen(tickets=(FIRST,)), NOW)
    book.change(1, lambda each: fail(each, "its machine is gone", NOW), NOW)

    opened = mirror.follow(Seen(tickets=(FIRST,)), NOW)

    assert (opened, mirror.waiting()) == (0, 1)


def test_owner_and_submitter_are_read_from_the_sandbox(book: DatabaseTickets) -> None:
    Mirror(book, most=100).follow(Seen(tickets=(FIRST,)), NOW)

    (ticket,) = book.tickets()
    assert (ticket.owner, ticket.submitter, ticket.sandbox) == ("ada", "ben", "ada/x--ben")


def test_what_an_earlier_mirror_left_is_not_counted_twice(book: DatabaseTickets) -> None:
    Mirror(book, most=100).follow(Seen(tickets=(FIRST,)), NOW)

    Mirror(book, most=100).follow(Seen(tickets=(FIRST,)), NOW)

    assert len(book.tickets()) == 1


def test_a_look_prices_both_sides_with_the_pools_of_fleet_yaml() -> None:
    plan = a_plan(
        pools=(a_pool_verdict(create=2, price=Decimal("0.12"), cost_after=Decimal("0.36")),)
    )
    seen = Seen(tickets=(FIRST, SECOND), machines={"builders": 5, "legacy": 1})

    look = look_of(seen, plan, waiting=0, opened=2, seconds=20)

    assert look.unpriced == ("legacy",)
    assert look.resalloc == Side(
        waiting=1, machines={"builders": 5, "legacy": 1}, cost=Decimal("0.60")
    )
    assert look.fleet == Side(waiting=0, machines={"builders": 3}, cost=Decimal("0.36"))


def test_a_day_adds_up_what_was_there_times_how_long() -> None:
    side = Side(waiting=1, machines={"usual": 4}, cost=Decimal(2))
    idle = Side(waiting=0, machines={"usual": 1}, cost=Decimal("0.5"))
    look = Look(
        time=NOW, seconds=1800, opened=3, currency="EUR", unpriced=(), resalloc=side, fleet=idle
    )
    later = look.altered(opened=0)
    tomorrow = look.altered(time=NOW + timedelta(days=1), unpriced=("old",))

    first, second = days_of([look, later, tomorrow])

    title, *rows = days_to_text([first]).splitlines()
    assert title.startswith("2026-11-21 UTC: ")
    assert "1h, 3 tickets" in title
    assert [row[26:].split() for row in rows] == [
        ["Resalloc", "fleet"],
        ["1h", "0s"],
        ["20m", "0s"],
        ["4.00", "h", "1.00", "h"],
        ["4.00", "h", "1.00", "h"],
        ["2.00", "EUR", "0.50", "EUR"],
    ]
    assert second.unpriced == ("old",)
