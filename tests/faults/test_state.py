"""State that is missing, foreign, full or read-only: apply says so, and touches nothing."""

import os
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import Completed, RunFleet, clean_environment
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml
from tests.rigs.warm import Warm


@pytest.fixture
def trial(project: Path) -> Trial:
    """Return a trial fleet with one machine."""
    return Trial(project).begun(begin_trial)


def begin_trial(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    trial.wait_for("1")
    trial.apply()


# disks


def with_small_files(trial: Trial, warm: Warm, limit: int, *args: str) -> Completed:
    """Run fleet where no file may grow beyond a limit, as on a disk that is full."""
    env = clean_environment(trial.folder)
    small = "tests.faults.full_disk"
    with warm.started(f"{limit}", *args, cwd=trial.folder, env=env, program=small) as run:
        said, complained = run.stdout.read(), run.stderr.read()
        return Completed(["fleet", *args], run.wait(), said, complained)


@pytest.mark.parametrize("limit", [0, 8_000, 20_480])
def test_state_init_succeeds_after_a_full_disk(project: Path, warm: Warm, limit: int) -> None:
    trial = Trial(project)

    failed = with_small_files(trial, warm, limit, "state", "init")
    code, said = trial.do("state", "init")

    assert (failed.returncode, failed.stdout) == (1, "")
    assert tells(failed.stderr, "store", ".fleet/store.db", "disk I/O error")
    assert (code, said) == (0, "store .fleet/store.db created\n")


@pytest.mark.parametrize("limit", [0, 8_000])
def test_full_disk_during_apply_creates_no_machine(trial: Trial, warm: Warm, limit: int) -> None:
    trial.wait_for("1", "2")

    failed = with_small_files(trial, warm, limit, "apply")

    assert (failed.returncode, failed.stdout) == (1, "")
    assert tells(failed.stderr, ".fleet/store.db", "disk full")
    assert trial.machines() == ["trial-builders-0001"]


def test_next_apply_finishes_after_full_disk(trial: Trial, warm: Warm) -> None:
    trial.wait_for("1", "2")
    with_small_files(trial, warm, 8_000, "apply")

    trial.apply()

    assert trial.machines() == trial.recorded() == ["trial-builders-0001", "trial-builders-0002"]


@pytest.mark.skipif(os.geteuid() == 0, reason="NOT TESTED as root, who may write anywhere")
def test_unwritable_folder_is_reported(trial: Trial, run_fleet: RunFleet) -> None:
    folder = trial.folder / ".fleet"
    folder.chmod(0o500)

    failed = run_fleet("apply")
    folder.chmod(0o700)

    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert trial.machines() == ["trial-builders-0001"]


# state in a throw-away checkout


def test_apply_in_ci_refuses_state_inside_checkout(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1", "2")

    refused = run_fleet("apply", env={"CI_PROJECT_DIR": str(trial.folder)})

    assert (refused.returncode, refused.stdout) == (4, "")
    assert tells(refused.stderr, f"{trial.folder}/.fleet", "docs/how-to/run-in-gitlab.md")
    assert trial.machines() == ["trial-builders-0001"]


def test_apply_in_ci_accepts_state_outside_checkout(
    trial: Trial, run_fleet: RunFleet, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()

    applied = run_fleet("apply", env={"CI_PROJECT_DIR": str(checkout)})

    assert applied.returncode == 0
    assert trial.machines() == ["trial-builders-0001"]
