"""Open the stores that a contract is run over: SQLite and PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.ports import StackRecord
from fleet.state.store import Store
from tests.rigs import postgres

Opener = Callable[[str], Store]
"""Opens the one place where stores of this test live, for a fleet."""


def a_record(**overrides: object) -> StackRecord:
    """Return what a store remembers of the stack of the pool `builders`."""
    defaults = {
        "name": "debian-builders",
        "pool": "builders",
        "provider": "desk",
        "project": "sim",
        "engine": "embedded",
        "serial": 3,
    }
    return StackRecord.model_validate(defaults | overrides)


@pytest.fixture(scope="session")
def postgres_url(postgres_server: str) -> Iterator[str]:
    """Return the URL of a PostgreSQL, or skip loudly."""
    with postgres.database(postgres_server) as url:
        yield url


def _empty(url: str) -> str:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text("drop schema public cascade"))
        connection.execute(sa.text("create schema public"))
    engine.dispose()
    return url


@pytest.fixture
def postgres_store(postgres_url: str) -> Store:
    """Return a store in PostgreSQL that was created and is empty."""
    store = Store(_empty(postgres_url), "debian")
    store.init()
    return store


@pytest.fixture(params=["sqlite", "postgresql"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Return what opens a store that is not created yet."""
    match request.param:
        case "sqlite":
            return lambda fleet: Store(f"sqlite:///{tmp_path}/store.db", fleet)
        case _:
            url = _empty(request.getfixturevalue("postgres_url"))
            return lambda fleet: Store(url, fleet)


@pytest.fixture
def store(opener: Opener) -> Store:
    """Return a store that was created and is empty."""
    store = opener("debian")
    store.init()
    return store


LATER_TABLES = ("payers", "months", "samples", "moments", "log", "orders")
"""Tables that stores of the first release did not have."""


def make_older(url: sa.URL) -> None:
    """Remove all tables and columns from a store that the first fleets did not have."""
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        for name in LATER_TABLES:
            connection.execute(sa.text(f"drop table fleet_{name}"))
        connection.execute(sa.text("alter table fleet_tickets drop column client"))
        connection.execute(sa.text("alter table fleet_tenancies drop column dirty"))
        connection.execute(sa.text("delete from fleet_about where key in ('columns', 'needs')"))
        older = "update fleet_about set value = 'fleet-store-1' where key = 'format'"
        connection.execute(sa.text(older))
