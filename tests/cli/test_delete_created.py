"""`machine delete --run` and `--since` delete machines that runs created and never were busy."""

import json

import pytest

from tests.builders.sentences import tells
from tests.cli.test_machine import ONE, TWO, WARM
from tests.rigs.trial import Trial, fleet_yaml

THREE = "trial-builders-0003"


@pytest.fixture
def grown(trial: Trial) -> Trial:
    """Return a fleet with an old machine, and two new ones, the first of which is busy."""
    return trial.begun(begin_grown)


def begin_grown(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": WARM}))
    trial.wait_for("1")
    trial.apply()
    trial.age(hours=2)
    trial.cloud.assign(ONE, "1")
    trial.wait_for("2", "3")
    trial.apply()
    trial.age(minutes=2)
    trial.cloud.assign(TWO, "2")
    trial.wait_for()


@pytest.mark.slow
def test_deletion_of_created_machines_is_only_shown_without_apply(grown: Trial) -> None:
    before = grown.files()

    shown = json.loads(grown.told("machine", "delete", "--since", "30m", "--json"))

    assert [(each["worker"], each["action"]) for each in shown["actions"]] == [(THREE, "drain")]
    assert grown.files() == before


def test_delete_since_keeps_busy_and_older_machines(grown: Trial) -> None:
    for _ in range(2):
        grown.do("machine", "delete", "--since", "30m", "--apply")

    assert grown.machines() == [ONE, TWO]


def test_delete_since_keeps_machine_that_was_busy_once(grown: Trial) -> None:
    grown.cloud.assign(THREE, "3")
    grown.cloud.assign(THREE, None)

    shown = json.loads(grown.told("machine", "delete", "--since", "30m", "--json"))

    (kept,) = [each for each in shown["workers"] if each["worker"] == THREE]
    assert shown["actions"] == []
    assert kept["reason"] == "requested"
    assert tells(kept["because"], "1 request")


def test_delete_run_selects_run_by_prefix_of_start(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": WARM}))
    for waiting in (("1",), ("1", "2")):
        trial.wait_for(*waiting)
        trial.apply()
    latest, first = json.loads(trial.told("state", "show", "--json"))["runs"]

    for run, machine in ((latest, TWO), (first, ONE)):
        shown = json.loads(trial.told("machine", "delete", "--run", run["started"], "--json"))

        assert {each["worker"] for each in shown["actions"]} == {machine}


def test_delete_run_names_latest_run_when_run_is_unknown(grown: Trial) -> None:
    latest = json.loads(grown.told("state", "show", "--json"))["runs"][0]["started"]

    for run in ("2020-01-01T00:00", "nonsense", "2"):
        assert tells(grown.told("machine", "delete", "--run", run, code=1), run, latest)

    assert grown.machines() == [ONE, TWO, THREE]
