"""A `new` that hangs: its attempts count as failed, another pool serves, and its ticket tells."""

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

pytestmark = pytest.mark.usefixtures("impatient")
HANGS = "cat > /dev/null; echo register >&2; exec sleep 300"
QUICK = ", timeouts: {new: 1s}"
FIRST, SECOND = "rack-first-0001", "rack-first-0002"
FAILS = "cat > /dev/null; {}; exit 1"
NO_ROUTE = FAILS.format("echo no route >&2")


@pytest.mark.slow
def test_machine_is_kept_when_it_appears_after_its_pool_closed(project: Path) -> None:
    trial = a_rack(project, HANGS, more=QUICK)
    for _ in range(5):
        trial.do("apply")
    machine = json.loads((project / "machines/rack-works-0001").read_text())
    late = {**machine, "name": FIRST, "labels": {**machine["labels"], "pool": "first"}}
    (project / "machines" / FIRST).write_text(json.dumps(late), encoding="utf-8")

    trial.do("apply")

    assert made(trial) == [FIRST, "rack-works-0001"]
    assert FIRST in [each["worker"] for each in trial.plan()["workers"]]


@pytest.mark.parametrize("new", [HANGS, NO_ROUTE])
def test_waiting_ticket_shows_first_failed_attempt(new: str, project: Path) -> None:
    trial = a_rack(project, new, more=QUICK)
    trial.do("apply")

    shown = [
        trial.told("ticket", "show", "1"),
        trial.told("ticket", "show", "1", "--json"),
        trial.told("ticket", "list"),
        trial.do("ticket", "check", "1")[1],
        trial.told("explain", "request", "1"),
        trial.told("explain", "request", "t/1", "--json"),
        trial.told("status"),
        trial.told("status", "--json"),
        trial.told("plan"),
    ]

    for said in (" ".join(each.split()) for each in shown):
        assert tells(said, "1", FIRST)
        assert ("did not finish" in said) == (new == HANGS)
        assert ("no route" in said) == (new == NO_ROUTE)
        assert "which exists" not in said


def test_waiting_ticket_shows_number_of_failed_attempts(project: Path) -> None:
    trial = a_rack(project, NO_ROUTE, other="")

    for count in range(1, 6):
        trial.do("apply")
        said = trial.told("ticket", "show", "1", "--json")
        assert str(min(count, 4)) in json.loads(said)["because"], said


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


def test_plan_reports_listed_machine_when_its_command_new_hung(hung: Trial) -> None:
    (hung.folder / "machines").mkdir(exist_ok=True)
    found = action(hung)
    machine = {"name": FIRST, "labels": found["inputs"]["labels"], "type": "own"}
    state = {"id": FIRST, "state": "running", "created_at": "2026-11-21T08:00:00Z"}
    (hung.folder / "machines" / FIRST).write_text(json.dumps(machine | state), encoding="utf-8")

    found = next(each for each in hung.plan()["actions"] if each["worker"] == FIRST)
    assert found["action"] == "create"
    assert tells(found["because"], "timed out", "lists it")


def test_apply_cleans_up_after_unneeded_hanging_command_new(hung: Trial) -> None:
    hung.write(YAML.format(more=QUICK, most=0))
    found = action(hung)

    said = hung.apply()

    (stack,) = hung.json("state", "show")["runs"][0]["outcome"]["stacks"]
    assert (found["action"], found["absent"]) == ("delete", "unmade")
    assert tells(found["because"], "timed out", "no longer needed")
    assert "0 deleted, 1 cleaned up" in said
    assert f"1: {FIRST}" in said
    assert (stack["result"], stack["deleted"], stack["cleaned"]) == ("applied", [], [FIRST])
    assert (made(hung), hung.recorded(), hung.plan()["actions"]) == ([], [], [])
    assert tells(hung.told("log"), "clean-up", FIRST)


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
