"""A fleet at Hetzner from its first run on, with the real engine and the real provider."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.apply.observe import Sources, observe
from fleet.apply.run import apply_plan
from fleet.apply.shared import apply_shared_stacks
from fleet.engines.pulumi import PulumiBase
from fleet.guard import guard
from fleet.model.facts import World
from fleet.model.history import Outcome
from fleet.reconcile import reconcile
from fleet.state.store import Store
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW, a_request
from tests.builders.sentences import tells
from tests.builders.sharing import NETWORK, a_sharing_fleet
from tests.fakes.queue import FakeQueue
from tests.fakes.registry import FakeRegistry
from tests.fakes.source_reader import FakeSourceReader
from tests.ports.hcloud_rig import HcloudRig, skip_without_plugin
from tests.ports.test_shared_stack_engine import hetzner_base

pytestmark = pytest.mark.engine


@dataclass
class Operator:
    """Somebody who runs `fleet apply` again and again."""

    rig: HcloudRig
    base: PulumiBase
    store: Store
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    said: list[str] = field(default_factory=list)

    def apply(self, waiting: int, **shared: object) -> Outcome:
        """Apply once, while so many requests wait."""
        fleet = a_sharing_fleet(**shared)
        requests = tuple(a_request(id=f"debian/{number}") for number in range(waiting))
        sources = Sources(
            asking=FakeSourceReader,
            queues={"debian": FakeQueue(*requests, workers=())},
            providers={"hetzner": self.rig.cloud},
            registries={"debian": self.registry},
            enrollers={"debian": self.registry},
            engine_of=lambda _: self.rig.engine,
            store=self.store,
            bases={"hetzner": self.base},
        )
        world: World = observe(fleet, sources, NOW)
        world, troubles = apply_shared_stacks(fleet, world, sources, self.said.append)
        plan = guard(fleet, reconcile(fleet, world))
        outcome = apply_plan(fleet, world, plan, sources, self.said.append)
        return outcome.altered(stacks=(*troubles, *outcome.stacks))

    def servers(self) -> list[str]:
        """Return every server of the project, whosever it is."""
        return sorted(each["name"] for each in self.rig.api.state.resources["servers"].values())


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    skip_without_plugin()
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian-ci")
    store.init()
    with SimulatedHetzner() as api:
        rig = HcloudRig(tmp_path, api)
        yield Operator(rig, hetzner_base(tmp_path, api), store)


def test_no_server_is_created_when_base_fails(operator: Operator) -> None:
    operator.rig.api.fail(Fault("POST", "/networks", status=500, count=None))

    outcome = operator.apply(1, network=NETWORK)

    assert tells(outcome.stacks[0].pool, "base", "hetzner")
    assert outcome.exit_code == 1
    assert operator.servers() == []


def test_used_network_is_kept_when_its_key_is_removed(operator: Operator) -> None:
    operator.apply(1, network=NETWORK)

    operator.apply(1)

    assert len(operator.rig.api.state.resources["networks"]) == 1
    assert any("network/debian-ci-hetzner-network" in line for line in operator.said)
