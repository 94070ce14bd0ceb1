"""A store that lost a column is damaged for each command, also for one that only adds rows."""

import sqlite3
from contextlib import closing

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml


def test_new_ticket_is_refused_when_the_store_lost_a_column(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.write(fleet_yaml(queue="{kind: tickets}"))
    trial.init()
    with closing(sqlite3.connect(trial.folder / ".fleet/store.db")) as connection:
        connection.execute("alter table fleet_tickets drop column sandbox")

    refused = run_fleet("ticket", "open", "--tag", "worker:class:big")

    assert refused.returncode == 1
    assert tells(refused.stderr, " is damaged: ", "fleet_tickets", "sandbox", "restore a backup")
