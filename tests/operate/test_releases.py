"""Workers whose machines are gone are switched off before anything else; rivals are refused."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.errors import SourceUnreachable
from fleet.facts import QueueReading
from fleet.operate.apply import apply_plan
from fleet.operate.observe import Sources
from fleet.plan import Outcome, Release
from fleet.store.database import DatabaseStore
from tests.builders import (
    NOW,
    a_create,
    a_listing,
    a_plan,
    a_pool_verdict,
    a_sim_fleet,
    a_world,
    some_inputs,
)
from tests.fakes_engine import FakeEngine
from tests.fakes_queue import FakeProvider
from tests.fakes_registry import FakeRegistry

FIRST, SECOND = "debian-ci-builders-1", "debian-ci-builders-2"
GONE = Release(pool="builders", worker=FIRST, registry="debian", because="its machine is gone")
QUEUE = {
    "kind": "debusine",
    "url": "https://debusine.example.org",
    "scopes": ["debian"],
    "admin": ["debusine-admin"],
}


@dataclass
class Desk:
    """One fleet with a queue, its fakes, and what apply said."""

    store: DatabaseStore
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    engine: FakeEngine = field(default_factory=FakeEngine)
    said: list[str] = field(default_factory=list)

    def apply(self, *actions: object, rivals: tuple[str, ...] = ()) -> Outcome:
        """Apply a plan that releases the first worker, and does this."""
        plan = a_plan(actions=actions, releases=(GONE,), pools=(a_pool_verdict(provider="desk"),))
        reading = QueueReading.model_validate(
            {"demand": {"read_at": NOW}, "workers": (), "rivals": rivals}
        )
        world = a_world(queues={"debian": reading}, providers={"desk": a_listing()}, stacks={})
        sources = Sources(
            queues={},
            providers={"desk": FakeProvider(NOW)},
            registries={"debian": self.registry},
            enrollers={"debian": self.registry},
            engine_of=lambda _: self.engine,
            store=self.store,
        )
        fleet = a_sim_fleet(queues={"debian": QUEUE})
        return apply_plan(fleet, world, plan, sources, self.said.append)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian-ci")
    store.init()
    return Desk(store)


def test_a_worker_that_is_left_behind_is_released(desk: Desk) -> None:
    outcome = desk.apply()

    assert desk.registry.released == [FIRST]
    assert outcome.released == (FIRST,)
    assert f"builders: release {FIRST}: its machine is gone" in desk.said


def test_what_cannot_be_released_does_not_stop_the_rest(desk: Desk) -> None:
    class Silent(FakeRegistry):
        def release(self, worker: str) -> None:
            raise SourceUnreachable(f"the database does not answer about {worker}")

    desk.registry = Silent()

    outcome = desk.apply(a_create(worker=SECOND, inputs=some_inputs(name=SECOND)))

    assert (outcome.released, outcome.stacks[0].created) == ((), (SECOND,))
    assert f"{FIRST} was not released: the database does not answer" in desk.said[0]


def test_where_a_queue_makes_machines_by_itself_nothing_is_changed(desk: Desk) -> None:
    create = a_create(worker=SECOND, registry="debian", inputs=some_inputs(name=SECOND))

    outcome = desk.apply(create, rivals=("own-amd64", "own-arm64"))

    assert outcome.exit_code == 4
    assert "for its own worker pools own-amd64, own-arm64" in outcome.refused[0]
    assert (desk.engine.machines, desk.registry.released) == ({}, [])
