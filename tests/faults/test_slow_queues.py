"""Sources that take their time are asked side by side, under one deadline for all of them."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pytest

from fleet.apply.observe import Concurrently, Sources, observe
from fleet.errors import SourceUnreachable
from fleet.model.facts import Demand, Unknown
from tests.builders import NOW, a_fleet
from tests.builders.sentences import tells
from tests.builders.stores import new_store
from tests.fakes.engine import FakeEngine
from tests.fakes.price_reader import FakePriceReader
from tests.fakes.queue import FakeQueue
from tests.rigs.debusine import rest
from tests.rigs.loopback import Answer, Loopback, Received, html


def test_queues_are_read_concurrently() -> None:
    together = threading.Barrier(4)

    def answer(_: Received) -> Answer:
        # Whoever is read alone waits here for ever, and is broken off.
        together.wait(20)
        return html()

    with ExitStack() as servers:
        at = {f"queue-{n}": servers.enter_context(Loopback(answer)).url for n in range(4)}
        world = observe(
            a_fleet(),
            Sources(
                queues={name: rest(url) for name, url in at.items()},
                providers={},
                registries={},
                engine_of=lambda _: FakeEngine("embedded"),
                store=new_store(created=False),
                asking=Concurrently,
            ),
            NOW,
        )

    demands = {name: reading.demand for name, reading in world.queues.items()}
    assert list(demands) == sorted(at)
    for demand in demands.values():
        assert isinstance(demand, Unknown)
        assert "HTML page" in demand.unknown


class _Silent:
    """A source of any kind that says nothing until the test is over."""

    location = "fsn1"

    def __init__(self) -> None:
        self.over = threading.Event()

    def read(self, *_: object) -> NoReturn:
        self.over.wait()
        raise SourceUnreachable("heard by nobody")

    list = read


@pytest.fixture
def silent() -> Iterator[_Silent]:
    source = _Silent()
    yield source
    source.over.set()


def _sources() -> Sources:
    return Sources(
        queues={},
        providers={},
        registries={},
        engine_of=lambda _: FakeEngine("embedded"),
        store=new_store(),
        asking=partial(Concurrently, 0.1),
    )


def test_late_queue_is_unknown_while_others_are_read(silent: _Silent) -> None:
    world = observe(
        a_fleet(), replace(_sources(), queues={"debian": FakeQueue(), "far": silent}), NOW
    )

    assert isinstance(world.queues["debian"].demand, Demand)
    late = world.queues["far"]
    assert isinstance(late.demand, Unknown)
    assert isinstance(late.workers, Unknown)
    assert "queue far" in late.demand.unknown
    assert "0.1 s" in late.demand.unknown


def test_source_after_deadline_names_the_slow_source(
    silent: _Silent,
) -> None:
    prices = FakePriceReader(None)

    world = observe(
        a_fleet(),
        replace(
            _sources(),
            providers={"hetzner": silent},
            queues={"debian": FakeQueue()},
            prices={"hetzner": prices},
        ),
        NOW,
    )

    for told in (
        world.providers["hetzner"],
        world.queues["debian"].demand,
        world.stacks["builders"] if isinstance(world.stacks, dict) else None,
        world.prices["hetzner"],
    ):
        assert isinstance(told, Unknown)
        assert tells(told.unknown, "0.1 s", "provider hetzner")
    assert prices.asked == 0


def test_late_rules_are_unknown_at_each_place(silent: _Silent) -> None:
    debian = {
        "kind": "debusine",
        "url": "https://debusine.example.org",
        "scopes": ["debian"],
        "rules": {"workspaces": ["debian/developers", "debian/qa"]},
    }
    fleet = a_fleet(queues={"debian": debian})

    world = observe(
        fleet, replace(_sources(), queues={"debian": FakeQueue()}, rules={"debian": silent}), NOW
    )

    rules = world.queues["debian"].rules
    assert list(rules) == ["debian/developers", "debian/qa"]
    assert all(isinstance(each, Unknown) for each in rules.values())


@pytest.mark.slow
def test_late_source_does_not_delay_exit() -> None:
    late = (
        "import threading\n"
        "from fleet.apply.observe import Concurrently\n"
        "print(Concurrently(0.1)('queue', {'far': threading.Event().wait})['far'].unknown)\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", late], capture_output=True, text=True, check=True, timeout=60
    )

    assert "queue far" in ended.stdout
