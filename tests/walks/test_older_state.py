"""A store, stacks and fleet.yaml that an older version wrote go on working.

The folder was written by the commit that its name gives: `fleet state init`, two tickets, three
requests and two applies made six machines of three pools (simulated ones and one of commands).
With request 5 waiting instead of 3, each of these versions saved its plan there.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from fleet.clouds.sim.machines import load
from tests.rigs.process import ROOT
from tests.rigs.trial import Trial

WRITTEN = ROOT / "tests/fixtures/fleet-of-013a4bd2"
SOON = datetime(2026, 11, 25, 4, 20, tzinfo=UTC)


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(SOON) as clock:
        yield clock


@pytest.fixture
def older(tmp_path: Path, clock: time_machine.Traveller) -> Trial:  # noqa: ARG001 - its time
    """Return the folder as the older version left it, four minutes later."""
    shutil.copytree(WRITTEN, tmp_path, dirs_exist_ok=True, ignore=lambda *_: ["state"])
    state = tmp_path / ".fleet"
    state.mkdir()
    shutil.copy(WRITTEN / "state/sim-desk.json", state)
    for name in ("store", "embedded"):
        with sqlite3.connect(state / f"{name}.db") as database:
            database.executescript((WRITTEN / f"state/{name}.sql").read_text(encoding="utf-8"))
        database.close()
    return Trial(tmp_path)


def wait_for(older: Trial, *requests: str) -> None:
    path = older.folder / "world.json"
    world = json.loads(path.read_text(encoding="utf-8"))
    world["queues"]["work"]["demand"]["requests"] = [{"id": name} for name in requests]
    path.write_text(json.dumps(world), encoding="utf-8")


def machines(older: Trial) -> set[str]:
    """Return the machines that exist, without the name of the fleet."""
    simulated = [each.inputs.name for each in load(older.cloud.path).machines.values()]
    commanded = [path.name for path in (older.folder / "machines").iterdir()]
    return {name.removeprefix("before-") for name in (*simulated, *commanded)}


WERE_THERE = {
    *("builders-0001", "builders-0002", "builders-0003"),
    *("powerful-0001", "powerful-0002", "racks-0001"),
}


def test_state_of_older_version_causes_no_change(older: Trial) -> None:
    plan = older.plan()

    assert older.do("validate")[0] == 0
    assert plan["actions"] == []
    assert {worker["worker"].removeprefix("before-") for worker in plan["workers"]} == WERE_THERE
    assert plan["unknown"] == []
    assert older.do("ticket", "check", "2", "--user", "bob") == (0, "before-powerful-0001\n")


def test_state_of_older_version_gets_one_additional_machine(older: Trial) -> None:
    wait_for(older, "1", "2", "4", "5")

    outcome = older.outcome()

    assert outcome["builders"]["created"] == ["before-builders-0004"]
    # Its request waits no more.
    assert machines(older) == {*WERE_THERE, "builders-0004"} - {"powerful-0002"}


@pytest.mark.parametrize("version", ["013a4bd2", "20896d4c"])
def test_plan_saved_by_older_version_is_applied(older: Trial, version: str) -> None:
    wait_for(older, "1", "2", "4", "5")

    older.told("apply", f"plan-of-{version}.json")

    assert machines(older) == {*WERE_THERE, "builders-0004"} - {"powerful-0002"}


@pytest.mark.parametrize(
    ("newer", "needs"),
    [({"format": "fleet-plan-2"}, "fleet-plan-2"), ({"weather": "fine"}, "$.weather")],
)
def test_plan_of_newer_version_is_refused_with_command(
    older: Trial, newer: dict[str, str], needs: str
) -> None:
    path = older.folder / "plan-of-20896d4c.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | newer), encoding="utf-8")

    said = older.told("apply", path.name, code=1)

    assert needs in said
    assert "`fleet plan --out FILE`" in said
    assert machines(older) == WERE_THERE


def test_older_idle_machines_are_deleted_and_busy_one_is_kept(
    older: Trial, clock: time_machine.Traveller
) -> None:
    wait_for(older)
    assert older.do("ticket", "close", "1", "--user", "ada")[0] == 0

    for _ in range(6):
        clock.shift(timedelta(minutes=20))
        assert older.do("apply")[0] == 0

    assert machines(older) == {"builders-0003", "powerful-0001"}
    assert older.do("ticket", "check", "2", "--user", "bob") == (0, "before-powerful-0001\n")
