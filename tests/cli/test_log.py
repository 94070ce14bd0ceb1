"""`fleet log`: every run and every change of a machine, with who, when, from what and why."""

import re
from typing import Any

import pytest

from tests.rigs.trial import Trial


def entries(trial: Trial, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = trial.json("log", *args)["entries"]
    return found


def kinds(trial: Trial, *args: str) -> list[str]:
    return [each["kind"] for each in entries(trial, *args)]


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


def test_log_verify_prints_last_entry_of_valid_log(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()

    said = trial.told("log", "--verify")
    head = re.findall(r"^last: (3:[0-9a-f]{64})$", said, re.MULTILINE)

    trial.apply()
    assert trial.json("log", "--verify", head[0])["breaks"] == []
    assert trial.json("log", "--verify", head[0][:18])["whole"]


def test_log_contains_killed_run_after_next_run(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.sql("delete from fleet_log where place = 3")
    trial.sql("update fleet_runs set ended = '', plan = '', outcome = 'queue work: enrol x'")

    for _ in range(2):
        trial.apply()

    killed = [each for each in entries(trial) if each["outcome"] == "killed"]
    (first,) = killed
    assert first["details"]["steps"] == "queue work: enrol x"
    assert first["details"]["found_by"] != first["run"]
    assert kinds(trial, "--run", first["run"]) == ["begin", "create", "run"]
