"""Where fleet runs, as whom, and in which folder, changes nothing of what it does."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rigs.process import clean_environment, fleet_command
from tests.rigs.trial import Trial, fleet_yaml

ODD = "job%2Fbranch %20?a=b#é"
NOBODY = ("unshare", "--user", "--map-user=1234", "--map-group=1234")


def run(folder: Path, *args: str, before: tuple[str, ...] = ()) -> str:
    """Run a command as somebody without a name and without HOME, and return what it printed."""
    given = {name: os.environ[name] for name in ("FLEET_PULUMI",) if name in os.environ}
    environment = clean_environment(folder, given | {"FLEET_PASSPHRASE": "made up"})
    del environment["HOME"]
    done = subprocess.run(
        [*before, *fleet_command(), *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout


def walk(folder: Path, before: tuple[str, ...] = ()) -> None:
    """Hold that the fleet of a folder is made, and known by the next run."""
    trial = Trial(folder)
    trial.wait_for("1", big=["2"])
    run(folder, "state", "init", before=before)

    run(folder, "apply", before=before)

    machines = trial.machines()
    assert len(machines) == 2
    status = json.loads(run(folder, "status", "--json", before=before))
    assert [each["worker"] for each in status["workers"]] == machines
    assert json.loads(run(folder, "plan", "--json", before=before))["actions"] == []
    left = {path.name for path in folder.iterdir()}
    assert left == {"fleet.yaml", "world.json", ".fleet"}


@pytest.mark.engine
def test_the_real_engine_keeps_its_stacks_in_a_folder_with_odd_characters(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    trial = Trial(folder)
    passphrase = "state: {passphrase: {env: FLEET_PASSPHRASE}}"
    trial.write(fleet_yaml(desk="boot: 1s, engine: pulumi", more=passphrase))

    walk(folder)

    assert {path.name for path in tmp_path.iterdir()} == {ODD}


def test_odd_characters_in_the_keys_that_say_where_state_is_are_kept(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    state = f"state: {{backend: 'file://{ODD}/state', store: 'sqlite:///{ODD}/s.db'}}\n"
    trial.write((tmp_path / "fleet.yaml").read_text(encoding="utf-8") + state)

    trial.wait_for("1")
    run(tmp_path, "state", "init")
    run(tmp_path, "apply")

    assert (tmp_path / ODD / "s.db").is_file()
    assert (tmp_path / ODD / "state/embedded.db").is_file()


def test_a_user_without_a_name_and_without_a_home_has_a_fleet(tmp_path: Path) -> None:
    if (
        shutil.which("unshare") is None
        or subprocess.run([*NOBODY, "true"], check=False).returncode
    ):
        pytest.skip("unshare --map-user does not work on this machine")
    folder = tmp_path / ODD
    folder.mkdir()

    walk(folder, NOBODY)

    assert {path.name for path in tmp_path.iterdir()} == {ODD}
