"""What only the embedded engine does: intents, what it refuses, what it only checks."""

import fcntl
import sqlite3
from pathlib import Path

import pytest

from fleet.clouds.sim.machines import SimCloud
from fleet.engines.embedded import EmbeddedEngine
from fleet.engines.projects import AbsenceCheck
from fleet.errors import EngineMismatch, FleetError, Locked, PlanRefused, StackFailed
from fleet.model.facts import Listing, Stack, Unknown, WorkerInputs
from fleet.ports import StackRef, StackStep
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.fakes.engine import FixedClock, Killed
from tests.ports.engines import MENU, REF, EmbeddedRig, a_sim_worker, names_in, quiet, read

ONE, TWO = a_sim_worker("debian-builders-0001"), a_sim_worker("debian-builders-0002")


@pytest.fixture
def rig(tmp_path: Path) -> EmbeddedRig:
    return EmbeddedRig(tmp_path)


def test_stack_of_another_engine_is_refused(rig: EmbeddedRig) -> None:
    rig.engine.up(REF, [ONE], quiet)
    with sqlite3.connect(rig.folder / "state.db") as connection:
        connection.execute("UPDATE embedded_stacks SET engine = 'pulumi'")
    connection.close()

    with pytest.raises(EngineMismatch, match="engine 'pulumi'"):
        rig.engine.read(REF)


def test_changed_inputs_of_a_recorded_worker_are_refused(rig: EmbeddedRig) -> None:
    rig.engine.up(REF, [ONE], quiet)

    with pytest.raises(PlanRefused, match=r"replace debian-builders-0001 \(type\)"):
        rig.engine.up(REF, [a_sim_worker(ONE.name, type="ccx63")], quiet)

    assert read(rig.engine).workers == (ONE,)


def test_pool_with_machines_cannot_change_provider(
    rig: EmbeddedRig,
) -> None:
    rig.engine.up(REF, [ONE], quiet)

    with pytest.raises(PlanRefused, match=r"'desk'.*'attic'"):
        rig.engine.preview(REF.altered(provider="attic"), [])


def test_stack_of_remote_provider_is_only_evaluated(rig: EmbeddedRig) -> None:
    ref = StackRef(project="sim", name="far", provider="hetzner", pool="far")

    resources = rig.engine.evaluate(ref, {"workers": [ONE.model_dump(mode="json")]})

    assert [each.name for each in resources] == [ONE.name]
    with pytest.raises(PlanRefused, match="not local"):
        rig.engine.up(ref, [ONE], quiet)


def test_concurrent_up_of_one_stack_is_refused(rig: EmbeddedRig) -> None:
    with (rig.folder / f"state.db.{REF.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(Locked):
            rig.engine.up(REF, [ONE], quiet)


def test_emptied_stack_may_move_to_another_provider(tmp_path: Path) -> None:
    clouds = {name: SimCloud(tmp_path / f"{name}.json", FixedClock(NOW)) for name in "ab"}
    for cloud in clouds.values():
        cloud.configure(MENU)
    engine = EmbeddedEngine(tmp_path / "state.db", clouds)
    here, there = (REF.altered(provider=name) for name in "ab")
    engine.up(here, [ONE], quiet)
    engine.up(here, [], quiet)

    engine.up(there, [ONE], quiet)

    stack = engine.read(there)
    assert isinstance(stack, Stack)
    assert (stack.provider, stack.workers) == ("b", (ONE,))


class SlipperyCloud(SimCloud):
    """A simulated cloud whose user is killed before or after a deletion."""

    kills: str | None = None

    def __init__(self, path: Path, clock: FixedClock) -> None:
        super().__init__(path, clock)
        self.told_to_delete: list[str] = []

    def delete(self, machine_id: str) -> None:
        self.told_to_delete.append(machine_id)
        if self.kills == "before":
            raise Killed
        super().delete(machine_id)
        if self.kills == "after":
            raise Killed


@pytest.mark.parametrize(
    ("moment", "steps"),
    [("before", (StackStep(worker=TWO.name, operation="delete"),)), ("after", ())],
)
def test_killed_deletion_is_finished_by_next_run(
    tmp_path: Path, moment: str, steps: tuple[StackStep, ...]
) -> None:
    again = () if steps else (StackStep(worker=TWO.name, operation="create"),)
    cloud = SlipperyCloud(tmp_path / "sim.json", FixedClock(NOW))
    cloud.configure(MENU)
    engine = EmbeddedEngine(tmp_path / "state.db", {"desk": cloud})
    engine.up(REF, [ONE, TWO], quiet)
    cloud.kills = moment
    with pytest.raises(Killed):
        engine.up(REF, [ONE], quiet)
    cloud.kills = None
    interrupted = read(engine)

    assert engine.preview(REF, [ONE, TWO]) == again
    preview = engine.preview(REF, interrupted.workers)
    done = engine.up(REF, interrupted.workers, quiet)

    assert (interrupted.interrupted, interrupted.workers) == (True, (ONE,))
    assert preview == done == steps
    assert names_in(cloud) == [ONE.name]
    assert not read(engine).interrupted


class ForgetfulCloud(SlipperyCloud):
    """A cloud that leaves a machine out of some of its listings."""

    omits: tuple[str, ...] = ()
    """What it leaves out of its next listings, one after the other; empty: nothing."""

    def list(self, fleet: str) -> Listing | Unknown:
        listing = super().list(fleet)
        if not self.omits or isinstance(listing, Unknown):
            return listing
        omitted, *later = self.omits
        self.omits = tuple(later)
        machines = tuple(each for each in listing.machines if each.name != omitted)
        return listing.altered(machines=machines)


class Interrupted:
    """An engine whose run was killed right before or after it deleted TWO."""

    def __init__(self, folder: Path, moment: str) -> None:
        self.cloud = ForgetfulCloud(folder / "sim.json", FixedClock(NOW))
        self.cloud.configure(MENU)
        self.engine = EmbeddedEngine(
            folder / "state.db", {"desk": self.cloud}, unreliable_listings={"desk"}
        )
        self.engine.up(REF, [ONE, TWO], quiet)
        self.cloud.kills = moment
        with pytest.raises(Killed):
            self.engine.up(REF, [ONE], quiet)
        self.cloud.kills = None


@pytest.mark.parametrize("wanted", [[ONE], [ONE, TWO]])
def test_machine_being_deleted_is_kept_in_stack_after_one_listing(
    tmp_path: Path, wanted: list[WorkerInputs]
) -> None:
    interrupted = Interrupted(tmp_path, "before")
    interrupted.cloud.omits = (TWO.name,)

    with pytest.raises(StackFailed, match=f"{REF.name}.*{TWO.name}"):
        interrupted.engine.up(REF, wanted, quiet)

    assert read(interrupted.engine).interrupted
    assert names_in(interrupted.cloud) == [ONE.name, TWO.name]


def test_machine_with_lost_record_is_adopted(
    rig: EmbeddedRig,
) -> None:
    rig.engine.up(REF, [ONE, TWO], quiet)
    ids = read(rig.engine).ids
    (rig.folder / "state.db").unlink()

    rig.engine.up(REF, [ONE, TWO], quiet, {ONE.name: "", TWO.name: ""})

    assert read(rig.engine).ids == ids
    assert rig.machines() == [ONE.name, TWO.name]


class CrowdedCloud(SimCloud):
    """A cloud that also lists another's machine under each name, before or after fleet's."""

    is_last: bool

    def list(self, fleet: str) -> Listing | Unknown:
        listing = super().list(fleet)
        if isinstance(listing, Unknown):
            return listing
        own = listing.machines
        others = tuple(each.altered(id="foreign", digest="another") for each in own)
        return listing.altered(machines=(*own, *others) if self.is_last else (*others, *own))


@pytest.mark.parametrize("is_last", [False, True])
def test_own_machine_is_adopted_although_another_has_its_name(
    tmp_path: Path, *, is_last: bool
) -> None:
    cloud = CrowdedCloud(tmp_path / "sim.json", FixedClock(NOW))
    cloud.configure(MENU)
    cloud.is_last = is_last
    engine = EmbeddedEngine(tmp_path / "state.db", {"desk": cloud})
    engine.up(REF, [ONE], quiet)
    ids = read(engine).ids
    (tmp_path / "state.db").unlink()

    engine.up(REF, [ONE], quiet, {ONE.name: ""})

    assert read(engine).ids == ids


def test_foreign_machine_of_same_name_is_not_adopted(
    rig: EmbeddedRig,
) -> None:
    rig.cloud.create(a_sim_worker(ONE.name, labels=ONE.labels | {"digest": "another"}))

    with pytest.raises(StackFailed, match="already used"):
        rig.engine.up(REF, [ONE], quiet)

    assert read(rig.engine).ids == {}


def test_failure_mentions_other_steps_only_when_some_exist(rig: EmbeddedRig) -> None:
    rig.refuse(TWO.name)

    with pytest.raises(StackFailed) as alone:
        rig.engine.up(REF, [TWO], quiet)
    with pytest.raises(StackFailed) as beside:
        rig.engine.up(REF, [ONE, TWO], quiet)

    assert tells(str(alone.value), "not-sold", "ccx33", "ccx63")
    assert tells(str(beside.value), "1", "recorded")
    assert read(rig.engine).workers == (ONE,)


def test_machine_absent_from_two_listings_is_forgotten_after_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(AbsenceCheck, "pause", pauses.append)
    interrupted = Interrupted(tmp_path, "after")
    told = [*interrupted.cloud.told_to_delete]

    preview = interrupted.engine.preview(REF, [ONE])
    done = interrupted.engine.up(REF, [ONE], quiet)

    assert preview == done == ()
    assert pauses == [10]
    assert not read(interrupted.engine).interrupted
    assert interrupted.cloud.told_to_delete == [*told, *told]


def test_unfinished_creation_waits_until_provider_is_readable(rig: EmbeddedRig) -> None:
    rig.die_making(ONE.name, [ONE])
    (rig.folder / "sim.json").write_text("{}")

    with pytest.raises(FleetError, match=rf"{ONE.name}.*sim\.json"):
        rig.engine.up(REF, [ONE], quiet)

    assert read(rig.engine).ids == {}


def test_impossible_workers_are_refused_and_damaged_state_is_unknown(rig: EmbeddedRig) -> None:
    rig.engine.read(REF)
    assert not (rig.folder / "state.db").exists()

    unlabelled = WorkerInputs(name="x", type="ccx33", image="trixie")
    with pytest.raises(PlanRefused, match=r"stacks/sim.*workers\[0\].labels"):
        rig.engine.preview(REF, [unlabelled])
    with pytest.raises(PlanRefused, match=ONE.name):
        rig.engine.preview(REF, [ONE, ONE])

    (rig.folder / "state.db").write_bytes(b"not a database" * 100)
    assert isinstance(rig.engine.read(REF), Unknown)
