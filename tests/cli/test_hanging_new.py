"""A `new` that hangs: its attempts count as failed, another pool serves, and its ticket tells."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders.sentences import tells
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
