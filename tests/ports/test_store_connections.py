"""A store on a server keeps its connections, and does without one that the server gave up."""

import psycopg
import pytest
import sqlalchemy as sa

from fleet.state.store import Store
from tests.ports.stores import opener, postgres_store, postgres_url, store

__all__ = ["opener", "postgres_store", "postgres_url", "store"]


WAITING = """\
select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


def backend_of(store: Store) -> int:
    """Return which process of the server answers."""
    with store.begin() as connection:
        return int(connection.execute(sa.text("select pg_backend_pid()")).scalar_one())


def test_connection_is_reused_for_transactions(
    postgres_store: Store,
) -> None:
    assert backend_of(postgres_store) == backend_of(postgres_store)


def test_connection_closed_by_server_is_replaced(postgres_store: Store, postgres_url: str) -> None:
    first = backend_of(postgres_store)
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("select pg_terminate_backend(%s)", (first,))

    assert backend_of(postgres_store) != first


def test_messages_hide_password_among_options() -> None:
    store = Store("postgresql://fleet@host/fleet?password=canary&sslmode=require", "debian")

    assert store.address == "postgresql://fleet@host/fleet?sslmode=require"


@pytest.mark.parametrize("opener", ["sqlite", "postgresql"], indirect=True)
def test_database_has_unique_index_of_ready_machines(store: Store) -> None:
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
