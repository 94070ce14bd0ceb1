"""Machines that exist are marked and then recorded; nothing of them is made, and none is lost."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from fleet.apply.observe import Sources, observe
from fleet.cli.adopt import Adoption, adopt_machines, judge_adoption
from fleet.clouds.sim.machines import SimCloud
from fleet.errors import PlanRefused, SecretMissing, StackFailed
from fleet.model.facts import WorkerInputs
from fleet.model.history import StackOutcome
from fleet.ports import StackChange, StackRef
from fleet.schema.model import Fleet
from tests.builders import NOW, a_fleet, a_pool
from tests.builders.stores import new_store
from tests.fakes.engine import FakeEngine, Killed
from tests.fakes.source_reader import FakeSourceReader
from tests.ports.engines import REF, EmbeddedRig, PulumiRig, a_sim_worker, read, skip_without_cli
from tests.ports.test_engine import PULUMI

NAME = "builder-01"
FLEET = a_fleet(
    fleet="debian",
    providers={"desk": {"kind": "sim"}},
    queues={},
    pools={"builders": a_pool(provider="desk")},
)


class TicketDesk:
    """A simulated cloud with a machine that nobody owns, and an engine."""

    def __init__(self, rig: EmbeddedRig | PulumiRig) -> None:
        self.rig = rig
        assert isinstance(rig.cloud, SimCloud)
        self.cloud = rig.cloud
        self.id = self.cloud.create(a_sim_worker(NAME, image="trixie", labels={"rack": "a"}))
        self.store = new_store("debian")

    @property
    def sources(self) -> Sources:
        return Sources(
            asking=FakeSourceReader,
            queues={},
            providers={"desk": self.cloud},
            registries={},
            engine_of=lambda _: self.rig.engine,
            store=self.store,
        )

    def judge(self, fleet: Fleet = FLEET) -> Adoption:
        world = observe(fleet, self.sources, NOW)
        found = self.cloud.find("rack", "a")
        return judge_adoption(fleet, world, "builders", found, outdated_too=False)

    def adopt(self, tell: Callable[[str], None] = lambda _: None) -> StackOutcome:
        return adopt_machines(REF, self.judge(), self.cloud, self.sources, tell)


@pytest.fixture(params=["embedded", PULUMI])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> TicketDesk:
    if request.param == "embedded":
        return TicketDesk(EmbeddedRig(tmp_path))
    skip_without_cli()
    return TicketDesk(PulumiRig(tmp_path))


def test_adopt_records_machine_under_its_id_without_creation(desk: TicketDesk) -> None:
    outcome = desk.adopt()

    assert (outcome.result, outcome.adopted) == ("applied", (NAME,))
    assert read(desk.rig.engine).ids == {NAME: desk.id}
    assert desk.rig.machines() == [NAME]


def test_adopt_records_inputs_so_that_preview_is_empty(desk: TicketDesk) -> None:
    desk.adopt()

    workers = read(desk.rig.engine).workers
    assert workers[0].labels["rack"] == "a"
    assert desk.rig.engine.preview(REF, workers) == ()


def test_adopt_keeps_earlier_workers_of_the_stack(desk: TicketDesk) -> None:
    before = a_sim_worker("debian-builders-0001")
    desk.rig.engine.up(REF, [before], lambda _: None)

    desk.adopt()

    assert {each.name for each in read(desk.rig.engine).workers} == {NAME, before.name}


def test_adopt_finishes_an_adoption_killed_after_the_mark(tmp_path: Path) -> None:
    desk = TicketDesk(EmbeddedRig(tmp_path))

    def die(said: str) -> None:
        assert NAME in said
        raise Killed

    with pytest.raises(Killed):
        desk.adopt(die)
    assert desk.adopt().adopted == (NAME,)
    assert read(desk.rig.engine).ids == {NAME: desk.id}


def test_adopt_stores_record_of_the_stack(tmp_path: Path) -> None:
    desk = TicketDesk(EmbeddedRig(tmp_path))

    desk.adopt()

    assert [record.name for record in desk.store.stacks()] == [REF.name]


def test_adopt_records_nothing_when_mark_is_not_listed(tmp_path: Path) -> None:
    desk = TicketDesk(EmbeddedRig(tmp_path))
    adoption = desk.judge()

    class Forgetful:
        def find(self, key: str, value: str) -> tuple[()]:
            raise AssertionError((key, value))

        def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
            assert (machine_id, inputs.name) == (desk.id, NAME)

    with pytest.raises(PlanRefused, match=f"{NAME}"):
        adopt_machines(REF, adoption, Forgetful(), desk.sources, lambda _: None)

    assert read(desk.rig.engine).ids == {}


def test_adopt_marks_nothing_when_engine_has_other_steps(tmp_path: Path) -> None:
    desk = TicketDesk(EmbeddedRig(tmp_path))
    lost = a_sim_worker("debian-builders-0001")
    desk.rig.engine.up(REF, [lost], lambda _: None)
    desk.rig.die_making("debian-builders-0002", [lost, a_sim_worker("debian-builders-0002")])

    with pytest.raises(PlanRefused, match=r"create.*debian-builders-0002"):
        desk.adopt()

    marked = {each.machine.name for each in desk.cloud.find("pool", REF.pool)}
    assert NAME not in marked | read(desk.rig.engine).ids.keys()


class Unable(FakeEngine):
    """An engine that can read and do nothing else, as where its passphrase is missing."""

    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> NoReturn:
        raise SecretMissing(f"no passphrase for {ref.name} and {len(workers)}")

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> NoReturn:
        self.prepare(ref, workers)


def test_adopt_marks_nothing_when_engine_cannot_record(tmp_path: Path) -> None:
    desk = TicketDesk(EmbeddedRig(tmp_path))
    sources = replace(desk.sources, engine_of=lambda _: Unable())

    with pytest.raises(SecretMissing):
        adopt_machines(REF, desk.judge(), desk.cloud, sources, lambda _: None)

    assert desk.cloud.find("pool", REF.pool) == ()


class Forestalled:
    """An engine; whatever it previews to create is deleted by somebody before it comes to it."""

    def __init__(self, desk: TicketDesk) -> None:
        self.desk = desk
        self.engine = desk.rig.engine
        self.name = self.engine.name
        self.read, self.up, self.forget = self.engine.read, self.engine.up, self.engine.forget
        self.preview = self.engine.preview

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        with self.engine.prepare(ref, workers) as change:
            self.desk.cloud.delete(self.desk.id)
            yield change


def test_adopt_fails_without_creation_when_machine_vanished(
    desk: TicketDesk,
) -> None:
    sources = replace(desk.sources, engine_of=lambda _: Forestalled(desk))

    with pytest.raises(StackFailed, match=f"{NAME} is gone"):
        adopt_machines(REF, desk.judge(), desk.cloud, sources, lambda _: None)

    assert desk.rig.machines() == []
