"""A `new` that hangs: its attempts count as failed, another pool serves, and its ticket tells."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.racks import a_rack, made

pytestmark = pytest.mark.usefixtures("impatient")
HANGS = "cat > /dev/null; echo register >&2; exec sleep 300"
QUICK = ", timeouts: {new: 1s}"
FIRST, SECOND = "rack-first-0001", "rack-first-0002"
FAILS = "cat > /dev/null; echo no route >&2; exit 1"


@pytest.mark.slow
def test_late_machine_of_hanging_command_new_is_recorded(project: Path) -> None:
    trial = a_rack(project, f"(. ./new.sh); {HANGS}", more=QUICK)

    codes = [trial.do("apply")[0] for _ in range(2)]

    assert codes == [1, 0]
    assert made(trial) == [FIRST]
    assert [each["worker"] for each in trial.plan()["workers"]] == [FIRST]


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


@pytest.mark.parametrize("new", [HANGS, FAILS])
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
        assert ("no route" in said) == (new == FAILS)
        assert "which exists" not in said


def test_waiting_ticket_shows_number_of_failed_attempts(project: Path) -> None:
    trial = a_rack(project, FAILS, other="")

    for count in range(1, 6):
        trial.do("apply")
        said = trial.told("ticket", "show", "1", "--json")
        assert str(min(count, 4)) in json.loads(said)["because"], said


def test_served_ticket_shows_no_attempt(project: Path) -> None:
    new = "test -e broken && { cat > /dev/null; exit 1; }; . ./new.sh"
    trial = a_rack(project, new)
    (project / "broken").touch()
    trial.do("apply")
    (project / "broken").unlink()

    trial.told("apply")
    trial.told("apply")

    assert trial.told("ticket", "check", "1")
    assert "failed" not in trial.told("ticket", "show", "1")
    assert "failed" not in trial.told("status")
