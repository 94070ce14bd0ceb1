"""This module gives the tests of queues a PostgreSQL with Debusine's tables in it, empty."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from fleet.facts import Demand, Unknown, Worker
from fleet.queues.debusine.database import DebusineDatabase
from fleet.queues.debusine.grants import write_grants
from fleet.schema.model import DebusineQueue, Fleet
from tests import postgres
from tests.builders import a_fleet
from tests.debusine import NOW
from tests.debusine_tables import Tables

READER = "fleet_ro"


@dataclass(frozen=True)
class Debusine:
    """The database of a Debusine; `reader` is its address for the role of `grants`."""

    url: str
    tables: Tables

    @property
    def reader(self) -> str:
        return self.url.replace("//fleet@", f"//{READER}@")

    def database(
        self, fleet: Fleet | None = None, *scopes: str, dsn: str = ""
    ) -> DebusineDatabase:
        queue = DebusineQueue(kind="debusine", url="http://x", scopes=list(scopes) or ["debian"])
        return DebusineDatabase(fleet or a_fleet(), queue, dsn or self.reader)

    def demand(self, fleet: Fleet | None = None, *scopes: str) -> Demand:
        demand = self.database(fleet, *scopes).read(NOW).demand
        assert isinstance(demand, Demand), demand
        return demand

    def workers(self, fleet: Fleet | None = None) -> dict[str, Worker]:
        workers = self.database(fleet).read(NOW).workers
        assert isinstance(workers, tuple), workers
        return {worker.name: worker for worker in workers}

    def why_unknown(self, fleet: Fleet | None = None, *scopes: str, dsn: str = "") -> str:
        demand = self.database(fleet, *scopes, dsn=dsn).read(NOW).demand
        assert isinstance(demand, Unknown), demand
        return demand.unknown


@pytest.fixture(scope="session")
def _server() -> Iterator[Debusine]:
    if because := postgres.why_not():
        pytest.skip(f"Debusine's database is NOT TESTED: {because}")
    with postgres.running() as url, psycopg.connect(url, autocommit=True) as connection:
        yield Debusine(url, Tables(connection))


@pytest.fixture
def debusine(_server: Debusine) -> Debusine:
    """Return a database with Debusine's tables, empty, and a role that may read them."""
    connection = _server.tables.connection
    connection.execute(f"DROP SCHEMA public CASCADE; CREATE SCHEMA public; {_DROP_ROLE}".encode())
    _server.tables.create()
    connection.execute(write_grants(READER).encode())
    return _server


_DROP_ROLE = f"DROP ROLE IF EXISTS {READER}"
