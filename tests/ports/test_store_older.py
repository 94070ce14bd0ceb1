"""The first command on a store of an older fleet adds tables and columns, all or none."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.errors import StoreFailed
from fleet.state.database import ABOUT, METADATA, ORDERS, Rows, complete
from fleet.state.store import Store
from fleet.tickets.store import DatabaseTickets
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket
from tests.ports.records import AN_ENTRY, READS, SINCE, a_hold, read_all, write_all
from tests.ports.stores import a_record, make_older, opener, postgres_store, postgres_url, store

__all__ = ["opener", "postgres_store", "postgres_url", "store"]


@pytest.fixture
def older(store: Store) -> Store:
    """Return a store with a stack and a ticket, as one of the first fleets left it."""
    store.record_stack(a_record(pool="builders"))
    DatabaseTickets(store.begin, "tickets").open(a_ticket(), most=9, most_of_submitter=9)
    make_older(store.url)
    return Store(store.url.render_as_string(hide_password=False), "debian")


def columns_of(store: Store) -> dict[str, set[str]]:
    """Return the columns of each table that the database has."""
    engine = sa.create_engine(store.url, poolclass=sa.NullPool)
    found = sa.inspect(engine)
    return {
        name: {column["name"] for column in found.get_columns(name)}
        for name in found.get_table_names()
    }


ALL_COLUMNS = {
    table.name: {column.name for column in table.columns} for table in METADATA.sorted_tables
}


def test_older_store_is_read_as_without_later_records(older: Store) -> None:
    assert read_all(older) == {"stacks": (a_record(pool="builders"),)}
    assert DatabaseTickets(older.begin, "tickets").tickets() == (a_ticket(),)
    assert columns_of(older) == ALL_COLUMNS


def test_complete_store_is_unchanged_when_only_read(store: Store) -> None:
    engine = sa.create_engine(store.url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.delete(ABOUT).where(ABOUT.c.key == "columns"))

    def counted() -> bool:
        with engine.begin() as connection:
            query = sa.select(ABOUT).where(ABOUT.c.key == "columns")
            return connection.execute(query).first() is not None

    again = Store(store.url.render_as_string(hide_password=False), "debian")
    again.stacks()
    assert not counted()
    with again.lock("ada", NOW):
        pass
    assert counted()


@pytest.mark.slow
def test_older_store_fails_with_remedy_when_user_may_only_read(
    postgres_store: Store,
) -> None:
    make_older(postgres_store.url)
    engine = sa.create_engine(postgres_store.url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP ROLE IF EXISTS reader"))
        connection.execute(sa.text("CREATE ROLE reader LOGIN"))
        connection.execute(sa.text("GRANT USAGE ON SCHEMA public TO reader"))
        connection.execute(sa.text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"))
    url = postgres_store.url.set(username="reader")

    try:
        with pytest.raises(StoreFailed) as failed:
            Store(url.render_as_string(hide_password=False), "debian").stacks()
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text("DROP OWNED BY reader"))
            connection.execute(sa.text("DROP ROLE reader"))

    assert tells(str(failed.value), "permission denied", "user who can")


def test_older_store_accepts_new_records_and_a_rename(older: Store) -> None:
    write_all(older)
    written = read_all(older).keys()
    older.record_stack(a_record(pool="heavy"))

    assert written == READS.keys() - {"runs", "waits"}
    assert [each.pool for each in older.stacks()] == ["heavy"]


def test_older_tickets_are_read_and_changed(older: Store) -> None:
    book = DatabaseTickets(older.begin, "tickets")

    assert book.open(a_ticket(client="copr"), most=9, most_of_submitter=9).id == 2
    assert [ticket.client for ticket in book.tickets()] == ["", "copr"]
    assert book.released() == ()


@pytest.mark.parametrize("is_created", [False, True])
def test_older_store_is_copied_completely(
    older: Store, tmp_path: Path, *, is_created: bool
) -> None:
    copy = Store(f"sqlite:///{tmp_path}/copy.db", "debian")
    if is_created:
        copy.init()
        make_older(copy.url)

    assert copy.fill(older.dump())

    assert copy.stacks() == older.stacks()
    assert DatabaseTickets(copy.begin, "tickets").tickets() == (a_ticket(),)


def test_migration_is_undone_when_it_is_killed(older: Store) -> None:
    before = columns_of(older)

    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    sa.event.listen(ORDERS, "after_create", kill)
    try:
        with pytest.raises(KeyboardInterrupt):
            older.stacks()
    finally:
        sa.event.remove(ORDERS, "after_create", kill)
    assert columns_of(older) == before

    assert [each.pool for each in older.stacks()] == ["builders"]
    assert columns_of(older) == ALL_COLUMNS


def test_older_store_is_migrated_once_when_many_open_it(older: Store) -> None:
    url = older.url.render_as_string(hide_password=False)
    with ThreadPoolExecutor(6) as threads:
        found = [threads.submit(Store(url, "debian").stacks) for _ in range(6)]

        assert {each.result(60) for each in found} == {older.stacks()}

    assert columns_of(older) == ALL_COLUMNS


def test_lost_table_is_an_error(store: Store) -> None:
    with sa.create_engine(store.url, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text("drop table fleet_orders"))

    with pytest.raises(StoreFailed, match="fleet_orders"):
        store.orders(NOW)


@pytest.mark.parametrize("name", ["ledger", "tickets"])
def test_table_that_an_older_store_lost_is_not_created(older: Store, name: str) -> None:
    """A new empty table would hide that the spending of the past is lost."""
    before = columns_of(older)
    with sa.create_engine(older.url, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text(f"drop table fleet_{name}"))

    with pytest.raises(StoreFailed) as failed:
        older.ledger(SINCE, "EUR")

    assert tells(str(failed.value), "damaged", f"fleet_{name}", "restore a backup")
    assert columns_of(older).keys() == before.keys() - {f"fleet_{name}"}


def test_orders_that_an_older_store_lost_are_not_created(older: Store) -> None:
    older.place_order(a_hold(), AN_ENTRY)
    with sa.create_engine(older.url, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text("drop table fleet_orders"))
        connection.execute(sa.text("delete from fleet_about where key = 'columns'"))

    with pytest.raises(StoreFailed, match="fleet_orders"):
        Store(older.url.render_as_string(hide_password=False), "debian").orders(NOW)


def test_export_of_an_older_fleet_omits_the_count_of_columns() -> None:
    rows: Rows = {"about": [{"key": "columns", "value": "9"}, {"key": "absent", "value": "[]"}]}

    assert complete(rows) == {"about": [{"key": "absent", "value": "[]"}]}
