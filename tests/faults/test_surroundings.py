"""Where fleet runs, as whom, and in which folder, changes nothing of what it does."""

import json
import os
import re
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
def test_pulumi_works_in_folder_with_odd_characters(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    trial = Trial(folder)
    passphrase = "state: {passphrase: {env: FLEET_PASSPHRASE}}"
    trial.write(fleet_yaml(desk="boot: 1s, engine: pulumi", more=passphrase))

    walk(folder)

    assert {path.name for path in tmp_path.iterdir()} == {ODD}


def test_odd_characters_in_state_locations_are_kept(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    state = f"state: {{backend: 'file://{ODD}/state', store: 'sqlite:///{ODD}/s.db'}}\n"
    trial.write((tmp_path / "fleet.yaml").read_text(encoding="utf-8") + state)

    trial.wait_for("1")
    trial.init()
    trial.apply()

    assert (tmp_path / ODD / "s.db").is_file()
    assert (tmp_path / ODD / "state/embedded.db").is_file()


@pytest.mark.slow
def test_fleet_works_for_user_without_name_and_home(tmp_path: Path) -> None:
    if (
        shutil.which("unshare") is None
        or subprocess.run([*NOBODY, "true"], check=False).returncode
    ):
        pytest.skip("unshare --map-user does not work on this machine")
    folder = tmp_path / ODD
    folder.mkdir()

    walk(folder, NOBODY)

    assert {path.name for path in tmp_path.iterdir()} == {ODD}


@pytest.mark.parametrize(
    ("name", "store", "older"),
    [
        ("job%2Fbranch", "sqlite", "job/branch/.fleet/store.db"),
        ("job", "sqlite:///my%20s.db", "job/my s.db"),
        ("job", "sqlite:///s.db?timeout=30", "job/s.db"),
    ],
)
def test_older_store_is_named_with_its_move_command(
    tmp_path: Path, name: str, store: str, older: str
) -> None:
    folder, old = tmp_path / name, tmp_path / older
    folder.mkdir()
    trial = Trial(folder)
    trial.wait_for("1")
    trial.init()
    trial.apply()
    old.parent.mkdir(parents=True, exist_ok=True)
    (folder / ".fleet/store.db").rename(old)
    if store == "sqlite":
        (folder / ".fleet/embedded.db").rename(old.with_name("embedded.db"))
    trial.write(fleet_yaml(more=f"state: {{store: '{store}'}}"))

    refused = [trial.do(*words) for words in (["apply"], ["state", "init"])]

    assert [code for code, _ in refused] == [1, 1]
    (told, again) = (re.findall("`(mkdir .*?)`", said) for _, said in refused)
    assert told == again
    subprocess.run(["sh", "-c", told[0]], cwd=folder, check=True)
    assert trial.plan()["actions"] == []


def test_store_of_another_fleet_in_odd_folder_is_unchanged(tmp_path: Path) -> None:
    for name, fleet in (("job/branch", "other"), ("job%2Fbranch", "debian")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        trial = Trial(folder)
        text = (folder / "fleet.yaml").read_text(encoding="utf-8")
        trial.write(re.sub("^fleet: .*", f"fleet: {fleet}", text, flags=re.MULTILINE))
        trial.init()

    assert (tmp_path / "job%2Fbranch/.fleet/store.db").is_file()


def test_installed_plugins_are_not_loaded_by_pydantic(tmp_path: Path) -> None:
    """Pydantic offers each value that it validates to the plugins of other packages."""
    found = tmp_path / "packages"
    metadata = found / "listener-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: listener\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[pydantic]\nlistener = listener:plugin\n")
    (found / "listener.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w'); plugin = None\n")
    (tmp_path / "fleet.yaml").write_text("fleet: team\n")

    environment = clean_environment(tmp_path, {"PYTHONPATH": str(found)})
    command = [*fleet_command(), "validate"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)

    assert not (tmp_path / "canary").exists()
