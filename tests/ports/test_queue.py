"""This module holds what every Queue promises, run over the fake, REST and a recording."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.facts import Demand, Unknown
from fleet.ports import Queue
from fleet.queues.debusine.rest import DebusineRest
from fleet.queues.world import WorldQueue, read_world
from fleet.schema import model
from tests.fakes_queue import FakeFiles, FakeQueue
from tests.replay import PENDING, TOKEN, Replay

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
WORLD = (Path(__file__).parent.parent.parent / "world.json").read_bytes()


@dataclass(frozen=True)
class Example:
    """One kind of queue: with the recorded requests in it, and beyond reach."""

    full: Queue
    broken: Queue


def _fake(_: ExitStack) -> Example:
    recorded = read_world("world.json", FakeFiles({"world.json": WORLD})).queues["debian"].demand
    assert isinstance(recorded, Demand)
    return Example(FakeQueue(*recorded.requests), FakeQueue(broken="it is switched off"))


def _debusine(stack: ExitStack) -> Example:
    server = stack.enter_context(Replay(*PENDING, "open-metrics-work-requests"))
    queue = model.DebusineQueue(kind="debusine", url=server.url, scopes=["debian"])
    return Example(DebusineRest(queue, TOKEN), DebusineRest(queue, "made-up-wrong-token"))


def _world(_: ExitStack) -> Example:
    files = FakeFiles({"world.json": WORLD})
    there = model.WorldQueue(kind="world", path="world.json")
    missing = model.WorldQueue(kind="world", path="gone.json")
    return Example(WorldQueue(there, files), WorldQueue(missing, files))


@pytest.fixture(params=[_fake, _debusine, _world], ids=["fake", "debusine", "world"])
def example(request: pytest.FixtureRequest) -> Iterator[Example]:
    make: Callable[[ExitStack], Example] = request.param
    with ExitStack() as stack:
        yield make(stack)


def _demand(queue: Queue) -> Demand:
    demand = queue.read(NOW).demand
    assert isinstance(demand, Demand), demand
    return demand


def test_a_reading_holds_every_request_that_waits(example: Example) -> None:
    assert len(_demand(example.full).requests) == 27


def test_a_reading_is_as_old_as_its_beginning(example: Example) -> None:
    assert _demand(example.full).read_at == NOW


def test_reading_changes_nothing(example: Example) -> None:
    assert example.full.read(NOW) == example.full.read(NOW)


def test_no_two_requests_share_an_id(example: Example) -> None:
    ids = [request.id for request in _demand(example.full).requests]

    assert len(set(ids)) == len(ids)


def test_requests_stand_in_the_order_in_which_they_are_served(example: Example) -> None:
    requests = _demand(example.full).requests

    served = [(-request.priority, str(request.pending_since)) for request in requests]
    assert served == sorted(served)


def test_a_queue_without_workers_to_list_has_no_registry(example: Example) -> None:
    assert example.full.read(NOW).workers is None


def test_a_queue_that_cannot_be_read_is_unknown_and_says_why(example: Example) -> None:
    demand = example.broken.read(NOW).demand

    assert isinstance(demand, Unknown)
    assert len(demand.unknown.split()) > 3
