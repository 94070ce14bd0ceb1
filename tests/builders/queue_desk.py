"""Apply plans for a fleet with a queue: its registry and engine are fakes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fleet.apply.observe import Sources
from fleet.apply.run import apply_plan
from fleet.model.facts import World
from fleet.model.history import Outcome
from fleet.model.plan import Plan
from fleet.model.user_data import read_user_data
from fleet.schema.model import Fleet
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from tests.builders import (
    NOW,
    a_create,
    a_listing,
    a_machine,
    a_plan,
    a_pool_verdict,
    a_reading,
    a_world,
    some_inputs,
)
from tests.builders.queue_worlds import a_debusine_fleet
from tests.fakes.engine import FakeEngine
from tests.fakes.queue import FakeProvider
from tests.fakes.registry import FakeRegistry
from tests.fakes.source_reader import FakeSourceReader


@dataclass
class TicketDesk:
    """One fleet with a queue, its fakes, and what apply said."""

    store: Store
    engine: FakeEngine = field(default_factory=FakeEngine)
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    fleet: Fleet = field(default_factory=a_debusine_fleet)
    said: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Return a desk with a new store in a folder."""
        store = Store(sqlite_url(folder / "store.db"), "debian-ci")
        store.init()
        return cls(store)

    def make(self, *names: str, listed: tuple[str, ...] = ()) -> Outcome:
        """Apply a plan that makes these machines, while the provider lists those."""
        creates = [
            a_create(worker=name, registry="debian", inputs=some_inputs(name=name))
            for name in names
        ]
        return self.apply(*creates, listed=listed)

    def apply(
        self,
        *actions: object,
        listed: tuple[str, ...] = (),
        rivals: tuple[str, ...] = (),
        **plan: object,
    ) -> Outcome:
        """Apply a plan that does this, in a world that holds what the engine has recorded."""
        stacks = dict(zip(["builders"], self.engine.stacks.values(), strict=False))
        world = a_world(
            queues={"debian": a_reading(rivals=rivals)},
            providers={"desk": a_listing(*(a_machine(name=name) for name in listed))},
            stacks=stacks,
        )
        pools = (a_pool_verdict(provider="desk"),)
        return self.carry_out(world, a_plan(actions=actions, pools=pools, **plan))

    def carry_out(self, world: World, plan: Plan) -> Outcome:
        """Apply a plan that was made from a world."""
        sources = Sources(
            asking=FakeSourceReader,
            queues={},
            providers={"desk": FakeProvider(NOW)},
            registries={"debian": self.registry},
            enrollers={"debian": self.registry},
            engine_of=lambda _: self.engine,
            store=self.store,
        )
        return apply_plan(self.fleet, world, plan, sources, self.said.append)

    def token_of(self, name: str) -> str:
        """Return the token that a machine was given."""
        files = read_user_data(self.engine.given[name]).files
        return next(file.content for file in files if file.path.endswith("activation-token"))
