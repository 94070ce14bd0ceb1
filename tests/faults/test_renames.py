"""A pool that is renamed keeps its machines, through the program, run after run."""

from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.trial import Trial, fleet_yaml

OLD = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4, min: 1}}"
RENAMED = OLD.replace("{provider", "{previously: builders, provider")
FIRST, SECOND = "trial-builders-0001", "trial-heavy-0001"


@pytest.fixture
def trial(project: Path) -> Trial:
    """Return a trial fleet with one machine of the pool `builders`, renamed to `heavy`."""
    return Trial(project).begun(begin_trial)


def begin_trial(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": OLD}))
    trial.apply()
    trial.age(hours=1)
    trial.write(fleet_yaml(pools={"heavy": RENAMED}))


def stacks(trial: Trial) -> dict[str, list[str]]:
    """Return each pool that has a stack, and the machines in it."""
    world = trial.world()
    return {pool: sorted(stack["ids"]) for pool, stack in world["stacks"].items()}


def test_renamed_pool_causes_no_actions(trial: Trial) -> None:
    plan = trial.plan()

    assert plan["actions"] == []
    assert [(pool["pool"], pool["stack"], pool["idle"]) for pool in plan["pools"]] == [
        ("heavy", "trial-builders", 1)
    ]


def test_renamed_pool_creates_machines_in_its_existing_stack(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"heavy": RENAMED.replace("min: 1", "min: 2")}))

    trial.apply()

    assert stacks(trial) == {"heavy": [FIRST, SECOND]}
    assert trial.machines() == [FIRST, SECOND]


def test_previously_may_be_removed_after_apply(trial: Trial) -> None:
    trial.apply()
    trial.write(fleet_yaml(pools={"heavy": OLD}))

    assert trial.plan()["actions"] == []
    trial.apply()
    assert trial.machines() == [FIRST]


def test_renamed_pool_counts_as_removed_without_previously(
    trial: Trial,
) -> None:
    trial.write(fleet_yaml(pools={"heavy": OLD}))

    assert "pool-removed" in {action["reason"] for action in trial.plan()["withheld"]}


@pytest.mark.slow
def test_pool_may_be_renamed_twice(trial: Trial) -> None:
    trial.apply()
    again = OLD.replace("{provider", "{previously: heavy, provider")
    trial.write(fleet_yaml(pools={"heaviest": again}))

    assert trial.plan()["actions"] == []
    trial.apply()
    assert stacks(trial) == {"heaviest": [FIRST]}


@pytest.mark.slow
def test_renamed_pool_keeps_its_charges_and_attempts(trial: Trial) -> None:
    trial.apply()
    trial.write(fleet_yaml(pools={"heavy": OLD}))
    trial.apply()

    world = trial.world()

    assert {charge["pool"] for charge in world["ledger"]["charges"]} == {"heavy"}
    assert [(each["pool"], each["worker"]) for each in world["attempts"]] == [("heavy", FIRST)]


@pytest.mark.slow
def test_removed_renamed_pool_is_forgotten_with_its_stack(trial: Trial) -> None:
    trial.apply()
    trial.write(fleet_yaml(pools={"other": OLD.replace("min: 1", "min: 0")}, more=LENIENT))
    trial.apply()
    trial.apply()

    trial.apply()

    assert trial.machines() == []
    assert "trial-builders" not in trial.do("state", "show")[1]


LENIENT = "guards: {refuse: {delete: {share: 100%, count: 9}}}\n"


def test_new_pool_with_an_old_name_is_refused(trial: Trial) -> None:
    trial.apply()
    trial.write(fleet_yaml(pools={"heavy": OLD, "builders": OLD}))

    said = " ".join(trial.plan()["unknown"])

    assert tells(said, "stack", "trial-builders", "pool heavy", "renamed")
    assert trial.machines() == [FIRST]


def test_pool_with_machines_cannot_take_over_another(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": OLD, "heavy": OLD}))
    trial.apply()
    trial.write(fleet_yaml(pools={"heavy": RENAMED}, more=LENIENT))

    plan = trial.plan()

    assert plan["actions"] == []
    (unknown,) = (each for each in plan["unknown"] if "previously" in each)
    assert "heavy" in unknown
