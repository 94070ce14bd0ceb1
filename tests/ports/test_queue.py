"""The contract of Queue, run over the fake, REST, SQL and a recording."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from fleet.model.facts import Demand, Unknown
from fleet.ports import Queue
from fleet.queues.debusine.database import DebusineDatabase
from fleet.queues.debusine.rest import DebusineRest
from fleet.queues.recorded import RecordedQueue, read_world
from fleet.schema import model
from tests.builders import a_fleet
from tests.fakes.files import FakeFiles
from tests.fakes.queue import FakeQueue
from tests.rigs import postgres
from tests.rigs.debusine_tables import Tables
from tests.rigs.recorded import recorded_requests
from tests.rigs.replay import PENDING, TOKEN, Replay

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
WORLD = (Path(__file__).parents[2] / "examples/tutorial/world.json").read_bytes()


@dataclass(frozen=True)
class Example:
    """One kind of queue: with the recorded requests in it, and beyond reach."""

    full: Queue
    broken: Queue


@pytest.fixture(scope="module")
def database(postgres_server: str) -> Iterator[str]:
    """Return the address of a database with the recorded requests in it, or skip loudly."""
    with (
        postgres.database(postgres_server) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        tables = Tables(connection)
        tables.create()
        tables.add_requests(recorded_requests())
        yield url


def _fake(*_: object) -> Example:
    recorded = read_world("world.json", FakeFiles({"world.json": WORLD})).queues["debian"].demand
    assert isinstance(recorded, Demand)
    return Example(FakeQueue(*recorded.requests), FakeQueue(broken="it is switched off"))


def _debusine(stack: ExitStack, _: pytest.FixtureRequest) -> Example:
    server = stack.enter_context(Replay(*PENDING, "open-metrics-work-requests"))
    queue = model.DebusineQueue(kind="debusine", url=server.url, scopes=["debian"])
    return Example(DebusineRest(queue, TOKEN), DebusineRest(queue, "made-up-wrong-token"))


def _sql(_: ExitStack, request: pytest.FixtureRequest) -> Example:
    queue = model.DebusineQueue(kind="debusine", url="http://x", scopes=["debian"])
    there = DebusineDatabase(a_fleet(), queue, request.getfixturevalue("database"))
    return Example(there, DebusineDatabase(a_fleet(), queue, "host=/nowhere"))


def _world(*_: object) -> Example:
    files = FakeFiles({"world.json": WORLD})
    there = model.WorldQueue(kind="world", path="world.json")
    missing = model.WorldQueue(kind="world", path="gone.json")
    return Example(RecordedQueue(there, files), RecordedQueue(missing, files))


@pytest.fixture(params=[_fake, _debusine, _sql, _world], ids=["fake", "debusine", "sql", "world"])
def example(request: pytest.FixtureRequest) -> Iterator[Example]:
    make: Callable[[ExitStack, pytest.FixtureRequest], Example] = request.param
    with ExitStack() as stack:
        yield make(stack, request)


def _demand(queue: Queue) -> Demand:
    demand = queue.read(NOW).demand
    assert isinstance(demand, Demand), demand
    return demand


def test_unreadable_queue_is_unknown_with_reason(example: Example) -> None:
    demand = example.broken.read(NOW).demand

    assert isinstance(demand, Unknown)
    assert len(demand.unknown.split()) > 3


def test_reading_has_every_waiting_request_in_order_of_service(example: Example) -> None:
    demand = _demand(example.full)

    assert (demand.read_at, sum(each.count for each in demand.requests)) == (NOW, 27)
    assert len({each.id for each in demand.requests}) == len(demand.requests)
    served = [(-each.priority, str(each.pending_since)) for each in demand.requests]
    assert served == sorted(served)
    assert example.full.read(NOW) == example.full.read(NOW)


def test_only_a_queue_over_sql_has_a_registry(example: Example) -> None:
    over_sql = isinstance(example.full, DebusineDatabase)

    assert example.full.read(NOW).workers == (() if over_sql else None)
