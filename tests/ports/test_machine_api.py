"""The contract of the port MachineApi, over the fake and everything that keeps machines."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fleet.clouds.aws.machines import AwsMachines
from fleet.clouds.hcloud.machines import HcloudMachines
from fleet.clouds.local.cloud import LocalMachines
from fleet.clouds.sim.machines import Menu, SimCloud
from fleet.model.facts import Listing
from fleet.ports import MachineApi
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW, some_inputs
from tests.fakes.aws import PROVIDER, Amazon
from tests.fakes.engine import FixedClock
from tests.fakes.machine_api import FakeMachineApi
from tests.rigs.hetzner import a_server
from tests.rigs.local_machines import a_local_cloud, end_machines

Kept = tuple[MachineApi, str, str, Callable[[], dict[str, datetime | None]]]
LATER = NOW + timedelta(days=1)


def fake_kept(_: ExitStack, __: Path) -> Kept:
    machine_api = FakeMachineApi("one", "two")
    return machine_api, "one", "two", lambda: machine_api.expiries


def sim_kept(_: ExitStack, folder: Path) -> Kept:
    cloud = SimCloud(folder / "cloud.json", FixedClock(NOW))
    cloud.configure(Menu(types={"ccx33": None}))
    return cloud_kept(cloud)


def local_kept(_: ExitStack, folder: Path) -> Kept:
    return cloud_kept(a_local_cloud(folder / "machines"))


def aws_kept(stack: ExitStack, _: Path) -> Kept:
    amazon = stack.enter_context(Amazon())
    one, two = (amazon.launch(f"b-{n}", fleet="debian-ci") for n in (1, 2))
    return kept_of(AwsMachines(PROVIDER), one, two)


def hcloud_kept(stack: ExitStack, _: Path) -> Kept:
    hetzner = stack.enter_context(SimulatedHetzner())
    labels = {"fleet": "debian-ci", "pool": "b"}
    one, two = (str(a_server(hetzner, labels=labels, name=f"b-{n}")["id"]) for n in (1, 2))
    return kept_of(HcloudMachines(hetzner.token, base_url=hetzner.endpoint), one, two)


def cloud_kept(cloud: SimCloud | LocalMachines) -> Kept:
    labels = {"fleet": "debian-ci", "pool": "builders"}
    made = {"labels": labels, "settings": {"run": "sleep infinity"}}
    one, two = (cloud.create(some_inputs(name=f"b-{n}", **made)) for n in (1, 2))
    return kept_of(cloud, one, two)


def kept_of(
    cloud: SimCloud | LocalMachines | AwsMachines | HcloudMachines, one: str, two: str
) -> Kept:
    def expiries() -> dict[str, datetime | None]:
        listing = cloud.list("debian-ci")
        assert isinstance(listing, Listing)
        assert listing.notes_expiry
        return {machine.id: machine.expires for machine in listing.machines}

    return cloud, one, two, expiries


@pytest.fixture(params=[fake_kept, sim_kept, local_kept, aws_kept, hcloud_kept])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """Return a machine_api of two machines, their ids, and what tells their expiries."""
    with ExitStack() as stack:
        stack.callback(end_machines, tmp_path)
        yield request.param(stack, tmp_path)


def test_machine_has_no_expiry_at_first(kept: Kept) -> None:
    _, one, two, expiries = kept

    assert expiries() == {one: None, two: None}


def test_extend_changes_only_its_machines(kept: Kept) -> None:
    machine_api, one, two, expiries = kept

    machine_api.extend([two], LATER)

    assert expiries() == {one: None, two: LATER}


def test_latest_expiry_replaces_earlier_one(kept: Kept) -> None:
    machine_api, one, two, expiries = kept
    machine_api.extend([one, two], LATER)

    machine_api.extend([one], LATER + timedelta(hours=1))

    assert expiries() == {one: LATER + timedelta(hours=1), two: LATER}


def test_extend_skips_missing_machine(kept: Kept) -> None:
    machine_api, one, two, expiries = kept
    machine_api.delete(one)

    machine_api.delete(one)
    machine_api.extend([one, two], LATER)

    assert expiries() == {two: LATER}


def test_extending_expiry_keeps_machine_inputs(tmp_path: Path) -> None:
    cloud, one, _, _ = sim_kept(ExitStack(), tmp_path)
    assert isinstance(cloud, SimCloud)
    before = cloud.read(one)

    cloud.extend([one], LATER)

    assert cloud.read(one) == before
