"""Open the registries that a contract is run over: the fake, SQL, an admin command.

A `Place` is a registry with what its server does beside it: let workers register, give work.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import psycopg
import pytest

from fleet.ports import Enroller, Enrolment, Registry
from fleet.queues.debusine.registry import Channel, CommandChannel, DebusineRegistry, SqlChannel
from tests.fakes.debusine_admin import run_here
from tests.fakes.registry import FakeRegistry
from tests.rigs.debusine_tables import Tables

WORKER = "debian-builders-0001"


class EnrollingRegistry(Registry, Enroller, Protocol):
    """A registry that makes workers known too."""


class Place(Protocol):
    """A registry, and what its server does by itself."""

    @property
    def registry(self) -> EnrollingRegistry:
        """Return what is tested."""

    def register(self, name: str, token: str) -> bool:
        """Have a machine come with a token; False where the server refuses it."""

    def assign(self, name: str, request: int) -> None:
        """Have the server give a worker a request, whatever its row says."""

    def vanish(self, name: str) -> None:
        """Have a worker's machine be gone, which the server notices by its connection."""

    def takes_work(self, name: str) -> bool:
        """Say whether the server would give a worker a request."""

    def may_talk(self, name: str) -> bool:
        """Say whether the server listens to a worker."""

    def holder_of(self, request: int) -> str | None:
        """Return which worker has a request."""


def an_enrolment(worker: str = WORKER, **overrides: object) -> Enrolment:
    """Return an enrolment whose token is good for an hour."""
    usual = {"fleet": "debian", "pool": "builders", "provides": ("worker:class:big",)}
    expires = datetime.now(UTC) + timedelta(hours=1)
    return Enrolment.model_validate({"worker": worker, "expires": expires} | usual | overrides)


class DebusinePlace:
    """Debusine's tables, and what its server writes into them."""

    def __init__(self, tables: Tables, channel: Channel) -> None:
        self.tables = tables
        self.waits: list[float] = []
        self.registry = DebusineRegistry(
            "debian", "debian", channel, wait=self.waits.append, clock=lambda: 0.0
        )

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        cursor = self.tables.connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def register(self, name: str, token: str) -> bool:
        """Do as the endpoint does: a token of its own in place of the one to activate it."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        found = self.ask(
            "SELECT w.id, w.name, t.id FROM db_token t JOIN db_worker w ON w.activation_token_id ="
            " t.id WHERE t.hash = %s AND t.enabled AND t.expire_at > now()",
            digest,
        )
        if not found or found[0][1] != name:
            return False
        ((worker, _, activation),) = found
        own = hashlib.sha256(f"own {token}".encode()).hexdigest()
        with self.tables.connection.transaction():
            ((number,),) = self.ask(
                "INSERT INTO db_token (token_type, hash, comment, created_at, enabled,"
                " external_username, explicit_grants_only)"
                " VALUES ('worker', %s, '', now(), true, '', false) RETURNING id",
                own,
            )
            self.ask(
                "UPDATE db_worker SET token_id = %s, activation_token_id = NULL,"
                " connected_at = now() WHERE id = %s",
                number,
                worker,
            )
            self.ask("DELETE FROM db_token WHERE id = %s", activation)
        return True

    def assign(self, name: str, request: int) -> None:
        """Give a worker a request that it has fetched."""
        self.ask(
            "INSERT INTO db_workrequest (id, workspace_id, created_at, status, worker_id,"
            " task_type, task_name, priority_base, priority_adjustment,"
            " scheduler_tags_provided, scheduler_tags_required, started_at)"
            " SELECT %s, 1, now(), 'running', id, 'Worker', 'noop', 0, 0, '{}', '{}', now()"
            " FROM db_worker WHERE name = %s",
            request,
            name,
        )

    def vanish(self, name: str) -> None:
        """Note as the server does that a connection has ended."""
        self.ask("UPDATE db_worker SET connected_at = NULL WHERE name = %s", name)

    def takes_work(self, name: str) -> bool:
        """Say whether the scheduler would look for a request, and take any task."""
        static = self.static(name)
        return self.may_talk(name) and static.get("tasks_allowlist") != []

    def may_talk(self, name: str) -> bool:
        """Say whether a worker has a token of its own that works."""
        return bool(
            self.ask(
                "SELECT 1 FROM db_worker w JOIN db_token t ON t.id = w.token_id"
                " WHERE w.name = %s AND t.enabled",
                name,
            )
        )

    def holder_of(self, request: int) -> str | None:
        """Return which worker has a request."""
        found = self.ask(
            "SELECT w.name FROM db_workrequest r JOIN db_worker w ON w.id = r.worker_id"
            " WHERE r.id = %s",
            request,
        )
        return str(found[0][0]) if found else None

    def static(self, name: str) -> dict[str, Any]:
        """Return what administrators wrote of a worker."""
        ((static,),) = self.ask("SELECT static_metadata FROM db_worker WHERE name = %s", name)
        return dict(static)


class FakePlace:
    """The written fake, which plays both parts."""

    def __init__(self) -> None:
        self.registry = self.fake = FakeRegistry()

    def register(self, name: str, token: str) -> bool:
        """Have a machine come with a token."""
        return self.fake.register(name, token)

    def assign(self, name: str, request: int) -> None:
        """Give a worker a request."""
        self.fake.running[name] = str(request)

    def vanish(self, name: str) -> None:
        """Nothing is noted of connections."""

    def takes_work(self, name: str) -> bool:
        """Say whether a worker is given anything."""
        return name in self.fake.registered and name not in self.fake.drained

    def may_talk(self, name: str) -> bool:
        """Say whether a worker is listened to."""
        return name in self.fake.registered

    def holder_of(self, request: int) -> str | None:
        """Return which worker has a request."""
        return next((n for n, each in self.fake.running.items() if each == str(request)), None)


def a_channel(kind: str, url: str) -> Channel:
    """Return one of both ways to a database."""
    if kind == "sql":
        return SqlChannel(lambda: url)
    return CommandChannel(["debusine-admin", url], run_here)


@pytest.fixture
def tables(postgres_url: str) -> Iterator[Tables]:
    """Return Debusine's tables, empty."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        tables = Tables(connection)
        tables.create()
        yield tables


@pytest.fixture(params=["fake", "sql", "command"])
def place(request: pytest.FixtureRequest) -> Place:
    """Return each registry there is."""
    if request.param == "fake":
        return FakePlace()
    tables: Tables = request.getfixturevalue("tables")
    url: str = request.getfixturevalue("postgres_url")
    return DebusinePlace(tables, a_channel(request.param, url))
