"""The contract of Engine: desired workers in, exactly these machines out."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import cast

import pytest

from fleet.apply.parallel import yielding_engine
from fleet.engines.embedded import EmbeddedEngine
from fleet.errors import PlanRefused, StackFailed
from fleet.model.facts import WorkerInputs
from fleet.model.user_data import write_user_data
from fleet.ports import StackStep
from simulators.hetzner.server import SimulatedHetzner
from tests.ports.aws_rig import AwsContractRig, an_aws_rig
from tests.ports.engines import (
    EmbeddedRig,
    FakeRig,
    HookRig,
    LocalRig,
    PulumiRig,
    Rig,
    a_sim_worker,
    quiet,
    read,
    sha256_of,
    skip_without_cli,
)
from tests.ports.hcloud_rig import HcloudRig, skip_without_plugin
from tests.rigs.repeats import slow_but

FIRST_TEXT, SECOND_TEXT = (
    write_user_data("https://debusine.example.org", f"the-token-of-{number}" * 4)
    for number in ("one", "two")
)
NAMES = {
    number: f"debian-builders-{nth:04}" for nth, number in enumerate(("one", "two", "three"), 1)
}
ONE, TWO, THREE = map(a_sim_worker, NAMES.values())


SIMULATED = [pytest.mark.engine, pytest.mark.long]
"""What runs the real engine with a provider of ours."""
PULUMI, AWS, RARELY = (pytest.param(name, marks=SIMULATED) for name in ("pulumi", "aws", "hcloud"))
HCLOUD = pytest.param("hcloud", marks=pytest.mark.engine)


# `aside` has own commands too.
ENGINES = ["fake", "embedded", "aside", "local", "hooks"]


PARTLY = pytest.mark.parametrize(
    "rig", [*slow_but(ENGINES[:3], ENGINES), PULUMI, RARELY, AWS], indirect=True
)
"""Marks what others show of Hetzner too: tests beside it, and each row of tests/faults."""


@pytest.fixture(params=[*slow_but(ENGINES[:3], ENGINES), PULUMI, HCLOUD, AWS])
def rig(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rig]:
    if request.param == "fake":
        yield FakeRig()
    elif request.param == "embedded":
        yield EmbeddedRig(tmp_path)
    elif request.param == "local":
        rig = LocalRig(tmp_path)
        yield rig
        rig.close()
    elif request.param == "hooks":
        yield HookRig(tmp_path)
    elif request.param == "aside":
        hooks, turn = HookRig(tmp_path), Lock()
        hooks.engine = cast("EmbeddedEngine", yielding_engine(hooks.engine, turn))
        with turn:
            yield hooks
    elif request.param == "pulumi":
        skip_without_cli()
        yield PulumiRig(tmp_path)
    elif request.param == "aws":
        with an_aws_rig(tmp_path, monkeypatch) as amazon:
            yield AwsContractRig(amazon)
    else:
        skip_without_plugin()
        with SimulatedHetzner() as api:
            yield HcloudRig(tmp_path, api)


def up(rig: Rig, *workers: WorkerInputs, **given: str) -> list[str]:
    """Apply these workers, with user data by the number of each; return what was done."""
    user_data = {NAMES[number]: text for number, text in given.items()}
    return told(rig.engine.up(rig.ref, workers, quiet, user_data))


def told(steps: Iterable[StackStep]) -> list[str]:
    """Return the steps in order, each worker by its number."""
    return [f"{each.operation} {each.worker[-1]}" for each in steps]


def machines(rig: Rig) -> str:
    """Return the numbers of the machines that exist."""
    return "".join(name[-1] for name in rig.machines())


def recorded(rig: Rig) -> str:
    """Return the numbers of the workers whose ids are recorded."""
    return "".join(name[-1] for name in sorted(read(rig.engine, rig.ref).ids))


def test_first_up_creates_every_worker_and_second_none(rig: Rig) -> None:
    shown: list[StackStep] = []
    assert rig.engine.read(rig.ref) is None
    preview = rig.engine.preview(rig.ref, [TWO, ONE])
    assert (rig.engine.read(rig.ref), machines(rig)) == (None, "")

    steps = rig.engine.up(rig.ref, [TWO, ONE], shown.append)

    stack = read(rig.engine, rig.ref)
    assert preview == steps == tuple(sorted(shown, key=lambda step: step.worker))
    assert (told(steps), machines(rig)) == (["create 1", "create 2"], "12")
    assert (stack.workers, recorded(rig), stack.interrupted) == ((ONE, TWO), "12", False)
    assert (stack.provider, stack.engine) == (rig.ref.provider, rig.engine.name)
    assert rig.engine.preview(rig.ref, stack.workers) == ()
    assert (up(rig, ONE, TWO), machines(rig)) == ([], "12")


def test_up_changes_only_added_and_removed_workers(rig: Rig) -> None:
    up(rig, ONE, TWO)
    before = read(rig.engine, rig.ref)

    preview = told(rig.engine.preview(rig.ref, [TWO, THREE]))
    steps = up(rig, TWO, THREE)

    after = read(rig.engine, rig.ref)
    assert preview == steps == ["delete 1", "create 3"]
    assert machines(rig) == "23"
    assert after.ids[TWO.name] == before.ids[TWO.name]
    assert after.serial > before.serial


@PARTLY
def test_stack_may_be_empty(rig: Rig) -> None:
    up(rig, ONE)

    up(rig)

    assert (machines(rig), read(rig.engine, rig.ref).workers) == ("", ())


def test_discarded_prepared_change_reports_steps_without_effect(rig: Rig) -> None:
    up(rig, ONE, TWO)
    before = read(rig.engine, rig.ref)

    with rig.engine.prepare(rig.ref, [TWO, THREE]) as change:
        steps, during = told(change.steps), machines(rig)

    after = read(rig.engine, rig.ref)
    assert steps == ["delete 1", "create 3"]
    assert during == machines(rig) == "12"
    assert after == before.altered(serial=after.serial)


def test_prepared_change_executes_its_steps(rig: Rig) -> None:
    up(rig, ONE, one=FIRST_TEXT)
    shown: list[StackStep] = []

    with rig.engine.prepare(rig.ref, [TWO]) as change:
        done = change.make(shown.append, {TWO.name: SECOND_TEXT})

    assert done == change.steps == tuple(sorted(shown, key=lambda step: step.worker))
    assert (machines(rig), rig.given(TWO.name)) == ("2", sha256_of(SECOND_TEXT))
    assert not read(rig.engine, rig.ref).interrupted


def test_prepared_change_continues_when_a_creation_fails(rig: Rig) -> None:
    up(rig, ONE)
    rig.refuse(TWO.name)

    with (
        pytest.raises(StackFailed) as failed,
        rig.engine.prepare(rig.ref, [ONE, TWO, THREE]) as change,
    ):
        change.make(quiet, {})

    assert (failed.value.done, list(failed.value.failed)) == ((THREE.name,), [TWO.name])
    assert machines(rig) == "13"


@PARTLY
def test_failed_creation_keeps_other_workers_and_is_repeated(rig: Rig) -> None:
    rig.refuse(TWO.name)

    with pytest.raises(StackFailed) as caught:
        up(rig, ONE, TWO, THREE)

    assert sorted(caught.value.done) == [ONE.name, THREE.name]
    assert list(caught.value.failed) == [TWO.name]
    assert machines(rig) == recorded(rig) == "13"
    rig.heal()
    assert (up(rig, ONE, TWO, THREE), machines(rig)) == (["create 2"], "123")


def test_next_run_finishes_killed_run_without_duplicate(rig: Rig) -> None:
    up(rig, ONE)
    rig.die_making(TWO.name, [ONE, TWO])
    left = read(rig.engine, rig.ref)
    assert (left.interrupted, left.workers, recorded(rig)) == (True, (ONE, TWO), "1")

    steps = up(rig, *left.workers)

    assert (steps, machines(rig), recorded(rig)) == (["create 2"], "12", "12")
    assert not read(rig.engine, rig.ref).interrupted


def test_interrupted_creation_is_deleted_when_unwanted(rig: Rig) -> None:
    up(rig, ONE)
    rig.die_making(TWO.name, [ONE, TWO])

    up(rig, ONE)

    assert machines(rig) == "1"
    assert read(rig.engine, rig.ref).workers == (ONE,)


def test_only_new_worker_gets_its_user_data(rig: Rig) -> None:
    up(rig, ONE, one=FIRST_TEXT)

    preview = rig.engine.preview(rig.ref, read(rig.engine, rig.ref).workers)
    steps = up(rig, ONE, TWO, THREE, one=SECOND_TEXT, two=SECOND_TEXT)

    assert (preview, steps) == ((), ["create 2", "create 3"])
    given = [rig.given(name) for name in NAMES.values()]
    assert given == [sha256_of(FIRST_TEXT), sha256_of(SECOND_TEXT), ""]


def test_interrupted_creation_is_adopted_with_its_user_data(rig: Rig) -> None:
    up(rig, ONE, one=FIRST_TEXT)
    rig.die_making(TWO.name, [ONE, TWO])

    up(rig, ONE, TWO, two="")

    assert machines(rig) == recorded(rig) == "12"
    assert rig.engine.preview(rig.ref, [ONE, TWO]) == ()


def test_machine_is_not_created_when_its_token_was_used(rig: Rig) -> None:
    up(rig, ONE, one=FIRST_TEXT)

    with pytest.raises(StackFailed, match=f"{TWO.name}.*token") as caught:
        up(rig, ONE, TWO, two="")

    assert list(caught.value.failed) == [TWO.name]
    assert machines(rig) == "1"


def test_forget_removes_worker_from_stack_without_deletion(rig: Rig) -> None:
    up(rig, ONE, TWO)
    before = read(rig.engine, rig.ref)

    rig.engine.forget(rig.ref, ONE.name)

    after = read(rig.engine, rig.ref)
    assert (machines(rig), after.workers) == ("12", (TWO,))
    assert after.ids == {TWO.name: before.ids[TWO.name]}
    assert after.serial > before.serial
    assert not after.interrupted


@PARTLY
def test_forgotten_machines_can_be_created_again(rig: Rig) -> None:
    up(rig, ONE, TWO)
    for name in (ONE.name, TWO.name):
        rig.lose(name)
        rig.engine.forget(rig.ref, name)
    empty = read(rig.engine, rig.ref)

    steps = up(rig, ONE, TWO)

    assert (empty.workers, empty.ids) == ((), {})
    assert (steps, machines(rig)) == (["create 1", "create 2"], "12")


def test_forget_refuses_worker_missing_from_stack(rig: Rig) -> None:
    with pytest.raises(PlanRefused, match=rf"{ONE.name}"):
        rig.engine.forget(rig.ref, ONE.name)
    up(rig, ONE)

    with pytest.raises(PlanRefused, match=rf"{TWO.name}"):
        rig.engine.forget(rig.ref, TWO.name)

    assert read(rig.engine, rig.ref).workers == (ONE,)


def test_changed_type_or_label_of_recorded_worker_is_a_step(rig: Rig) -> None:
    up(rig, ONE)

    (typed,) = rig.engine.preview(rig.ref, [a_sim_worker(ONE.name, type="ccx63")])
    labels = ONE.labels | {"x": "y"}
    relabelled = rig.engine.preview(rig.ref, [a_sim_worker(ONE.name, labels=labels)])

    assert typed.worker == ONE.name
    assert typed.operation in {"replace", "update"}
    assert told(relabelled) == ["update 1"]
