"""`fleet state`: what must outlive a run is made once, shown, and given up by name."""

import json
import subprocess

import pytest

from fleet.state.database import name_process
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.rigs.trial import Trial


def test_state_show_lists_steps_of_an_interrupted_run(trial: Trial) -> None:
    store = trial.store()
    store.begin_run(started=NOW)
    begun = [f"queue work: drain trial-big-{number:04}" for number in range(7)]
    for step in begun:
        store.record_step(started=NOW, step=step)

    _, shown = trial.do("state", "show")
    _, as_json = trial.do("state", "show", "--json")

    left_out, *steps = (line.strip() for line in shown.splitlines()[-6:])
    assert tells(left_out, "…", "2 steps")
    assert steps == begun[2:]
    assert len(json.loads(as_json)["runs"][0]["begun"]) == 7


@pytest.mark.parametrize("command", ["status", "doctor", "state show"])
def test_killed_apply_of_this_computer_is_named_with_its_remedy(
    trial: Trial, command: str
) -> None:
    trial.wait_for("1")
    trial.apply()
    with subprocess.Popen(["true"]) as dead:
        pass
    owner = f"{name_process().rpartition(':')[0]}:{dead.pid}"
    trial.store().begin_run(started=NOW)
    trial.sql("insert into fleet_lock (one, owner, since) values (1, ?, ?)", owner, str(NOW))

    said = " ".join(trial.told(*command.split()).split())

    assert tells(said, owner, str(NOW), "killed", "`fleet apply`")
    assert not tells(said, "still running")
    assert not tells(said, "fleet state unlock")
