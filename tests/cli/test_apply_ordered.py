"""`fleet apply PLAN` and `fleet apply --pool`: what a person ordered, and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml


def saved(trial: Trial) -> Path:
    """Save the plan of now."""
    code, said = trial.do("plan", "--out", "p.json")
    assert code == 0, said
    return trial.folder / "p.json"


# a saved plan


def test_saved_plan_is_applied_when_equal_to_current_plan(trial: Trial) -> None:
    trial.wait_for("1")
    saved(trial)

    code, said = trial.do("apply", "p.json")

    assert code == 0, said
    assert trial.machines() == ["trial-builders-0001"]


def test_saved_plan_is_applied_when_only_queue_changed(trial: Trial) -> None:
    trial.wait_for("1")
    saved(trial)
    trial.wait_for("2")

    code, said = trial.do("apply", "p.json")

    assert code == 0, said
    assert trial.machines() == ["trial-builders-0001"]


def test_saved_plan_is_refused_with_drift_when_actions_differ(trial: Trial) -> None:
    trial.wait_for("1")
    saved(trial)
    trial.wait_for("1", "2")

    code, said = trial.do("apply", "p.json")

    assert code == 4
    refused = said.rpartition("Refused: ")[2]
    assert tells(refused, "create", "trial-builders-0002", "pool builders", "[requests-wait]")
    assert "work/2" in refused
    assert tells(refused, "fleet plan --out FILE")
    assert trial.machines() == []


def test_saved_plan_is_refused_when_already_applied(trial: Trial) -> None:
    trial.wait_for("1")
    saved(trial)
    trial.do("apply", "p.json")

    code, said = trial.do("apply", "p.json")

    assert code == 4
    assert tells(said, "stack trial-builders", "absent", "serial")
    assert tells(said, "create", "trial-builders-0001", "[requests-wait]")
    assert trial.machines() == ["trial-builders-0001"]


def test_saved_plan_is_refused_when_config_differs(trial: Trial) -> None:
    trial.wait_for("1")
    saved(trial)
    trial.write(fleet_yaml(more="cadence: 2m\n"))

    code, said = trial.do("apply", "--json", "p.json")

    outcome = json.loads(said)
    assert (code, outcome["stacks"]) == (4, [])
    (difference,) = outcome["outdated"]
    assert difference.startswith("fleet.yaml")


def test_saved_plan_of_another_fleet_is_refused(trial: Trial) -> None:
    saved(trial)
    trial.write(fleet_yaml().replace("fleet: trial", "fleet: other"))
    (trial.folder / ".fleet/store.db").unlink()
    trial.init()

    code, said = trial.do("apply", "p.json")

    assert code == 4
    assert tells(said, "refused", "fleet trial", "fleet other")


@pytest.mark.parametrize(
    ("spoil", "code", "told"),
    [
        (lambda text: text.replace("ccx33", "ccx63"), 4, ("p.json", "edited", "fleet plan --out")),
        (lambda text: text[:-100], 1, ("p.json", "saved plan")),
        (lambda text: text.replace("plan-1", "plan-9"), 1, ("p.json", "'fleet-plan-9'")),
        (lambda _: "{}", 1, ("p.json", "saved plan", "$.fleet")),
    ],
)
def test_damaged_saved_plan_changes_nothing(
    trial: Trial, spoil: Callable[[str], str], code: int, told: tuple[str, ...]
) -> None:
    trial.wait_for("1")
    path = saved(trial)
    path.write_text(spoil(path.read_text(encoding="utf-8")), encoding="utf-8")

    answered, said = trial.do("apply", "p.json")

    assert answered == code
    assert tells(said, "fleet: error", *told)
    assert trial.machines() == []


def test_missing_saved_plan_is_reported(trial: Trial) -> None:
    code, said = trial.do("apply", "nowhere.json")

    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("fleet: error: nowhere.json: ")


def test_saved_plan_with_every_is_wrong_usage(trial: Trial) -> None:
    saved(trial)

    code, said = trial.do("apply", "p.json", "--every", "60s")

    assert code == 2
    assert "--every" in said


# some pools only


def test_apply_changes_only_named_pools(trial: Trial) -> None:
    trial.wait_for("1", big=["2"])

    code, said = trial.do("apply", "--pool", "big")

    assert code == 0, said
    assert trial.machines() == ["trial-big-0001"]


def test_apply_accepts_several_pools(trial: Trial) -> None:
    trial.wait_for("1", big=["2"])

    code, said = trial.do("apply", "--pool", "big", "--pool", "builders")

    assert code == 0, said
    assert trial.machines() == ["trial-big-0001", "trial-builders-0001"]


def test_apply_pool_accepts_a_removed_pool(trial: Trial) -> None:
    trial.wait_for(big=["1"])
    trial.apply()
    trial.age(minutes=1)
    allowed = "guards: {refuse: {delete: {share: 100%, count: 10}}}\n"
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, more=allowed))

    code, said = trial.do("apply", "--pool", "big")

    assert code == 0, said
    assert "~ drained 1: trial-big-0001" in said


def test_unknown_pool_is_refused_with_known_pools(trial: Trial) -> None:
    code, said = trial.do("apply", "--pool", "bgi")

    assert code == 2
    assert tells(said, "--pool bgi", "'big'", "fleet trial", "big", "builders")


def test_guards_also_count_unnamed_pools(trial: Trial) -> None:
    trial.write(fleet_yaml(more="guards: {throttle: {create: {count: 1}}}\n"))
    trial.wait_for("1", big=["2"])

    whole = [action["worker"] for action in trial.plan()["actions"]]
    trial.do("apply", "--pool", "big")

    assert whole == ["trial-builders-0001"]
    assert trial.machines() == []


def test_saved_plan_is_compared_only_for_named_pools(trial: Trial) -> None:
    trial.wait_for("1")
    saved(trial)
    trial.wait_for("1", big=["2"])

    code, said = trial.do("apply", "p.json", "--pool", "builders")

    assert code == 0, said
    assert trial.machines() == ["trial-builders-0001"]
