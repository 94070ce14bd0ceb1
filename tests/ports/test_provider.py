"""The contract of Provider, MachineApi, Adopter and ConsoleReader, over every kind of provider."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.clouds.aws.machines import AwsMachines
from fleet.clouds.hcloud.machines import HcloudMachines
from fleet.clouds.sim.machines import Menu, SimCloud
from fleet.errors import SourceUnreachable
from fleet.model.facts import FoundMachine, Listing, Machine, Unknown, WorkerInputs
from fleet.ports import ConsoleReader, Provider
from fleet.schema.model import AwsProvider
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import a_machine, some_inputs
from tests.fakes.aws import PROVIDER, Amazon
from tests.fakes.engine import FixedClock
from tests.fakes.machine_api import FakeMachineApi
from tests.fakes.queue import FakeProvider
from tests.ports.engines import a_sim_worker
from tests.rigs.hetzner import a_server
from tests.rigs.hook_machines import a_hook_cloud, hooks_over
from tests.rigs.local_machines import a_local_cloud

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
ONE, TWO, OTHER = "demo-builders-0001", "demo-builders-0002", "demo-two-builders-0001"
OWN = {ONE: {"rack": "a", "team": "kernel"}, TWO: {"rack": "ab"}, OTHER: {}}
"""Labels that machines have beside those of fleet."""
MARKS = {"fleet": "demo", "pool": "others", "worker": ONE, "digest": "0123"}


@dataclass(frozen=True)
class Example:
    """One kind of provider with machines of the fleets demo and demo-two, and one beyond reach."""

    full: Any
    broken: Any
    api: Any = field(default=None)
    """What notes expiries, if it is another."""


def labels_of(name: str) -> dict[str, str]:
    return {"fleet": name.rpartition("-builders-")[0], "pool": "builders"} | OWN[name]


def inputs_of(name: str, **settings: str) -> WorkerInputs:
    labels = {key: value for key, value in labels_of(name).items() if key in ("fleet", "pool")}
    return a_sim_worker(name, labels=labels, settings=settings)


def fake(_: ExitStack, __: Path) -> Example:
    made = {n: a_machine(name=n, id=n, created_at=NOW) for n in (TWO, ONE, OTHER)}
    fleets = {"demo": (made[TWO], made[ONE]), "demo-two": (made[OTHER],)}
    api = FakeMachineApi(ONE, TWO)
    broken = FakeProvider(NOW, broken="it is switched off")
    return Example(FakeProvider(NOW, fleets), broken, api)


def sim(_: ExitStack, folder: Path) -> Example:
    cloud = SimCloud(folder / "cloud.json", FixedClock(NOW))
    cloud.configure(Menu(boot=0, types={"ccx33": None}))
    for name in (TWO, ONE, OTHER):
        cloud.create(a_sim_worker(name, labels=labels_of(name)))
    (folder / "broken.json").write_text("no JSON")
    return Example(cloud, SimCloud(folder / "broken.json", FixedClock(NOW)))


def local(stack: ExitStack, folder: Path) -> Example:
    machines = a_local_cloud(folder / "machines", NOW)
    for name in (TWO, ONE, OTHER):
        stack.callback(machines.delete, machines.create(inputs_of(name, run="sleep infinity")))
    (folder / "broken").write_text("no folder")
    return Example(machines, a_local_cloud(folder / "broken", NOW))


def hooks(_: ExitStack, folder: Path) -> Example:
    machines = a_hook_cloud(folder / "here")
    for name in (TWO, ONE, OTHER):
        machines.create(inputs_of(name))
    broken = a_hook_cloud(folder / "broken", list="echo []; exit 1")
    return Example(hooks_over(folder / "here", NOW), broken)


def hcloud(stack: ExitStack, _: Path) -> Example:
    api = stack.enter_context(SimulatedHetzner())
    for name in (TWO, ONE, OTHER):
        a_server(api, name, labels=labels_of(name))
    full, broken = (
        HcloudMachines(token, base_url=api.endpoint, now=lambda: NOW)
        for token in (api.token, "made-up-wrong-token")
    )
    return Example(full, broken)


def aws(stack: ExitStack, _: Path) -> Example:
    amazon = stack.enter_context(Amazon())
    for name in (TWO, ONE, OTHER):
        amazon.launch(name, fleet=labels_of(name)["fleet"], type="ccx33")
    nowhere = AwsProvider.model_validate({"kind": "aws", "region": "the moon"})
    return Example(AwsMachines(PROVIDER, now=lambda: NOW), AwsMachines(nowhere))


KINDS = [
    *(fake, sim, local, hooks, hcloud, aws),
]


def each_of(*makers: Callable[[ExitStack, Path], Example]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", makers, indirect=True)


@pytest.fixture(params=KINDS)
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Example]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path)


def listed(provider: Provider, fleet: str = "demo") -> Listing:
    listing = provider.list(fleet)
    assert isinstance(listing, Listing), listing
    return listing


def ids(example: Example) -> list[str]:
    return [machine.id for machine in listed(example.full).machines]


# Provider


def test_listing_has_machines_of_exactly_this_fleet(example: Example) -> None:
    listing = listed(example.full)

    assert listing.read_at == NOW
    assert [machine.name for machine in listing.machines] == [ONE, TWO]
    assert {(each.pool, each.type) for each in listing.machines} == {("builders", "ccx33")}
    assert len(set(ids(example))) == 2
    assert listed(example.full) == listing
    assert [listed(example.full, name).machines for name in ("demo-t", "nobody")] == [(), ()]


def test_unreadable_provider_is_unknown_with_reason(example: Example) -> None:
    unknown = example.broken.list("demo")

    assert isinstance(unknown, Unknown)
    assert len(unknown.unknown.split()) > 3


# MachineApi


@each_of(fake, sim, local, hcloud, aws)
def test_extend_notes_expiry_of_its_machines_only(example: Example) -> None:
    one, two = ids(example)
    api = example.api or example.full

    def expiries() -> dict[str, datetime | None]:
        if isinstance(api, FakeMachineApi):
            return api.expiries
        assert listed(api).notes_expiry
        return {machine.id: machine.expires for machine in listed(api).machines}

    before = dict(expiries())
    api.extend([two], LATER)
    first = dict(expiries())
    api.extend([one, two], LATER)
    api.extend([one], LATER + timedelta(hours=1))

    assert before == {one: None, two: None}
    assert first == {one: None, two: LATER}
    assert expiries() == {one: LATER + timedelta(hours=1), two: LATER}


@each_of(fake, sim, local, hcloud, aws)
def test_extend_and_delete_skip_a_missing_machine(example: Example) -> None:
    one, two = ids(example)
    api = example.api or example.full

    for _ in range(2):
        api.delete(one)
    api.extend([one, two], LATER)

    assert [*api.expiries] == [two] if example.api else ids(example) == [two]


def test_extending_expiry_keeps_machine_inputs(tmp_path: Path) -> None:
    cloud = sim(ExitStack(), tmp_path).full
    before = cloud.read("sim-1")

    cloud.extend(["sim-1"], LATER)

    assert before == cloud.read("sim-1")


# Adopter


def found_by(example: Example, value: str = "a") -> FoundMachine:
    (found,) = example.full.find("rack", value)
    assert isinstance(found, FoundMachine)
    return found


def bare(machine: Machine) -> Machine:
    return machine.altered(pool="", digest=None)


@each_of(sim, hcloud)
def test_machine_is_found_by_its_complete_label(example: Example) -> None:
    found = found_by(example)

    assert (found.machine.name, found.labels) == (ONE, labels_of(ONE))
    made_from = (found.machine.type, found.machine.image, found.architecture, found.settings)
    assert made_from == ("ccx33", "debian-13", "amd64", {"location": "fsn1"})
    for label in (("rack", "b"), ("rac", "a"), ("rack", "a,team"), ("ra ck", "ä")):
        assert list(example.full.find(*label)) == []


@each_of(sim, hcloud)
def test_mark_changes_only_labels_of_its_machine(example: Example) -> None:
    before = found_by(example)

    marks = some_inputs(name=ONE, labels=MARKS, type="ccx63", image="other")
    example.full.mark(before.machine.id, marks)

    after = found_by(example)
    assert after.labels == labels_of(ONE) | MARKS
    assert (bare(after.machine), after.settings) == (bare(before.machine), before.settings)
    assert found_by(example, "ab").labels == labels_of(TWO)


@each_of(sim, hcloud)
def test_adopter_fails_when_source_or_machine_is_missing(example: Example) -> None:
    with pytest.raises(SourceUnreachable):
        example.full.mark("4711", some_inputs(name=ONE, labels=MARKS))
    with pytest.raises(SourceUnreachable):
        example.broken.find("rack", "a")


# ConsoleReader


@each_of(sim, local, aws)
def test_console_is_text_of_an_existing_machine(example: Example) -> None:
    assert isinstance(example.full, ConsoleReader)
    assert isinstance(example.full.console(ids(example)[0]), str)
    with pytest.raises(SourceUnreachable):
        example.full.console("i-0123456789abcdef0")
