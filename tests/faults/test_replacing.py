"""Machines are replaced and let go of through the program, run after run."""

import pytest

from tests.rigs.trial import Trial, fleet_yaml

POOL = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4, min: 1}}"
OLD, NEW = "trial-builders-0001", "trial-builders-0002"


@pytest.mark.slow
def test_machine_of_other_type_is_created_before_deletion_of_old(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": POOL}))
    trial.apply()
    trial.age(minutes=5)
    trial.write(fleet_yaml(pools={"builders": POOL.replace("ccx33", "ccx43")}))

    seen = []
    for _ in range(4):
        trial.apply()
        seen.append(trial.machines())
        trial.age(minutes=5)

    assert seen == [[OLD, NEW], [OLD, NEW], [NEW], [NEW]]
    assert trial.plan()["actions"] == []


def test_replacement_of_all_machines_keeps_min(trial: Trial) -> None:
    pool = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4, min: 3}}"
    at_once = pool.replace("ccx33", "ccx43").replace("}}", "}, replace: {at_a_time: 100%}}")
    trial.write(fleet_yaml(pools={"builders": pool}))
    trial.apply()
    trial.write(fleet_yaml(pools={"builders": at_once}))
    drained: set[str] = set()
    staying = []

    for _ in range(12):
        trial.age(minutes=5)
        done = trial.outcome()
        drained.update(done["builders"]["drained"])
        staying.append(len({*trial.machines()} - drained - {*done["builders"]["created"]}))

    assert min(staying) == 3
    assert {each.inputs.type for each in trial.made()} == {"ccx43"}


def test_machine_of_withdrawn_request_is_deleted_once(
    trial: Trial,
) -> None:
    pool = POOL.replace("min: 1", "min: 0")
    trial.write(fleet_yaml(pools={"builders": pool}, desk="boot: 5m"))
    trial.wait_for("1")
    trial.apply()
    trial.wait_for()

    trial.apply()

    assert (trial.machines(), trial.recorded()) == ([], [])
    assert trial.plan()["actions"] == []


@pytest.mark.slow
def test_removed_pool_disappears_after_work_of_its_worker(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": POOL}))
    trial.apply()
    trial.age(minutes=5)
    trial.cloud.assign(OLD, "7")
    guards = "guards: {refuse: {delete: {share: 100%, count: 9}}}\n"
    trial.write(fleet_yaml(pools={"other": POOL.replace("min: 1", "min: 0")}, more=guards))

    trial.apply()
    trial.apply()
    assert trial.machines() == [OLD]
    trial.cloud.assign(OLD, None)
    trial.apply()

    assert trial.machines() == []
    assert "trial-builders" not in trial.do("state", "show")[1]
