"""The contract of every engine: desired workers in, exactly these machines out."""

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import cast

import pytest

from fleet.engines.embedded import EmbeddedEngine
from fleet.engines.parallel import yielding_engine
from fleet.errors import PlanRefused, StackFailed
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
ONE, TWO, THREE = (a_sim_worker(f"debian-builders-{number:04}") for number in (1, 2, 3))


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


def test_stack_is_none_when_it_never_existed(rig: Rig) -> None:
    assert rig.engine.read(rig.ref) is None


@PARTLY
def test_first_up_creates_every_worker(rig: Rig) -> None:
    steps = rig.engine.up(rig.ref, [TWO, ONE], quiet)

    assert steps == tuple(StackStep(worker=each.name, operation="create") for each in (ONE, TWO))
    assert rig.machines() == [ONE.name, TWO.name]


def test_second_up_has_no_steps(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet)

    steps = rig.engine.up(rig.ref, [ONE, TWO], quiet)

    assert steps == ()
    assert rig.machines() == [ONE.name, TWO.name]


def test_up_changes_only_added_and_removed_workers(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet)
    kept = read(rig.engine, rig.ref).ids[TWO.name]

    steps = rig.engine.up(rig.ref, [TWO, THREE], quiet)

    assert steps == (
        StackStep(worker=ONE.name, operation="delete"),
        StackStep(worker=THREE.name, operation="create"),
    )
    assert rig.machines() == [TWO.name, THREE.name]
    assert read(rig.engine, rig.ref).ids[TWO.name] == kept


def test_preview_equals_steps_of_up(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet)

    preview = rig.engine.preview(rig.ref, [TWO, THREE])

    assert preview == rig.engine.up(rig.ref, [TWO, THREE], quiet)


@PARTLY
def test_preview_creates_no_stack(rig: Rig) -> None:
    steps = rig.engine.preview(rig.ref, [ONE])

    assert steps == (StackStep(worker=ONE.name, operation="create"),)
    assert rig.machines() == []
    assert rig.engine.read(rig.ref) is None


def test_discarded_prepared_change_reports_steps_without_effect(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet)
    before = read(rig.engine, rig.ref)

    with rig.engine.prepare(rig.ref, [TWO, THREE]) as change:
        steps = change.steps
        machines = rig.machines()

    assert steps == (
        StackStep(worker=ONE.name, operation="delete"),
        StackStep(worker=THREE.name, operation="create"),
    )
    assert machines == rig.machines() == [ONE.name, TWO.name]
    after = read(rig.engine, rig.ref)
    assert after == before.altered(serial=after.serial)


def test_prepared_change_executes_its_steps(
    rig: Rig,
) -> None:
    rig.engine.up(rig.ref, [ONE], quiet, {ONE.name: FIRST_TEXT})
    shown: list[StackStep] = []

    with rig.engine.prepare(rig.ref, [TWO]) as change:
        done = change.make(shown.append, {TWO.name: SECOND_TEXT})

    assert done == change.steps == tuple(sorted(shown, key=lambda step: step.worker))
    assert rig.machines() == [TWO.name]
    assert rig.given(TWO.name) == sha256_of(SECOND_TEXT)
    assert not read(rig.engine, rig.ref).interrupted


def test_prepared_change_continues_when_a_creation_fails(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)
    rig.refuse(TWO.name)

    with (
        pytest.raises(StackFailed) as failed,
        rig.engine.prepare(rig.ref, [ONE, TWO, THREE]) as change,
    ):
        change.make(quiet, {})

    assert (failed.value.done, list(failed.value.failed)) == ((THREE.name,), [TWO.name])
    assert rig.machines() == [ONE.name, THREE.name]


@PARTLY
def test_each_step_is_reported_when_it_starts(rig: Rig) -> None:
    shown: list[StackStep] = []

    steps = rig.engine.up(rig.ref, [ONE, TWO], shown.append)

    assert sorted(shown, key=lambda step: step.worker) == list(steps)


@PARTLY
def test_recorded_workers_equal_desired_workers(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet)

    stack = read(rig.engine, rig.ref)

    assert stack.workers == (ONE, TWO)
    assert stack.provider == rig.ref.provider
    assert stack.engine == rig.engine.name
    assert sorted(stack.ids) == [ONE.name, TWO.name]
    assert not stack.interrupted


def test_recorded_workers_passed_back_change_nothing(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet)

    assert rig.engine.preview(rig.ref, read(rig.engine, rig.ref).workers) == ()


@PARTLY
def test_stack_may_be_empty(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)

    rig.engine.up(rig.ref, [], quiet)

    assert rig.machines() == []
    assert read(rig.engine, rig.ref).workers == ()


@PARTLY
def test_serial_increases_with_each_change(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)
    before = read(rig.engine, rig.ref).serial

    rig.engine.up(rig.ref, [ONE, TWO], quiet)

    assert read(rig.engine, rig.ref).serial > before


@PARTLY
def test_failed_creation_keeps_other_workers(rig: Rig) -> None:
    rig.refuse(TWO.name)

    with pytest.raises(StackFailed) as caught:
        rig.engine.up(rig.ref, [ONE, TWO, THREE], quiet)

    assert sorted(caught.value.done) == [ONE.name, THREE.name]
    assert list(caught.value.failed) == [TWO.name]
    assert rig.machines() == [ONE.name, THREE.name]
    assert sorted(read(rig.engine, rig.ref).ids) == [ONE.name, THREE.name]


@PARTLY
def test_next_up_repeats_failed_creation(rig: Rig) -> None:
    rig.refuse(TWO.name)
    with pytest.raises(StackFailed):
        rig.engine.up(rig.ref, [ONE, TWO], quiet)
    rig.heal()

    steps = rig.engine.up(rig.ref, [ONE, TWO], quiet)

    assert steps == (StackStep(worker=TWO.name, operation="create"),)
    assert rig.machines() == [ONE.name, TWO.name]


def test_interrupted_creation_is_recorded_as_a_worker(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)

    rig.die_making(TWO.name, [ONE, TWO])

    stack = read(rig.engine, rig.ref)
    assert stack.interrupted
    assert stack.workers == (ONE, TWO)
    assert sorted(stack.ids) == [ONE.name]


@PARTLY
def test_next_run_finishes_killed_run_without_duplicate(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)
    rig.die_making(TWO.name, [ONE, TWO])

    steps = rig.engine.up(rig.ref, read(rig.engine, rig.ref).workers, quiet)

    assert steps == (StackStep(worker=TWO.name, operation="create"),)
    assert rig.machines() == [ONE.name, TWO.name]
    assert sorted(read(rig.engine, rig.ref).ids) == [ONE.name, TWO.name]
    assert not read(rig.engine, rig.ref).interrupted


def test_interrupted_creation_is_deleted_when_unwanted(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)
    rig.die_making(TWO.name, [ONE, TWO])

    rig.engine.up(rig.ref, [ONE], quiet)

    assert rig.machines() == [ONE.name]
    assert read(rig.engine, rig.ref).workers == (ONE,)


def test_new_worker_gets_its_user_data(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet, {ONE.name: FIRST_TEXT, TWO.name: SECOND_TEXT})

    assert rig.given(ONE.name) == sha256_of(FIRST_TEXT)
    assert rig.given(TWO.name) == sha256_of(SECOND_TEXT)


@PARTLY
def test_worker_without_user_data_gets_none(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)

    assert rig.given(ONE.name) == ""


@PARTLY
def test_existing_worker_is_unchanged_without_user_data(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet, {ONE.name: FIRST_TEXT})

    preview = rig.engine.preview(rig.ref, read(rig.engine, rig.ref).workers)
    steps = rig.engine.up(rig.ref, [ONE, TWO], quiet, {TWO.name: SECOND_TEXT})

    assert preview == ()
    assert steps == (StackStep(worker=TWO.name, operation="create"),)
    assert rig.given(ONE.name) == sha256_of(FIRST_TEXT)


def test_existing_worker_gets_no_new_user_data(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet, {ONE.name: FIRST_TEXT})

    steps = rig.engine.up(rig.ref, [ONE], quiet, {ONE.name: SECOND_TEXT})

    assert steps == ()
    assert rig.given(ONE.name) == sha256_of(FIRST_TEXT)


def test_interrupted_creation_is_adopted_with_its_user_data(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet, {ONE.name: FIRST_TEXT})
    rig.die_making(TWO.name, [ONE, TWO])

    rig.engine.up(rig.ref, [ONE, TWO], quiet, {TWO.name: ""})

    assert rig.machines() == [ONE.name, TWO.name]
    assert sorted(read(rig.engine, rig.ref).ids) == [ONE.name, TWO.name]
    assert rig.engine.preview(rig.ref, [ONE, TWO]) == ()


def test_machine_is_not_created_when_its_token_was_used(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet, {ONE.name: FIRST_TEXT})

    with pytest.raises(StackFailed, match=f"{TWO.name}.*token") as caught:
        rig.engine.up(rig.ref, [ONE, TWO], quiet, {TWO.name: ""})

    assert list(caught.value.failed) == [TWO.name]
    assert rig.machines() == [ONE.name]


def test_forget_removes_worker_from_stack_without_deletion(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet)
    before = read(rig.engine, rig.ref)

    rig.engine.forget(rig.ref, ONE.name)

    after = read(rig.engine, rig.ref)
    assert rig.machines() == [ONE.name, TWO.name]
    assert after.workers == (TWO,)
    assert after.ids == {TWO.name: before.ids[TWO.name]}
    assert after.serial > before.serial
    assert not after.interrupted


@PARTLY
def test_forgotten_machine_can_be_created_again(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet)
    rig.lose(ONE.name)
    rig.engine.forget(rig.ref, ONE.name)

    steps = rig.engine.up(rig.ref, [ONE, TWO], quiet)

    assert steps == (StackStep(worker=ONE.name, operation="create"),)
    assert rig.machines() == [ONE.name, TWO.name]


@PARTLY
def test_stack_is_empty_when_last_worker_is_forgotten(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)
    rig.lose(ONE.name)

    rig.engine.forget(rig.ref, ONE.name)

    assert (read(rig.engine, rig.ref).workers, read(rig.engine, rig.ref).ids) == ((), {})


def test_forget_refuses_worker_missing_from_stack(rig: Rig) -> None:
    with pytest.raises(PlanRefused, match=rf"{ONE.name}"):
        rig.engine.forget(rig.ref, ONE.name)
    rig.engine.up(rig.ref, [ONE], quiet)

    with pytest.raises(PlanRefused, match=rf"{TWO.name}"):
        rig.engine.forget(rig.ref, TWO.name)

    assert read(rig.engine, rig.ref).workers == (ONE,)


def test_changed_type_of_recorded_worker_is_a_step(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)

    (step,) = rig.engine.preview(rig.ref, [a_sim_worker(ONE.name, type="ccx63")])

    assert step.worker == ONE.name
    assert step.operation in {"replace", "update"}


def test_changed_label_of_recorded_worker_is_an_update(rig: Rig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet)

    (step,) = rig.engine.preview(rig.ref, [a_sim_worker(ONE.name, labels=ONE.labels | {"x": "y"})])

    assert (step.worker, step.operation) == (ONE.name, "update")
