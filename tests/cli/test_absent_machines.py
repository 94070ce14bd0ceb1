"""Apply says what became of a machine that does not exist: cleaned up, or forgotten."""

import json
from pathlib import Path
from typing import Any

import pytest
import time_machine

from tests.builders.sentences import tells
from tests.cli.test_gone import (
    own_commands,
    run_after_a_second,
    serve_one,
    ticket_fleet,
    write_scripts,
)
from tests.rigs.racks import YAML, a_rack, made
from tests.rigs.trial import Trial

HANGS = "cat > /dev/null; echo register >&2; exec sleep 300"
QUICK = ", timeouts: {new: 1s}"
FIRST = "rack-first-0001"
pytestmark = pytest.mark.usefixtures("impatient")


def action(trial: Trial) -> dict[str, Any]:
    """Return the only action of a plan."""
    (found,) = trial.plan()["actions"]
    return dict(found)


@pytest.fixture
def hung(project: Path) -> Trial:
    """Return a fleet whose only `new` was stopped after its time limit."""
    trial = a_rack(project, HANGS, more=QUICK, other="")
    trial.do("apply")
    return trial


def without_room(trial: Trial) -> None:
    trial.write(YAML.format(more=QUICK, most=0))


def test_plan_reports_timeout_when_command_new_hung(hung: Trial) -> None:
    found = action(hung)

    assert (found["action"], found["worker"], found["reason"]) == ("create", FIRST, "interrupted")
    assert tells(found["because"], "timed out", "0.25s")
    assert "earlier apply" not in found["because"]


def test_plan_reports_listed_machine_when_its_command_new_hung(hung: Trial) -> None:
    (hung.folder / "machines").mkdir(exist_ok=True)
    found = action(hung)
    machine = {"name": FIRST, "labels": found["inputs"]["labels"], "type": "own"}
    state = {"id": FIRST, "state": "running", "created_at": "2026-11-21T08:00:00Z"}
    (hung.folder / "machines" / FIRST).write_text(json.dumps(machine | state), encoding="utf-8")

    found = next(each for each in hung.plan()["actions"] if each["worker"] == FIRST)
    assert found["action"] == "create"
    assert tells(found["because"], "timed out", "lists it")


@pytest.mark.parametrize("printed", ["two words", "{", "a\\tb"])
def test_plan_reports_failure_when_command_new_printed_no_id(printed: str, project: Path) -> None:
    trial = a_rack(project, f"cat > /dev/null; printf '{printed}'; echo ' x'", other="")
    trial.do("apply")

    found = action(trial)

    assert (found["action"], found["reason"]) == ("create", "interrupted")
    assert tells(found["because"], "creation failed", "id")
    assert "earlier apply" not in found["because"]


def test_plan_reports_failure_when_command_delete_failed(project: Path) -> None:
    trial = a_rack(project, ". ./new.sh", other="", delete="echo boom >&2; exit 1")
    trial.do("apply")
    trial.do("apply")
    trial.told("ticket", "close", "1")
    trial.do("apply")

    found = action(trial)

    assert (found["action"], found["worker"]) == ("delete", FIRST)
    assert tells(found["because"], "deletion failed")
    assert "1 time in a row" in " ".join(trial.told("plan").split())


def test_apply_cleans_up_after_unneeded_hanging_command_new(hung: Trial) -> None:
    without_room(hung)
    found = action(hung)

    outcome = hung.outcome()["first"]

    assert (found["action"], found["absent"]) == ("delete", "unmade")
    assert tells(found["because"], "timed out", "no longer needed")
    assert (outcome["result"], outcome["deleted"], outcome["cleaned"]) == ("applied", [], [FIRST])
    assert (made(hung), hung.recorded(), hung.plan()["actions"]) == ([], [], [])
    assert tells(hung.told("log"), "clean-up", FIRST)


def test_apply_counts_cleaned_up_machines_separately(hung: Trial) -> None:
    without_room(hung)

    code, said = hung.do("apply")

    assert code == 0, said
    assert "0 deleted, 1 cleaned up" in said
    assert f"1: {FIRST}" in said


def test_apply_forgets_missing_machine_that_has_a_ticket(
    clock: time_machine.Traveller, project: Path
) -> None:
    trial = Trial(project)
    trial.write(ticket_fleet())
    trial.init()
    trial.told("ticket", "open", "--tag", "deb")
    run_after_a_second(clock, trial, 2)
    trial.cloud.delete("sim-1")
    run_after_a_second(clock, trial, 2)

    outcome = trial.outcome()["own"]

    assert (outcome["forgotten"], outcome["deleted"]) == (["trial-own-0001"], [])
    assert tells(trial.told("log"), "forget", "trial-own-0001")


def test_apply_forgets_a_machine_when_its_ticket_was_closed(project: Path) -> None:
    write_scripts(project)
    trial = Trial(project)
    number = serve_one(trial, own_commands("gone: {lists: 3, after: 1s}"))
    (project / "machines/trial-own-0001").unlink()
    trial.told("ticket", "close", number, "--user", "ada")

    said = [trial.do("apply")[1] for _ in range(2)]

    assert "0 deleted, 1 forgotten" in said[0]
    assert "1: trial-own-0001" in said[0]
    assert "1 forgotten" not in said[1]
    assert not (project / "deleted").exists()
