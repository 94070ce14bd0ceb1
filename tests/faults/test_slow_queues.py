"""Queues that take their time are read side by side: one that is silent holds no other up."""

import threading
from contextlib import ExitStack

from fleet.facts import Unknown
from fleet.operate.observe import Sources, observe
from tests.builders import NOW, a_fleet
from tests.fakes.engine import FakeEngine
from tests.fakes.store import FakeStore, Shelf
from tests.rigs.debusine import rest
from tests.rigs.loopback import Answer, Loopback, Received, html


def test_queues_are_read_side_by_side() -> None:
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
                store=FakeStore(Shelf(), "debian-ci"),
            ),
            NOW,
        )

    demands = {name: reading.demand for name, reading in world.queues.items()}
    assert list(demands) == sorted(at)
    for demand in demands.values():
        assert isinstance(demand, Unknown)
        assert "HTML page" in demand.unknown
