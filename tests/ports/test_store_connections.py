"""A store on a server keeps its connections, and does without one that the server gave up."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from fleet.state.database import TENANCIES, TICKETS, create_tables
from fleet.state.store import Store
from fleet.tickets.store import DatabaseTickets
from tests.builders.ticketing import a_ticket
from tests.ports.stores import opener, postgres_store, postgres_url, store

__all__ = ["opener", "postgres_store", "postgres_url", "store"]


WAITING = """\
select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


def backend_of(store: Store) -> int:
    """Return which process of the server answers."""
    with store.begin() as connection:
        return int(connection.execute(sa.text("select pg_backend_pid()")).scalar_one())


def test_one_connection_serves_one_transaction_after_the_other(
    postgres_store: Store,
) -> None:
    assert backend_of(postgres_store) == backend_of(postgres_store)


def test_a_connection_that_the_server_gave_up_is_replaced(
    postgres_store: Store, postgres_url: str
) -> None:
    first = backend_of(postgres_store)
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("select pg_terminate_backend(%s)", (first,))

    assert backend_of(postgres_store) != first


def test_of_two_that_find_the_store_of_an_older_fleet_one_waits_for_the_other(
    postgres_store: Store, postgres_url: str
) -> None:
    with postgres_store.begin() as connection:
        connection.execute(sa.text("alter table fleet_tenancies drop column dirty"))
    books = [DatabaseTickets(postgres_store.begin, "tickets") for _ in range(2)]

    with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_url) as server:
        with postgres_store.begin() as connection:
            create_tables(connection, (TICKETS, TENANCIES))
            other = threads.submit(books[0].tenancies)
            while not server.execute(WAITING).fetchall():
                server.rollback()

        assert other.result(60) == ()

    assert books[1].tenancies() == ()


@pytest.fixture(params=["sqlite", "postgresql"])
def older_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return a store with a ticket, as a fleet made it that knew neither clients nor dirt."""
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    if request.param == "postgresql":
        store = request.getfixturevalue("postgres_store")
    store.init()
    DatabaseTickets(store.begin, "tickets").open(a_ticket(), most=9, most_of_submitter=9)
    make_older(store)
    return store


def make_older(store: Store) -> None:
    """Take out of a store what older fleets did not have."""
    with store.begin() as connection:
        connection.execute(sa.text("alter table fleet_tickets drop column client"))
        connection.execute(sa.text("alter table fleet_tenancies drop column dirty"))


def test_tickets_that_an_older_fleet_kept_are_read_and_changed(
    older_store: Store,
) -> None:
    book = DatabaseTickets(older_store.begin, "tickets")

    assert book.tickets() == (a_ticket(),)
    assert book.open(a_ticket(client="copr"), most=9, most_of_submitter=9).id == 2
    assert [ticket.client for ticket in book.tickets()] == ["", "copr"]
    assert book.released() == ()


def test_what_an_older_fleet_kept_is_carried_whole(older_store: Store, tmp_path: Path) -> None:
    copy = Store(f"sqlite:///{tmp_path}/copy.db", "debian")
    copy.fill(older_store.dump())

    assert DatabaseTickets(copy.begin, "tickets").tickets() == (a_ticket(),)


def test_an_empty_store_of_an_older_fleet_takes_what_is_carried(
    older_store: Store, tmp_path: Path
) -> None:
    empty = Store(f"sqlite:///{tmp_path}/empty.db", "debian")
    empty.init()
    make_older(empty)

    empty.fill(older_store.dump())

    assert DatabaseTickets(empty.begin, "tickets").tickets() == (a_ticket(),)


def test_a_password_among_the_options_is_in_no_message() -> None:
    store = Store("postgresql://fleet@host/fleet?password=canary&sslmode=require", "debian")

    assert store.address == "postgresql+psycopg://fleet@host/fleet?sslmode=require"


@pytest.mark.parametrize("opener", ["sqlite", "postgresql"], indirect=True)
def test_a_database_refuses_two_tickets_that_are_ready_with_one_machine(store: Store) -> None:
    assert isinstance(store, Store)
    engine = sa.create_engine(store.url)
    with engine.connect() as connection:
        found = {
            each["name"]: each for each in sa.inspect(connection).get_indexes("fleet_tickets")
        }
    engine.dispose()

    index = found["fleet_tickets_machine"]
    assert (index["column_names"], bool(index["unique"])) == (["machine"], True)
    assert any("ready" in str(each) for each in index["dialect_options"].values())
