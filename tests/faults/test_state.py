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


# a store that is not there, or not ours


def test_apply_without_store_names_command_to_create_it(
    project: Path, run_fleet: RunFleet
) -> None:
    trial = Trial(project)
    trial.wait_for("1")
    before = trial.files()

    refused = run_fleet("apply")

    assert (refused.returncode, refused.stdout) == (4, "")
    assert tells(refused.stderr, "no store", ".fleet/store.db")
    assert "`fleet state init`" in refused.stderr
    assert trial.files() == before


def test_lost_store_stops_apply_when_machines_exist(trial: Trial, run_fleet: RunFleet) -> None:
    (trial.folder / ".fleet/store.db").unlink()

    refused = run_fleet("apply")

    assert refused.returncode == 4
    assert trial.machines() == ["trial-builders-0001"]


def test_plan_without_store_reports_unknown_state(trial: Trial, run_fleet: RunFleet) -> None:
    (trial.folder / ".fleet/store.db").unlink()

    planned = run_fleet("plan")

    assert planned.returncode == 1
    assert tells(planned.stdout, "Plan", "nothing")
    assert tells(planned.stdout, "stacks", "unknown", "store", ".fleet/store.db")


def test_new_store_with_old_stacks_changes_nothing(trial: Trial) -> None:
    (trial.folder / ".fleet/store.db").unlink()
    trial.init()

    trial.apply()

    assert trial.machines() == trial.recorded() == ["trial-builders-0001"]


def test_store_of_another_fleet_is_refused(trial: Trial, run_fleet: RunFleet) -> None:
    text = fleet_yaml(pools={"builders": BUILDERS}).replace("fleet: trial", "fleet: other")
    trial.write(text)

    refused = run_fleet("apply")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert tells(refused.stderr, ".fleet/store.db", "fleet trial", "other")
    assert trial.machines() == ["trial-builders-0001"]


def test_apply_reports_file_that_is_not_a_store(project: Path, run_fleet: RunFleet) -> None:
    Trial(project)
    (project / ".fleet").mkdir()
    (project / ".fleet/store.db").write_bytes(b"binary\0rubbish" * 100)

    refused = run_fleet("apply")

    assert refused.returncode == 1
    assert tells(refused.stderr, ".fleet/store.db", "file is not a database")
    assert "`fleet state init`" in refused.stderr
    assert "docs/how-to/restore-lost-state.md" in refused.stderr


def test_new_store_finds_stacks_after_damaged_one_is_moved(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1")
    store = trial.folder / ".fleet/store.db"
    store.write_bytes(store.read_bytes()[:5000])
    damaged = run_fleet("state", "show")

    store.rename(store.with_suffix(".damaged"))
    trial.init()

    assert damaged.returncode == 1
    assert " is damaged: " in damaged.stderr
    assert trial.settles()


# stacks that are not there


def test_lost_stacks_stop_apply_and_keep_every_machine(trial: Trial, run_fleet: RunFleet) -> None:
    (trial.folder / ".fleet/embedded.db").unlink()
    trial.wait_for("1", "2")

    refused = run_fleet("apply")

    assert refused.returncode == 4
    assert "fleet state init --forget-stack trial-builders" in refused.stdout
    assert trial.machines() == ["trial-builders-0001"]


def test_forgotten_stack_keeps_its_machines_unmanaged(trial: Trial, run_fleet: RunFleet) -> None:
    (trial.folder / ".fleet/embedded.db").unlink()

    forgotten = run_fleet("state", "init", "--forget-stack", "trial-builders")
    code, said = trial.do("apply")

    assert forgotten.returncode == 0
    assert tells(forgotten.stdout, "trial-builders", "machines")
    assert code == 1
    assert "trial-builders-0001" in said
    assert "Applied: 1 created" in said
    assert trial.machines() == ["trial-builders-0001", "trial-builders-0002"]
    assert trial.recorded() == ["trial-builders-0002"]


def test_damaged_stacks_are_unknown(trial: Trial, run_fleet: RunFleet) -> None:
    (trial.folder / ".fleet/embedded.db").write_bytes(b"binary\0rubbish" * 100)

    refused = run_fleet("apply")

    assert refused.returncode == 4
    assert tells(refused.stdout, "file is not a database", "backup")
    assert trial.machines() == ["trial-builders-0001"]


def test_damaged_simulated_cloud_is_unknown(trial: Trial, run_fleet: RunFleet) -> None:
    trial.cloud.path.write_text("{}")

    failed = run_fleet("apply")

    assert failed.returncode == 1
    assert tells(failed.stderr, trial.cloud.path, "fleet-sim-1", "format", "restore")


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
