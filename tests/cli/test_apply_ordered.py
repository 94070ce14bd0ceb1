"""`fleet apply PLAN` and `fleet apply --pool`: what a person ordered, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.trial import Trial, fleet_yaml


def saved(trial: Trial) -> Path:
    """Save the plan of now."""
    trial.told("plan", "--out", "p.json")
    return trial.folder / "p.json"


def test_saved_plan_of_another_fleet_is_refused(trial: Trial) -> None:
    saved(trial)
    trial.write(fleet_yaml().replace("fleet: trial", "fleet: other"))
    (trial.folder / ".fleet/store.db").unlink()
    trial.init()

    said = trial.told("apply", "p.json", code=4)

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
