"""What every Provider promises, run over every kind of provider."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.clouds.aws.machines import AwsMachines
from fleet.clouds.hcloud.machines import HcloudMachines
from fleet.clouds.sim.machines import Menu, SimCloud
from fleet.model.facts import Listing, Machine, MachineState, Unknown, WorkerInputs
from fleet.ports import Provider
from fleet.schema.model import AwsProvider
from simulators.hetzner.server import SimulatedHetzner
from tests.fakes.aws import PROVIDER, Amazon
from tests.fakes.engine import FixedClock
from tests.fakes.queue import FakeProvider
from tests.ports.engines import a_sim_worker
from tests.rigs.hetzner import a_server
from tests.rigs.hook_machines import a_hook_cloud, hooks_over
from tests.rigs.local_machines import a_local_cloud

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
DEMO = ("demo-builders-0002", "demo-builders-0001")
OTHER = "demo-two-builders-0001"


@dataclass(frozen=True)
class Example:
    """One kind of provider with machines of the fleets demo and demo-two, and one beyond reach."""

    full: Provider
    broken: Provider


def _fake(_: ExitStack, __: Path) -> Example:
    def machine(name: str) -> Machine:
        return Machine(
            name=name,
            id=name,
            pool="builders",
            type="ccx33",
            state=MachineState.RUNNING,
            created_at=NOW,
        )

    fleets = {"demo": tuple(map(machine, DEMO)), "demo-two": (machine(OTHER),)}
    return Example(FakeProvider(NOW, fleets), FakeProvider(NOW, broken="it is switched off"))


def _sim(_: ExitStack, folder: Path) -> Example:
    cloud = SimCloud(folder / "cloud.json", FixedClock(NOW))
    cloud.configure(Menu(types={"ccx33": None}))
    for name in (*DEMO, OTHER):
        labels = {
            "fleet": name.rpartition("-builders-")[0],
            "pool": "builders",
        }
        cloud.create(WorkerInputs(name=name, type="ccx33", image="trixie", labels=labels))
    (folder / "broken.json").write_text("no JSON")
    return Example(cloud, SimCloud(folder / "broken.json", FixedClock(NOW)))


def _local(stack: ExitStack, folder: Path) -> Example:
    machines = a_local_cloud(folder / "machines", NOW)
    for name in (*DEMO, OTHER):
        labels = {
            "fleet": name.rpartition("-builders-")[0],
            "pool": "builders",
        }
        inputs = a_sim_worker(name, labels=labels, settings={"run": "sleep infinity"})
        stack.callback(machines.delete, machines.create(inputs))
    (folder / "broken").write_text("no folder")
    return Example(machines, a_local_cloud(folder / "broken", NOW))


def _hooks(_: ExitStack, folder: Path) -> Example:
    machines = a_hook_cloud(folder / "here")
    for name in (*DEMO, OTHER):
        labels = {
            "fleet": name.rpartition("-builders-")[0],
            "pool": "builders",
        }
        machines.create(a_sim_worker(name, labels=labels))
    machines = hooks_over(folder / "here", NOW)
    return Example(machines, a_hook_cloud(folder / "broken", list="echo []; exit 1"))


def _hcloud(stack: ExitStack, _: Path) -> Example:
    api = stack.enter_context(SimulatedHetzner())
    for name in DEMO:
        a_server(api, name)
    a_server(api, OTHER, labels={"fleet": "demo-two", "pool": "builders"})
    return Example(
        HcloudMachines(api.token, base_url=api.endpoint, now=lambda: NOW),
        HcloudMachines("made-up-wrong-token", base_url=api.endpoint, now=lambda: NOW),
    )


def _aws(stack: ExitStack, _: Path) -> Example:
    amazon = stack.enter_context(Amazon())
    for name in (*DEMO, OTHER):
        amazon.launch(
            name,
            fleet=name.rpartition("-builders-")[0],
            type="ccx33",
        )
    nowhere = AwsProvider.model_validate({"kind": "aws", "region": "the moon"})
    return Example(AwsMachines(PROVIDER, now=lambda: NOW), AwsMachines(nowhere))


MAKERS = {
    "fake": _fake,
    "sim": _sim,
    "local": _local,
    "hooks": _hooks,
    "hcloud": _hcloud,
    "aws": _aws,
}


@pytest.fixture(params=MAKERS.values(), ids=list(MAKERS))
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Example]:
    make: Callable[[ExitStack, Path], Example] = request.param
    with ExitStack() as stack:
        yield make(stack, tmp_path)


def _listing(provider: Provider, fleet: str) -> Listing:
    listing = provider.list(fleet)
    assert isinstance(listing, Listing), listing
    return listing


def test_listing_has_machines_of_exactly_this_fleet(example: Example) -> None:
    names = [machine.name for machine in _listing(example.full, "demo").machines]

    assert names == sorted(DEMO)


def test_listing_excludes_fleet_with_longer_name(example: Example) -> None:
    assert _listing(example.full, "demo-t").machines == ()


def test_listing_is_empty_without_machines(example: Example) -> None:
    assert _listing(example.full, "nobody").machines == ()


def test_listed_machine_has_pool_and_type(example: Example) -> None:
    machines = _listing(example.full, "demo").machines

    assert {(machine.pool, machine.type) for machine in machines} == {("builders", "ccx33")}


def test_no_two_machines_share_an_id(example: Example) -> None:
    ids = [machine.id for machine in _listing(example.full, "demo").machines]

    assert len(set(ids)) == len(ids)


def test_listing_has_time_of_its_start(example: Example) -> None:
    assert _listing(example.full, "demo").read_at == NOW


def test_listing_changes_no_machine(example: Example) -> None:
    assert example.full.list("demo") == example.full.list("demo")


def test_unreadable_provider_is_unknown_with_reason(example: Example) -> None:
    unknown = example.broken.list("demo")

    assert isinstance(unknown, Unknown)
    assert len(unknown.unknown.split()) > 3
