"""Machines for tickets that no stack knows: told, and gone once they were seen twice."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.model.facts import WorkerInputs
from tests.builders.sentences import tells
from tests.cli.test_ticket import open_ticket, ticket_yaml
from tests.rigs.trial import Trial

STRAY = "trial-powerful-0007"


@pytest.mark.slow
def test_unknown_machine_is_deleted_after_second_listing(project: Path) -> None:
    trial = Trial(project)
    trial.write(ticket_yaml())
    trial.init()
    number = open_ticket(trial)
    trial.apply()
    trial.do("ticket", "close", number, "--user", "ada")
    trial.apply()
    # A machine that was created near the time of the store counts as busy.
    trial.age(minutes=6)
    labels = {"fleet": "trial", "pool": "powerful", "digest": "of something else"}
    trial.cloud.create(WorkerInputs(name=STRAY, type="ccx63", image="old", labels=labels))

    assert f"drain {STRAY}" in trial.apply()
    assert tells(trial.apply(), "unchanged", "normal", "powerful")
    assert trial.machines() == [STRAY]
    assert trial.do("state", "orphans")[1].endswith(f"fleet explain worker {STRAY}\n")
    later(trial, minutes=11)

    assert f"deleted 1: {STRAY}" in trial.apply()
    assert trial.machines() == []


def later(trial: Trial, *, minutes: int) -> None:
    """Have the machine be older, and what is remembered of it."""
    trial.age(minutes=minutes + 1)
    with sqlite3.connect(trial.folder / ".fleet/store.db") as connection:
        first = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
        connection.execute("update fleet_tenancies set since = ?", (first,))
    connection.close()
