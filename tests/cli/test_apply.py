"""`fleet apply`: makes it so, says what it did, and the second time has nothing to do."""

import json
import os
import pty
import subprocess

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet, clean_environment, unwrapped
from tests.rigs.terminal import (
    answer_at_terminal,
    read_until_closed,
    run_at_terminal,
)
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml
from tests.rigs.warm import Warm

ONLY_BUILDERS = {"builders": BUILDERS}


def test_first_apply_creates_machines_for_waiting_requests(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1", big=["2"])

    applied = run_fleet("apply")

    assert (applied.returncode, applied.stderr) == (
        0,
        "big: create trial-big-0001\nbuilders: create trial-builders-0001\n",
    )
    result, *pools = applied.stdout.splitlines()[-5:]
    assert tells(result, "2 created", "0 drained", "0 deleted", "fleet trial")
    assert pools[::2] == ["  big: applied", "  builders: applied"]
    assert tells(pools[1], "    + ", "1", "trial-big-0001")
    assert tells(pools[3], "    + ", "1", "trial-builders-0001")


def test_second_apply_changes_nothing(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1", big=["2"])
    trial.apply()
    machines = trial.machines()

    applied = run_fleet("apply")

    assert (applied.returncode, applied.stderr) == (0, "")
    assert applied.stdout.splitlines()[-1] == "  unchanged: big, builders"
    assert trial.machines() == machines


def test_apply_extends_expiry_of_machines_without_input_changes(
    trial: Trial,
) -> None:
    trial.wait_for("1")
    trial.apply()
    made = trial.made()

    trial.apply()
    trial.apply()

    assert [machine.expires for machine in made] == [None]
    assert [machine.inputs for machine in trial.made()] == [machine.inputs for machine in made]
    assert trial.made()[0].expires is not None


def test_apply_with_json_prints_only_outcome(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")

    applied = run_fleet("apply", "--json")

    outcome = json.loads(applied.stdout)
    assert applied.returncode == 0
    assert [stack["created"] for stack in outcome["stacks"]] == [[], ["trial-builders-0001"]]


# a worker goes in two steps, and never while it works


def test_idle_worker_is_drained_then_deleted_by_next_apply(
    trial: Trial,
) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.wait_for()
    trial.age(hours=1)

    first = trial.outcome()["builders"]
    second = trial.outcome()["builders"]

    assert (first["drained"], first["deleted"]) == (["trial-builders-0001"], [])
    assert (second["drained"], second["deleted"]) == ([], ["trial-builders-0001"])
    assert trial.machines() == []


# edits of fleet.yaml


def test_removed_pool_is_kept_when_guard_refuses(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for(big=["1"])
    trial.apply()
    trial.age(minutes=1)
    trial.write(fleet_yaml(pools=ONLY_BUILDERS))

    refused = run_fleet("apply")

    assert refused.returncode == 4
    assert tells(unwrapped(refused.stdout), "1 of 1 machine", "pool big", "100%", "30%", "10")
    assert trial.machines() == ["trial-big-0001"]


def test_removed_pool_is_drained_and_forgotten_once_guard_permits(
    trial: Trial,
) -> None:
    trial.wait_for(big=["1"])
    trial.apply()
    trial.age(minutes=1)
    allowed = "guards: {refuse: {delete: {share: 100%, count: 10}}}\n"
    trial.write(fleet_yaml(pools=ONLY_BUILDERS, more=allowed))

    first = trial.outcome()["big"]
    second = trial.outcome()["big"]
    third = trial.outcome()

    assert first["drained"] == ["trial-big-0001"]
    assert second["deleted"] == ["trial-big-0001"]
    assert "big" not in third
    assert "trial-big" not in trial.do("state", "show")[1]


# who watches


def watched(trial: Trial, warm: Warm, **env: str) -> tuple[str, str]:
    """Apply with a terminal behind standard error; return standard output, and what that shows."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*warm.command(), "apply", "--json"],
        cwd=trial.folder,
        env=clean_environment(trial.folder, env),
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        written = process.stdout.read()
        shown = b"".join(read_until_closed(ours)).decode()
        os.close(ours)
    assert process.returncode == 0
    return written, shown


def test_terminal_shows_each_step_and_progress(trial: Trial, warm: Warm) -> None:
    trial.wait_for("1", big=["2"])

    written, shown = watched(trial, warm, NO_COLOR="1")

    assert [stack["result"] for stack in json.loads(written)["stacks"]] == ["applied", "applied"]
    *_, first, second, last = shown.split("\r\x1b[K")
    step, bar = first.split("\r\n")
    assert step == "big: create trial-big-0001"
    assert tells(bar, "[##########..........]", "1 of 2", "builders 0/1")
    step, bar = second.split("\r\n")
    assert step == "builders: create trial-builders-0001"
    assert tells(bar, "[####################]", "2 of 2")
    assert not last, "the bar stays after the end"


@pytest.mark.parametrize(
    ("answer", "words", "result"),
    [
        (b"yes\n", (), (0, 1)),
        (b"no\n", (), (1, 0)),
        (b"\n", (), (1, 0)),
        (b"", ("--yes",), (0, 1)),
        (b"", ("--json",), (0, 1)),
    ],
)
def test_apply_asks_a_user_at_a_terminal(
    trial: Trial, warm: Warm, answer: bytes, words: tuple[str, ...], result: tuple[int, int]
) -> None:
    trial.wait_for("1")

    code, shown = answer_at_terminal(trial, warm, answer, "apply", *words)

    assert (code, len(trial.machines())) == result
    assert tells(shown, "trial-builders-0001")
    assert shown.count("1 to create") == ("--json" not in words)


def test_apply_is_refused_when_plan_changes_during_the_question(trial: Trial, warm: Warm) -> None:
    trial.wait_for("1")

    with run_at_terminal(trial, warm, "apply") as (process, terminal):
        while b"Apply this plan?" not in os.read(terminal, 65536):
            pass
        trial.wait_for("1", "2")
        os.write(terminal, b"yes\n")
        b"".join(read_until_closed(terminal))

    assert (process.returncode, trial.machines()) == (4, [])


def test_apply_of_a_quiet_plan_does_not_ask(trial: Trial, warm: Warm) -> None:
    code, _ = answer_at_terminal(trial, warm, b"", "apply")

    assert (code, trial.machines()) == (0, [])


def test_apply_into_a_pipe_does_not_ask(trial: Trial, warm: Warm) -> None:
    trial.wait_for("1")

    with run_at_terminal(trial, warm, "apply", stdout=subprocess.PIPE) as (process, terminal):
        assert process.stdout is not None
        process.stdout.read()
        b"".join(read_until_closed(terminal))

    assert (process.returncode, len(trial.machines())) == (0, 1)


def test_apply_prints_each_step_as_a_line_in_ci(trial: Trial, warm: Warm) -> None:
    trial.wait_for("1")

    _, shown = watched(trial, warm, CI="true")

    assert tells(shown, "builders", "create", "trial-builders-0001")
