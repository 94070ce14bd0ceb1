"""Killed at any of its commits, an apply leaves a whole log that names what it made."""

import shutil
from pathlib import Path

import pytest

from fleet.model.log import find_breaks
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from tests.rigs.process import clean_environment
from tests.rigs.trial import Trial
from tests.rigs.warm import Warm


def killed_at(warm: Warm, folder: Path, number: int, *words: str) -> list[str]:
    """Run a command, killed at a moment; return the moments that came, 0: all of them."""
    moments = folder / "moments"
    mortal, env = "tests.faults.mortal_fleet", clean_environment(folder)
    warm.run(moments, f"{number}", *words, cwd=folder, env=env, program=mortal)
    return moments.read_text(encoding="utf-8").splitlines() if moments.exists() else []


@pytest.mark.kills
def test_log_is_complete_when_apply_is_killed_at_any_commit(
    trial: Trial, tmp_path: Path, warm: Warm
) -> None:
    trial.wait_for("1", "2")
    whole = tmp_path / "whole"
    shutil.copytree(trial.folder, whole)
    moments = killed_at(warm, whole, 0, "apply")
    assert "after insert fleet_about, insert fleet_log, update fleet_about" in moments

    outcomes = set()
    for number in range(1, len(moments) + 1):
        folder = tmp_path / str(number)
        shutil.copytree(trial.folder, folder)
        killed_at(warm, folder, number, "apply")
        healed = Trial(folder)
        healed.apply()

        store = Store(sqlite_url(folder / ".fleet/store.db"), "trial")
        assert list(find_breaks(store.log_chain())) == []
        entries = store.read_log()
        named = {each.machine for each in entries}
        named |= {
            name
            for each in entries
            if each.kind == "begin"
            for name in each.details.get("create", "").split(", ")
        }
        assert set(healed.machines()) <= named, moments[number - 1]
        runs = store.last_runs(9)
        assert len([each for each in entries if each.kind == "run"]) == len(runs)
        outcomes |= {each.outcome for each in entries if each.kind == "run"}
    assert outcomes == {"done", "killed"}
