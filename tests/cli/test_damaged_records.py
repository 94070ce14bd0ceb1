"""One unreadable record of the store stops what it might forbid; it never counts as none."""

import re
import sqlite3
from contextlib import closing

import pytest

from fleet.model.facts import Attempt
from tests.cli.test_machine import ONE
from tests.rigs.trial import Trial, fleet_yaml

POOL = {"builders": "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}"}


@pytest.fixture
def waiting(trial: Trial) -> Trial:
    """Return a fleet with a store, for which one request waits."""
    trial.write(fleet_yaml(pools=POOL))
    trial.wait_for("1")
    trial.init()
    return trial


def damage(trial: Trial, statement: str) -> None:
    """Change rows of the store, as a damaged disk might."""
    with closing(sqlite3.connect(trial.folder / ".fleet/store.db")) as connection:
        assert connection.execute(statement).rowcount == 1
        connection.commit()


def actions(trial: Trial) -> set[str]:
    return {each["action"] for each in trial.plan()["actions"]}


ORDER_DAMAGES = {
    "year": "update fleet_orders set until = '2006' || substr(until, 5)",
    "text": "update fleet_orders set until = 'x'",
    "future": "update fleet_orders set until = '2100-01-01T00:00:00+00:00'",
    "order": """update fleet_orders set "order" = 'x'""",
    "order's year": """update fleet_orders set
        "order" = replace("order", '"until":"2', '"until":"1')""",
}


@pytest.mark.parametrize("how", ORDER_DAMAGES)
def test_freeze_stays_active_when_its_row_is_damaged(waiting: Trial, how: str) -> None:
    assert actions(waiting) == {"create"}
    waiting.told("freeze", "--for", "1h", "--reason", "x")
    damage(waiting, ORDER_DAMAGES[how])

    assert actions(waiting) == set()
    waiting.do("apply")
    assert waiting.machines() == []


def test_damaged_freeze_stays_active_when_another_order_is_stored(waiting: Trial) -> None:
    waiting.told("freeze", "--for", "1h", "--reason", "x")
    damage(waiting, ORDER_DAMAGES["year"])

    waiting.do("hold", ONE, "--for", "1h", "--reason", "y")

    assert actions(waiting) == set()


def test_expired_unreadable_order_stops_no_action(waiting: Trial) -> None:
    waiting.told("freeze", "--for", "1h", "--reason", "x")
    waiting.end_orders()
    damage(waiting, ORDER_DAMAGES["order"])

    assert actions(waiting) == {"create"}


@pytest.mark.parametrize("column", ["at", "result", "market"])
def test_no_machine_is_created_when_an_attempt_is_unreadable(waiting: Trial, column: str) -> None:
    at = waiting.store().last_runs(1)
    assert not at
    now = waiting.world()["time"]
    tried = {"at": now, "pool": "builders", "worker": ONE, "type": "ccx33", "result": "gone"}
    tried["image"] = "trixie"
    waiting.store().record_attempts([Attempt.model_validate(tried)])
    assert actions(waiting) == {"create"}
    damage(waiting, f"update fleet_attempts set {column} = 'x'")  # noqa: S608 - a name above

    told = waiting.do("plan")[1]

    assert actions(waiting) == set()
    assert "fleet_attempts" in told


def test_no_machine_is_deleted_when_drain_record_is_unreadable(idle: Trial) -> None:
    idle.age(minutes=30)
    idle.apply()
    assert actions(idle) == {"delete"}
    with closing(sqlite3.connect(idle.folder / ".fleet/store.db")) as connection:
        connection.execute("update fleet_about set value = 'x' where key like 'departure %'")
        connection.commit()

    told = idle.do("plan")[1]

    assert actions(idle) == set()
    assert re.search("fleet_about .* Departure", " ".join(told.split()))


def test_released_machine_is_kept_when_drain_record_is_unreadable(idle: Trial) -> None:
    idle.told("hold", ONE, "--for", "1h", "--reason", "x")
    idle.apply()
    idle.age(minutes=30)
    idle.told("hold", ONE, "--end")
    with closing(sqlite3.connect(idle.folder / ".fleet/store.db")) as connection:
        connection.execute("update fleet_about set value = 'x' where key like 'departure %'")
        connection.commit()

    idle.do("apply")

    assert ONE in idle.machines()
