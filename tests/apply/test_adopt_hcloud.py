"""Servers that exist at Hetzner are imported into the pool's Pulumi stack, and only labelled."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.apply.observe import Sources, observe
from fleet.cli.adopt import adopt_machines, judge_adoption
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW, a_fleet, a_pool
from tests.builders.stores import new_store
from tests.fakes.source_reader import FakeSourceReader
from tests.ports.hcloud_rig import HcloudRig, skip_without_plugin
from tests.rigs.hetzner import a_server

NAME = "builder-01"
FLEET = a_fleet(
    fleet="debian",
    providers={"desk": {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}},
    queues={},
    images={"trixie": {"existing": {"desk": "debian-13"}}},
    pools={"builders": a_pool(provider="desk")},
)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[HcloudRig]:
    skip_without_plugin()
    with SimulatedHetzner() as api:
        yield HcloudRig(tmp_path, api)


@pytest.mark.engine
def test_server_is_imported_under_its_id_without_an_api_action(rig: HcloudRig) -> None:
    server = a_server(rig.api, NAME, labels={"rack": "a"})
    done = len(rig.api.state.resources["actions"])
    store = new_store("debian")
    sources = Sources(
        asking=FakeSourceReader,
        queues={},
        providers={"desk": rig.cloud},
        registries={},
        engine_of=lambda _: rig.engine,
        store=store,
    )
    found = rig.cloud.find("rack", "a")
    world = observe(FLEET, sources, NOW)
    adoption = judge_adoption(FLEET, world, "builders", found, outdated_too=False)

    adopt_machines(rig.ref, adoption, rig.cloud, sources, lambda _: None)

    stack = rig.engine.read(rig.ref)
    assert getattr(stack, "ids", None) == {NAME: str(server["id"])}
    assert rig.engine.preview(rig.ref, getattr(stack, "workers", ())) == ()
    assert len(rig.api.state.resources["actions"]) == done
    assert rig.labels(NAME)["rack"] == "a"
