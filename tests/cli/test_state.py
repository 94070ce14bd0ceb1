"""`fleet state`: what must outlive a run is made once, shown, and given up by name."""

import json
import sqlite3
import subprocess
from contextlib import closing

import pytest

from fleet.model.facts import Listing
from fleet.state.database import name_process
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml


@pytest.mark.usefixtures("project_trial")
def test_state_init_creates_store_once(run_fleet: RunFleet) -> None:
    first = run_fleet("state", "init")
    second = run_fleet("state", "init")

    assert (first.returncode, second.returncode) == (0, 0)
    assert tells(first.stdout, ".fleet/store.db", "created")
    assert tells(second.stdout, ".fleet/store.db", "already")


def test_state_show_lists_location_stacks_and_last_run(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    shown = run_fleet("state", "show")

    lines = shown.stdout.splitlines()
    assert shown.returncode == 0
    assert lines[:3] == [
        "store    .fleet/store.db",
        f"backend  {(trial.folder / '.fleet').as_uri()}",
        "lock     free",
    ]
    assert tells(lines[3], "stack", "trial-builders (embedded", "serial")
    assert lines[4].startswith("run      2")
    assert lines[4].endswith(": 1 applied, 1 unchanged")


def test_state_show_has_same_content_as_json(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    shown = json.loads(run_fleet("state", "show", "--json").stdout)

    assert shown["lock"] is None
    assert [stack["name"] for stack in shown["stacks"]] == ["trial-builders"]
    (run,) = shown["runs"]
    assert [stack["result"] for stack in run["outcome"]["stacks"]] == ["unchanged", "applied"]
    assert run["results"] == {"applied": 1, "unchanged": 1}


def test_state_show_counts_failed_stacks(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.age(minutes=1)
    stock = "types: {ccx63: {cores: 48, memory: 192GiB, disk: 960GiB, price: 0.5 EUR/h, stock: 0}}"
    trial.write(fleet_yaml(desk=f"boot: 1s, {stock}"))
    trial.wait_for("1", big=["2"])
    trial.do("apply")

    shown = run_fleet("state", "show")

    assert shown.stdout.splitlines()[-2].endswith(": 1 failed, 1 unchanged")


def test_state_show_lists_unfinished_run(trial: Trial, run_fleet: RunFleet) -> None:
    store = trial.store()
    store.begin_run(started=NOW)

    shown = run_fleet("state", "show")
    as_json = json.loads(run_fleet("state", "show", "--json").stdout)

    assert tells(shown.stdout.splitlines()[-1], "run", NOW.isoformat())
    run = {"started": NOW.isoformat(), "ended": None, "plan": None, "outcome": None}
    assert as_json["runs"] == [run | {"results": None, "begun": []}]


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


def test_stack_unknown_to_store_cannot_be_forgotten(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    failed = run_fleet("state", "init", "--forget-stack", "trial-nope")

    assert failed.returncode == 1
    assert tells(failed.stderr, "store", "stack", "trial-nope", "trial-builders")


def test_stack_with_machines_cannot_be_forgotten(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    refused = run_fleet("state", "init", "--forget-stack", "trial-builders")

    assert refused.returncode == 4
    assert tells(refused.stderr, "trial-builders", "1 machine")
    assert "trial-builders (embedded" in trial.do("state", "show")[1]


def test_state_unlock_succeeds_when_lock_is_free(trial: Trial, run_fleet: RunFleet) -> None:
    unlocked = run_fleet("state", "unlock")

    assert unlocked.returncode == 0
    assert trial.machines() == []


def lose(trial: Trial, name: str) -> None:
    """Delete a machine at its provider, behind fleet's back."""
    listing = trial.cloud.list("trial")
    assert isinstance(listing, Listing)
    trial.cloud.delete(next(each.id for each in listing.machines if each.name == name))


def test_forgotten_machine_is_replaced_by_next_apply(trial: Trial, run_fleet: RunFleet) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    trial.wait_for("1", "2", "3", "4")
    trial.apply()
    lose(trial, "trial-builders-0002")
    stuck = trial.plan()["actions"]

    forgotten = run_fleet("state", "forget-machine", "trial-builders-0002")

    assert stuck == []
    assert (forgotten.returncode, forgotten.stderr) == (0, "")
    assert tells(forgotten.stdout, "trial-builders-0002", "stack", "pool builders")
    assert "1 created" in trial.apply()
    assert len(trial.machines()) == len(trial.recorded()) == 4
    assert ": forgot trial-builders-0002" in trial.do("state", "show")[1]
    assert "lock     free" in trial.do("state", "show")[1]


def test_explain_names_forget_command_for_missing_machine(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1")
    trial.apply()
    lose(trial, "trial-builders-0001")

    explained = run_fleet("explain", "worker", "trial-builders-0001")

    assert "fleet machine forget trial-builders-0001" in explained.stdout


@pytest.mark.slow
def test_removed_pool_is_forgotten_with_its_last_machine(trial: Trial) -> None:
    trial.wait_for(big=["1"])
    trial.apply()
    lose(trial, "trial-big-0001")
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    trial.wait_for()

    trial.do("state", "forget-machine", "trial-big-0001")

    assert trial.settles()
    assert trial.do("state", "show")[1].count("stack    ") == 0


def test_listed_machine_cannot_be_forgotten(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    refused = run_fleet("state", "forget-machine", "trial-builders-0001")

    assert (refused.returncode, refused.stdout) == (4, "")
    assert tells(refused.stderr, "desk", "trial-builders-0001", "sim-1")
    assert trial.recorded() == ["trial-builders-0001"]
    assert "forgot" not in trial.do("state", "show")[1]


def test_machine_cannot_be_forgotten_when_provider_is_unreadable(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.cloud.path.write_text("{}")

    refused = run_fleet("state", "forget-machine", "trial-builders-0001")

    assert refused.returncode == 4
    assert tells(refused.stderr, "trial-builders-0001", "provider desk")
    assert trial.recorded() == ["trial-builders-0001"]


def test_machine_without_stack_cannot_be_forgotten(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    refused = run_fleet("state", "forget-machine", "trial-nope")

    assert refused.returncode == 4
    assert tells(refused.stderr, "stack", "trial-nope")


# another version's store


def about(trial: Trial) -> dict[str, str]:
    """Return what a store says of itself."""
    with closing(sqlite3.connect(trial.folder / ".fleet/store.db")) as connection:
        return dict(connection.execute("select key, value from fleet_about"))


def make_older(trial: Trial) -> None:
    """Have the store be one of a fleet that had no orders and no log."""
    with closing(sqlite3.connect(trial.folder / ".fleet/store.db")) as connection:
        connection.execute("drop table fleet_orders")
        connection.execute("delete from fleet_about where key='columns'")
        connection.execute("update fleet_about set value='fleet-store-1' where key='format'")
        connection.execute("delete from fleet_about where key='needs'")
        connection.commit()


def test_older_store_is_read_and_migrate_lists_its_changes(trial: Trial) -> None:
    make_older(trial)

    trial.wait_for("1")
    trial.apply()
    shown = trial.told("state", "migrate")
    assert tells(shown, "fleet-store-1", "fleet-store-2")
    assert about(trial)["format"] == "fleet-store-1"

    trial.told("state", "migrate", "--apply")

    assert about(trial)["format"] == "fleet-store-2"
    assert "--apply" not in trial.told("state", "migrate")
    trial.apply()


def test_first_freeze_excludes_older_versions_of_fleet(trial: Trial) -> None:
    make_older(trial)

    trial.told("freeze", "--for", "1h", "--reason", "why")

    assert about(trial)["format"] == "fleet-store-2"


@pytest.mark.parametrize(
    "command", ["plan", "apply", "state show", "freeze --for 1h --reason why"]
)
def test_newer_store_is_refused_with_required_version(trial: Trial, command: str) -> None:
    with closing(sqlite3.connect(trial.folder / ".fleet/store.db")) as connection:
        connection.execute("update fleet_about set value='fleet-store-9' where key='format'")
        connection.execute("update fleet_about set value='7.1.0' where key='needs'")
        connection.commit()

    code, said = trial.do(*command.split())

    assert code != 0
    told = "".join(said.split())
    assert ("fleet-store-9" in told, "7.1.0" in told) == (True, True)


@pytest.mark.parametrize(
    ("command", "stream"),
    [(("doctor",), "stdout"), (("state", "init"), "stderr")],
)
def test_lost_store_is_to_be_restored_when_machines_exist(
    trial: Trial, run_fleet: RunFleet, command: tuple[str, ...], stream: str
) -> None:
    trial.wait_for("1")
    trial.apply()
    (trial.folder / ".fleet/store.db").unlink()

    said = run_fleet(*command)

    text = " ".join(getattr(said, stream).split())
    assert tells(text, "docs/how-to/restore-lost-state.md", *trial.machines(), "freezes")
    assert "fix: fleet state init" not in text


def test_rebuild_creates_lost_store_without_its_backup(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()
    (trial.folder / ".fleet/store.db").unlink()

    rebuilt = run_fleet("state", "rebuild", "--apply")

    assert rebuilt.returncode == 0
    assert tells(rebuilt.stderr, "freezes")
    assert trial.settles()


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
    with closing(sqlite3.connect(trial.folder / ".fleet/store.db")) as connection, connection:
        row = (1, owner, NOW.isoformat())
        connection.execute("insert into fleet_lock (one, owner, since) values (?, ?, ?)", row)

    said = " ".join(trial.told(*command.split()).split())

    assert tells(said, owner, NOW.isoformat(), "killed", "`fleet apply`")
    assert not tells(said, "still running")
    assert not tells(said, "fleet state unlock")
