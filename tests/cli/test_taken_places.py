"""A waiting ticket names what takes the last place of a pool and serves nothing."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.racks import a_rack
from tests.rigs.trial import Trial

FIRST, STRAY = "rack-first-0001", "rack-first-0007"


@pytest.fixture
def free(project: Path) -> Trial:
    """Return a pool of one machine, which is free."""
    trial = a_rack(project, ". ./new.sh", most=1, other="")
    trial.write((project / "fleet.yaml").read_text().replace("idle_after: 1s", "idle_after: 1h"))
    trial.told("apply")
    trial.told("apply")
    trial.told("ticket", "close", "1")
    return trial


def test_ticket_names_an_unrecorded_machine_in_the_first_run(free: Trial) -> None:
    recorded = json.loads((free.folder / "machines" / FIRST).read_text())
    stray = {**recorded, "name": STRAY, "id": STRAY}
    text = (free.folder / "fleet.yaml").read_text()
    free.write(text.replace("max: 1", "max: 2"))
    free.told("hold", FIRST, "--reason", "look", "--for", "2h")
    (free.folder / "machines" / STRAY).write_text(json.dumps(stray), encoding="utf-8")
    free.told("ticket", "open", "--tag", "any")

    said = " ".join(free.told("explain", "request", "2").split())

    assert tells(said, "workers.max", FIRST, "still counts", STRAY, "still counts")


def test_ticket_names_three_machines_when_more_use_capacity(project: Path) -> None:
    trial = a_rack(project, ". ./new.sh", most=5, other="")
    for _ in range(4):
        trial.told("ticket", "open", "--tag", "any")
    trial.told("apply")
    trial.told("apply")
    for number in range(1, 6):
        name = f"rack-first-000{number}"
        trial.told("ticket", "close", str(number))
        trial.told("hold", name, "--reason", "look", "--for", "2h")
    trial.told("ticket", "open", "--tag", "any")

    said = " ".join(trial.told("explain", "request", "6").split())

    assert said.count(" still counts") >= 3
    assert tells(said, "and 2 more that serve no request")
