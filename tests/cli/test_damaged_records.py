"""One unreadable record of the store stops what it might forbid; it never counts as none."""

import pytest

from fleet.model.facts import Attempt
from tests.rigs.trial import ONE, Trial, fleet_yaml

POOL = {"builders": "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}"}


@pytest.fixture
def waiting(trial: Trial) -> Trial:
    """Return a fleet with a store, for which one request waits."""
    trial.write(fleet_yaml(pools=POOL))
    trial.wait_for("1")
    trial.init()
    return trial


def actions(trial: Trial) -> set[str]:
    return {each["action"] for each in trial.plan()["actions"]}


@pytest.mark.parametrize("column", ["at", "result", "market"])
def test_no_machine_is_created_when_an_attempt_is_unreadable(waiting: Trial, column: str) -> None:
    at = waiting.store().last_runs(1)
    assert not at
    now = waiting.world()["time"]
    tried = {"at": now, "pool": "builders", "worker": ONE, "type": "ccx33", "result": "gone"}
    tried["image"] = "trixie"
    waiting.store().record_attempts([Attempt.model_validate(tried)])
    assert actions(waiting) == {"create"}
    assert waiting.sql(f"update fleet_attempts set {column} = 'x'") == 1  # noqa: S608 - a name above

    told = waiting.do("plan")[1]

    assert actions(waiting) == set()
    assert "fleet_attempts" in told
