"""`fleet observe`: everything one decision rests on, to be replayed, without secrets."""

import json
from typing import Any

import jsonschema

from tests.process import ROOT, RunFleet
from tests.trial import Trial, fleet_yaml


def test_what_is_observed_is_valid_by_the_published_schema(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1")
    trial.apply()

    observed = run_fleet("observe")

    world = json.loads(observed.stdout)
    jsonschema.validate(world, json.loads((ROOT / "docs/schemas/world.json").read_text()))
    assert observed.returncode == 0
    assert list(world["stacks"]) == ["builders"]


def test_out_writes_a_file_and_says_what_to_do_with_it(trial: Trial, run_fleet: RunFleet) -> None:
    observed = run_fleet("observe", "--out", "seen.json")

    assert (observed.returncode, observed.stdout) == (0, "")
    assert observed.stderr == "recorded in seen.json; replay it with --world seen.json\n"
    assert json.loads((trial.folder / "seen.json").read_text())["fleet"] == "trial"


def test_a_recorded_world_gives_the_plan_of_its_moment(trial: Trial, run_fleet: RunFleet) -> None:
    # Machines that boot for an hour are in one state whenever somebody looks.
    trial.write(fleet_yaml(desk="boot: 1h"))
    trial.wait_for("1", big=["2"])
    trial.apply()
    trial.wait_for("1", "3", big=["2"])
    run_fleet("observe", "--out", "seen.json")

    live = timeless(json.loads(run_fleet("plan", "--json").stdout))
    replayed = timeless(json.loads(run_fleet("plan", "--json", "--world", "seen.json").stdout))

    assert live["actions"]
    assert live == replayed


def timeless(plan: dict[str, Any]) -> dict[str, Any]:
    """Return a plan without what differs from one moment to the next."""
    return {key: value for key, value in plan.items() if key not in ("time", "digests")}


def test_a_world_that_cannot_be_written_is_said(trial: Trial, run_fleet: RunFleet) -> None:
    failed = run_fleet("observe", "--out", "/dev/full")

    assert (failed.returncode, failed.stderr) == (
        1,
        "fleet: error: /dev/full: cannot be written: the disk is full\n",
    )
    assert trial.machines() == []
