"""The contract of the port Adopter, over the fake, the simulated cloud and Hetzner's API."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.clouds.hcloud.machines import HcloudMachines
from fleet.clouds.sim.machines import Menu, SimCloud
from fleet.errors import SourceUnreachable
from fleet.model.facts import FoundMachine, WorkerInputs
from fleet.ports import Adopter
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW, a_machine, some_inputs
from tests.fakes.adopter import FakeAdopter
from tests.fakes.engine import FixedClock
from tests.rigs.hetzner import a_server

LABELS = {"builder-01": {"rack": "a", "team": "kernel"}, "builder-02": {"rack": "ab"}}
MARKS = {"fleet": "debian-ci", "pool": "builders", "worker": "builder-01", "digest": "0123"}


@dataclass(frozen=True)
class Example:
    """An adopter of two machines, and one that cannot be asked."""

    adopter: Adopter
    broken: Adopter


def fake(_: ExitStack, __: Path) -> Example:
    found = [
        FoundMachine(
            machine=a_machine(name=name, id=name, pool="", type="ccx33", image="debian-13"),
            architecture="amd64",
            labels=labels,
            settings={"location": "fsn1"},
        )
        for name, labels in LABELS.items()
    ]
    broken = FakeAdopter()
    broken.silent = True
    return Example(FakeAdopter(*found), broken)


def sim(_: ExitStack, folder: Path) -> Example:
    cloud = SimCloud(folder / "cloud.json", FixedClock(NOW))
    cloud.configure(Menu(boot=0, types={"ccx33": None}))
    for name, labels in LABELS.items():
        made = {"image": "debian-13", "settings": {"location": "fsn1"}}
        cloud.create(some_inputs(name=name, labels=labels, **made))
    (folder / "broken.json").write_text("no JSON")
    return Example(cloud, SimCloud(folder / "broken.json", FixedClock(NOW)))


def hcloud(stack: ExitStack, _: Path) -> Example:
    api = stack.enter_context(SimulatedHetzner())
    for name, labels in LABELS.items():
        a_server(api, name, labels=labels)
    return Example(
        HcloudMachines(api.token, base_url=api.endpoint),
        HcloudMachines("made-up-wrong-token", base_url=api.endpoint),
    )


@pytest.fixture(params=[fake, sim, hcloud])
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Example]:
    make: Callable[[ExitStack, Path], Example] = request.param
    with ExitStack() as stack:
        yield make(stack, tmp_path)


def marks(**overrides: object) -> WorkerInputs:
    return some_inputs(name="builder-01", labels=MARKS, **overrides)


def found_by(adopter: Adopter, key: str = "rack", value: str = "a") -> FoundMachine:
    (found,) = adopter.find(key, value)
    return found


def test_machine_is_found_by_its_complete_label(example: Example) -> None:
    assert found_by(example.adopter).machine.name == "builder-01"


@pytest.mark.parametrize(
    ("key", "value"), [("rack", "b"), ("rac", "a"), ("rack", "a,team"), ("ra ck", "ä")]
)
def test_unknown_label_finds_no_machine(example: Example, key: str, value: str) -> None:
    assert list(example.adopter.find(key, value)) == []


def test_found_machine_has_its_inputs(example: Example) -> None:
    found = found_by(example.adopter)

    made_from = (found.machine.type, found.machine.image, found.architecture, found.settings)
    assert made_from == ("ccx33", "debian-13", "amd64", {"location": "fsn1"})
    assert found.labels == LABELS["builder-01"]


def test_mark_keeps_existing_labels(example: Example) -> None:
    machine_id = found_by(example.adopter).machine.id

    example.adopter.mark(machine_id, marks())

    assert found_by(example.adopter).labels == LABELS["builder-01"] | MARKS


def test_mark_changes_only_labels(example: Example) -> None:
    before = found_by(example.adopter)

    example.adopter.mark(before.machine.id, marks(type="ccx63", image="other"))

    after = found_by(example.adopter)
    assert after.machine.altered(pool="", digest=None) == before.machine
    assert after.settings == before.settings


def test_mark_changes_only_its_machine(example: Example) -> None:
    example.adopter.mark(found_by(example.adopter).machine.id, marks())

    assert found_by(example.adopter, "rack", "ab").labels == LABELS["builder-02"]


def test_missing_machine_cannot_be_marked(example: Example) -> None:
    with pytest.raises(SourceUnreachable):
        example.adopter.mark("4711", marks())


def test_adopter_fails_when_source_is_unreachable(example: Example) -> None:
    with pytest.raises(SourceUnreachable):
        example.broken.find("rack", "a")
