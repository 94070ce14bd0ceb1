"""Killed at any of its commits, an apply leaves a whole log that names what it made."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.model.log import find_breaks
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from tests.rigs.process import ROOT
from tests.rigs.trial import Trial


def killed_at(folder: Path, number: int, *words: str) -> list[str]:
    """Run a command, killed at a moment; return the moments that came, 0: all of them."""
    moments = folder / "moments"
    command = [sys.executable, "-m", "tests.faults.mortal_fleet", str(moments), str(number)]
    subprocess.run(
        [*command, *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        check=False,
        capture_output=True,
    )
    return moments.read_text(encoding="utf-8").splitlines() if moments.exists() else []


@pytest.mark.kills
def test_log_is_complete_when_apply_is_killed_at_any_commit(trial: Trial, tmp_path: Path) -> None:
    trial.wait_for("1", "2")
    whole = tmp_path / "whole"
    shutil.copytree(trial.folder, whole)
    moments = killed_at(whole, 0, "apply")
    assert "after insert fleet_about, insert fleet_log, update fleet_about" in moments

    outcomes = set()
    for number in range(1, len(moments) + 1):
        folder = tmp_path / str(number)
        shutil.copytree(trial.folder, folder)
        killed_at(folder, number, "apply")
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
