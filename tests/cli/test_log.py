"""`fleet log`: every run and every change of a machine, with who, when, from what and why."""

import json
import re
from typing import Any

import pytest
import sqlalchemy as sa

from tests.cli.test_machine import ONE, WARM
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml


def entries(trial: Trial, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(trial.told("log", "--json", *args))["entries"]
    return found


def kinds(trial: Trial, *args: str) -> list[str]:
    return [each["kind"] for each in entries(trial, *args)]


def change(trial: Trial, statement: str) -> None:
    store = trial.store()
    with store.begin() as connection:
        connection.execute(sa.text(statement))


def test_log_shows_creation_with_reason_and_cost(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()

    begin, create, run = entries(trial)

    assert (begin["kind"], begin["details"]) == ("begin", {"create": ONE})
    assert (create["machine"], create["pool"], create["outcome"]) == (ONE, "builders", "done")
    assert (create["reason"], create["cost"]) == ("requests-wait", "0.0777")
    assert create["because"]
    assert (run["kind"], run["outcome"], run["details"]["created"]) == ("run", "done", "1")
    assert run["plan"] == begin["plan"] != ""
    assert begin["run"] == create["run"] == run["run"]
    assert run["details"]["bound"]


def test_log_prints_only_selected_entries(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.apply()

    run = entries(trial)[0]["run"]
    assert kinds(trial, "--machine", ONE) == ["create"]
    assert kinds(trial, "--pool", "builders") == ["create"]
    assert kinds(trial, "--pool", "big") == []
    assert kinds(trial, "--kind", "run") == ["run", "run"]
    assert kinds(trial, "--run", run) == ["begin", "create", "run"]
    assert kinds(trial, "--last", "1") == ["run"]
    assert kinds(trial, "--by", "nobody") == []
    assert kinds(trial, "--since", "2199-01-01") == []
    assert kinds(trial, "--until", "2000-01-01") == []
    assert len(kinds(trial, "--since", "1h")) == 4
    assert "3 earlier entries" in trial.told("log", "--last", "1")


def test_log_shows_user_and_commit_with_escapes_removed(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {
        "GITLAB_USER_LOGIN": "ann\x1b[31m",
        "CI_COMMIT_SHA": "8a4a1c9e3c1d5f7b9a2e4d6c8b0f1a3e5d7c9b1f",
        "CI_PIPELINE_URL": "https://git.example/p/1",
    }
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    trial.do("apply")

    (run,) = entries(trial)
    assert run["origin"] == {
        "by": "ann\x1b[31m",
        "host": "",
        "commit": job["CI_COMMIT_SHA"],
        "pipeline": job["CI_PIPELINE_URL"],
        "job": "",
    }
    assert "\x1b" not in trial.told("log")


def test_log_contains_failed_run(trial: Trial) -> None:
    trial.do("apply", "--pool", "nowhere")

    (run,) = entries(trial)
    assert (run["kind"], run["outcome"]) == ("run", "failed")
    assert "nowhere" in run["because"]


def test_log_contains_manual_deletion(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": WARM}, desk="boot: 1h"))
    trial.wait_for("1")
    trial.apply()
    trial.wait_for()
    trial.do("machine", "delete", ONE, "--apply")

    told = entries(trial, "--machine", ONE)

    assert [each["kind"] for each in told] == ["create", "delete"]
    assert told[1]["reason"] == "requested"
    assert told[1]["cost"] == "-0.0777"
    assert told[1]["details"]["command"] == "machine"


def test_log_contains_renamed_pool_once(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()
    heavy = BUILDERS.replace("workers:", "previously: builders, workers:")
    trial.write(fleet_yaml(pools={"heavy": heavy}))
    for _ in range(2):
        trial.apply()

    (renamed,) = entries(trial, "--kind", "rename")
    assert (renamed["pool"], renamed["details"]) == ("heavy", {"was": "builders"})


def test_log_verify_prints_last_entry_of_valid_log(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()

    said = trial.told("log", "--verify")
    head = re.findall(r"^last: (3:[0-9a-f]{64})$", said, re.MULTILINE)

    trial.apply()
    assert json.loads(trial.told("log", "--verify", head[0], "--json"))["breaks"] == []
    assert json.loads(trial.told("log", "--verify", head[0][:18], "--json"))["whole"]


@pytest.mark.parametrize(
    "statement",
    [
        "delete from fleet_log where place = 2",
        "delete from fleet_log where place = 3",
        "update fleet_log set entry = replace(entry, 'done', 'failed') where place = 2",
    ],
)
def test_log_verify_finds_deleted_or_changed_entries(trial: Trial, statement: str) -> None:
    trial.wait_for("1")
    trial.apply()
    change(trial, statement)

    assert json.loads(trial.told("log", "--verify", "--json", code=1))["breaks"]


def test_log_verify_finds_rewritten_log_by_noted_head(trial: Trial) -> None:
    trial.apply()
    head = json.loads(trial.told("log", "--verify", "--json"))["head"]
    change(trial, "delete from fleet_log")
    change(trial, "delete from fleet_about where key = 'log'")
    trial.apply()

    assert json.loads(trial.told("log", "--verify", "--json"))["whole"]
    assert not json.loads(trial.told("log", "--verify", head, "--json", code=1))["whole"]


def test_log_refuses_invalid_place_or_time(trial: Trial) -> None:
    trial.told("log", "--verify", "12", code=2)
    with pytest.raises(SystemExit):
        trial.do("log", "--since", "yesterday")


def test_log_contains_killed_run_after_next_run(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()
    change(trial, "delete from fleet_log where place = 3")
    change(
        trial,
        "update fleet_runs set ended = '', plan = '', outcome = 'queue work: enrol x'",
    )

    for _ in range(2):
        trial.apply()

    killed = [each for each in entries(trial) if each["outcome"] == "killed"]
    (first,) = killed
    assert first["details"]["steps"] == "queue work: enrol x"
    assert first["details"]["found_by"] != first["run"]
    assert kinds(trial, "--run", first["run"]) == ["begin", "create", "run"]
