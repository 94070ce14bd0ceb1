"""Give the tests of queues a PostgreSQL with Debusine's tables in it, empty."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fleet.model.facts import Demand, Unknown, Worker
from fleet.planner.durations import Made
from fleet.queues.debusine.checkup import write_grants
from fleet.queues.debusine.database import DebusineDatabase
from fleet.schema.model import DebusineQueue, Fleet
from tests.builders import a_fleet
from tests.rigs import postgres
from tests.rigs.debusine import NOW
from tests.rigs.debusine_tables import Tables

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
        self, fleet: Fleet | None = None, *scopes: str, dsn: str = "", made: Made = tuple
    ) -> DebusineDatabase:
        queue = DebusineQueue(kind="debusine", url="http://x", scopes=list(scopes) or ["debian"])
        return DebusineDatabase(fleet or a_fleet(), queue, dsn or self.reader, made)

    def demand(self, fleet: Fleet | None = None, *scopes: str) -> Demand:
        demand = self.database(fleet, *scopes).read(NOW).demand
        assert isinstance(demand, Demand), demand
        return demand

    def workers(self, fleet: Fleet | None = None) -> dict[str, Worker]:
        workers = self.database(fleet).read(NOW).workers
        assert isinstance(workers, tuple), workers
        return {worker.name: worker for worker in workers}

    def add_worker(  # noqa: PLR0913 - what a row is made of
        self,
        name: str,
        *,
        worker_type: str = "external",
        static: Mapping[str, object] = MappingProxyType({}),
        dynamic: Mapping[str, object] = MappingProxyType({"provided_tags": []}),
        connected: str = "now()",
        heard: str = "now()",
        registered: str = "now()",
        access: str = "on",
        expires: str | None = None,
    ) -> int:
        """Insert a worker, connected and idle; times are SQL. Return its id."""
        awaited = access in ("awaited", "revoked")
        with self.tables.connection.transaction():
            row = self.tables.connection.execute(
                "INSERT INTO db_token (hash, comment, created_at, expire_at, enabled, token_type,"
                " explicit_grants_only, external_username)"
                " VALUES (%s, '', now(), coalesce(%s, CASE WHEN %s THEN now() END), %s, %s,"
                " false, '') RETURNING id",
                (
                    *(name, expires, access == "expired", access not in ("off", "revoked")),
                    "worker-activation" if awaited else "worker",
                ),
            ).fetchall()
            columns = "activation_token_id" if awaited else "token_id"
            text = (
                "INSERT INTO db_worker (name, worker_type, concurrency, static_metadata,"  # noqa: S608 - the test's own
                " dynamic_metadata, connected_at, dynamic_metadata_updated_at, registered_at,"
                f" {columns}) VALUES (%s, %s, 1, %s, %s, {connected}, {heard}, {registered}, %s)"
                " RETURNING id"
            )
            values = (name, worker_type, Jsonb(dict(static)), Jsonb(dict(dynamic)), row[0][0])
            found = self.tables.connection.execute(text.encode(), values).fetchall()
        return int(found[0][0])

    def why_unknown(self, fleet: Fleet | None = None, *scopes: str, dsn: str = "") -> str:
        demand = self.database(fleet, *scopes, dsn=dsn).read(NOW).demand
        assert isinstance(demand, Unknown), demand
        return demand.unknown


@pytest.fixture(scope="session")
def _server(postgres_server: str) -> Iterator[Debusine]:
    with (
        postgres.database(postgres_server) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
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
