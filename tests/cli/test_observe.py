"""`fleet observe` records the facts behind one plan, to be replayed, without secrets."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import jsonschema

from fleet.state.history import append
from tests.builders.sentences import tells
from tests.rigs.process import ROOT, RunFleet
from tests.rigs.trial import Trial, fleet_yaml

THEN = "2026-11-20T08:00:00Z"
AT = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)


def test_observed_world_matches_published_schema(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    observed = run_fleet("observe")

    world = json.loads(observed.stdout)
    jsonschema.validate(world, json.loads((ROOT / "docs/schemas/world.json").read_text()))
    assert observed.returncode == 0
    assert list(world["stacks"]) == ["builders"]


def test_observe_out_names_file_and_its_use(trial: Trial, run_fleet: RunFleet) -> None:
    observed = run_fleet("observe", "--out", "seen.json")

    assert (observed.returncode, observed.stdout) == (0, "")
    assert tells(observed.stderr, "seen.json", "--world", "seen.json")
    assert json.loads((trial.folder / "seen.json").read_text())["fleet"] == "trial"


def test_recorded_world_gives_the_plan_of_its_time(trial: Trial, run_fleet: RunFleet) -> None:
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


def test_observe_reports_unwritable_file(trial: Trial, run_fleet: RunFleet) -> None:
    failed = run_fleet("observe", "--out", "/dev/full")

    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert failed.stderr.startswith("fleet: error: /dev/full: ")
    assert trial.machines() == []


def test_plan_uses_one_moment_of_a_history(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    world = json.loads(run_fleet("observe").stdout)
    append(str(trial.folder / "history.jsonl.zst"), json.dumps(world | {"time": THEN}) + "\n", AT)
    trial.wait_for("1", "2")
    appended = run_fleet("observe", "--append", "history.jsonl.zst")

    then = run_fleet("plan", "--json", "--world", f"history.jsonl.zst@{THEN}")
    latest = run_fleet("plan", "--json", "--world", "history.jsonl.zst")

    plans = [json.loads(said.stdout) for said in (then, latest)]
    assert (appended.returncode, appended.stdout) == (0, "")
    assert re.fullmatch(
        r".*\b[\d,]+ bytes.*\bhistory\.jsonl\.zst\b.*\b[\d,]+ .*"
        r"--world history\.jsonl\.zst@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n",
        appended.stderr,
    )
    assert [plan["time"] == THEN for plan in plans] == [True, False]


def test_torn_history_is_read_and_truncated_with_a_warning(
    trial: Trial, run_fleet: RunFleet
) -> None:
    run_fleet("observe", "--append", "history.jsonl.zst")
    with (trial.folder / "history.jsonl.zst").open("ab") as file:
        file.write(b"\x28\xb5\x2f\xfd torn")

    planned = run_fleet("plan", "--world", "history.jsonl.zst")
    appended = run_fleet("observe", "--append", "history.jsonl.zst")
    mended = run_fleet("plan", "--world", "history.jsonl.zst")

    torn = "an incomplete observation of 9 bytes at the end (a killed append or a cut file) was"
    assert planned.returncode == 0
    assert f"warning: history.jsonl.zst: {torn} skipped" in planned.stderr
    assert f"warning: history.jsonl.zst: {torn} cut off" in appended.stderr
    assert mended.stderr == ""


def test_observe_append_refuses_a_file_that_is_not_a_history(
    trial: Trial, run_fleet: RunFleet
) -> None:
    before = (trial.folder / "fleet.yaml").read_bytes()

    appended = run_fleet("observe", "--append", "fleet.yaml")

    assert appended.returncode == 1
    assert tells(appended.stderr, "fleet.yaml", "fleet observe --append")
    assert (trial.folder / "fleet.yaml").read_bytes() == before


def test_observe_records_pseudonyms_when_requested(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    world = json.loads((trial.folder / "world.json").read_text(encoding="utf-8"))
    (request,) = (each for each in world["queues"]["work"]["demand"]["requests"][:1])
    request["requester"] = "alice"
    (trial.folder / "world.json").write_text(json.dumps(world), encoding="utf-8")

    plain, other = run_fleet("observe"), run_fleet("observe", "--pseudonyms")

    assert "alice" in plain.stdout
    assert (other.returncode, "alice" in other.stdout) == (0, False)
    assert '"person-' in other.stdout
