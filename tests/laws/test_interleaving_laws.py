"""Laws of two who change one ticket or machine at once, whatever each of them does to it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.model.tickets import Given, Ticket, TicketState, claim, close, expire, fail, hear
from fleet.state.store import Store
from fleet.tickets.store import DatabaseTickets
from fleet.tickets.tenancy import Tenancy, admit, clean, touch
from tests.builders import NOW
from tests.builders.ticketing import a_ticket
from tests.ports.stores import postgres_store, postgres_url

__all__ = ["postgres_store", "postgres_url"]
Step = Callable[[Ticket], Ticket]
Book = Callable[[], DatabaseTickets]
moments = st.integers(0, 300).map(lambda seconds: NOW + timedelta(seconds=seconds))
steps: st.SearchStrategy[Step] = st.one_of(
    *(st.builds(partial, st.just(each), now=moments) for each in (hear, claim, close, expire)),
    st.builds(partial, st.just(fail), because=st.just("broken"), now=moments),
)
touches = st.one_of(
    moments.map(lambda now: partial(touch, now=now)),
    st.sampled_from(["", "no room"]).map(lambda trouble: partial(clean, trouble=trouble)),
)
# Each example has a ticket and a machine of its own.
many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return a store that is empty at first; all examples of a test have it."""
    if request.param == "postgresql":
        made: Store = request.getfixturevalue("postgres_store")
        return made
    made = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    made.init()
    return made


@pytest.fixture
def book(store: Store) -> Book:
    """Return what opens the tickets of one queue, each time over a connection of its own."""
    return lambda: DatabaseTickets(store.begin, "tickets")


def opened(book: DatabaseTickets) -> Ticket:
    return book.open(a_ticket(lease=60, heard_at=NOW), most=10**6, most_of_submitter=10**6)


@contextmanager
def once(other: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Yield what carries something out the first time it is called, as another process would."""
    left = [other]

    def interrupt() -> None:
        if left:
            left.pop()()

    yield interrupt
    assert not left


def marked_at_once(
    book: Book,
    machine: str,
    ours: Callable[[Tenancy], Tenancy],
    theirs: Callable[[Tenancy], Tenancy],
) -> Tenancy:
    """Return what is remembered of a machine that another marks while we do."""
    mine, other = book(), book()
    with once(lambda: other.mark(machine, lambda own, _: theirs(own), NOW)) as interrupt:

        def step(read: Tenancy, _: Ticket | None) -> Tenancy:
            interrupt()
            return ours(read)

        mine.mark(machine, step, NOW)
    (now,) = [each for each in mine.tenancies() if each.machine == machine]
    return now


@many
@given(ours=steps, theirs=steps)
def test_concurrent_ticket_change_is_kept(book: Book, ours: Step, theirs: Step) -> None:
    mine, other = book(), book()
    ticket = opened(mine)

    with once(lambda: other.change(ticket.id, theirs, NOW)) as interrupt:

        def step(read: Ticket) -> Ticket:
            interrupt()
            return ours(read)

        mine.change(ticket.id, step, NOW)

    # Who has nothing to do looks once.
    theirs_alone = ours(ticket) == ticket
    assert mine.find(ticket.id) == (theirs(ticket) if theirs_alone else ours(theirs(ticket)))


@many
@given(ours=touches, theirs=touches)
def test_concurrent_tenancy_change_is_kept(
    book: Book,
    ours: Callable[[Tenancy], Tenancy],
    theirs: Callable[[Tenancy], Tenancy],
) -> None:
    mine = book()
    ticket = opened(mine)
    machine = f"m{ticket.id}"
    mine.lease([Given(ticket.id, machine, "powerful", "192.0.2.1", NOW)], NOW)
    (before,) = [each for each in mine.tenancies() if each.machine == machine]

    assert marked_at_once(book, machine, ours, theirs) == ours(theirs(before))


@many
@given(ours=touches, theirs=touches)
def test_first_concurrent_tenancy_note_is_kept(
    book: Book,
    ours: Callable[[Tenancy], Tenancy],
    theirs: Callable[[Tenancy], Tenancy],
) -> None:
    machine = f"n{opened(book()).id}"

    assert marked_at_once(book, machine, ours, theirs) == ours(theirs(Tenancy(machine, NOW)))


@many
@given(theirs=st.one_of(touches, st.just(partial(replace, draining=True))), is_known=st.booleans())
def test_tenancy_change_during_a_lease_is_kept(
    store: Store, book: Book, theirs: Callable[[Tenancy], Tenancy], *, is_known: bool
) -> None:
    other = book()
    ticket = opened(other)
    machine = f"l{ticket.id}"
    lease = Given(ticket.id, machine, "powerful", "192.0.2.1", NOW)
    if is_known:
        other.mark(machine, lambda own, _: own, NOW)

    with once(lambda: other.mark(machine, lambda own, _: theirs(own), NOW)) as interrupt:

        @contextmanager
        def begin() -> Iterator[sa.Connection]:
            """Begin a transaction that another comes before as soon as it changes something."""
            with store.begin() as connection:

                def meanwhile(*said: object) -> None:
                    if str(said[2]).startswith("UPDATE"):
                        interrupt()

                sa.event.listen(connection, "before_cursor_execute", meanwhile)
                yield connection

        leased = DatabaseTickets(begin, "tickets").lease([lease], NOW)

    (now,) = [each for each in other.tenancies() if each.machine == machine]
    before = theirs(Tenancy(machine, NOW))
    found = other.find(ticket.id)
    assert found is not None
    if before.draining:
        assert (leased.tickets, found.state, now) == ((), TicketState.WAITING, before)
    else:
        assert (leased.tickets, found.state) == ((ticket.id,), TicketState.READY)
        assert now == admit(lease, ticket, before, None, NOW)
