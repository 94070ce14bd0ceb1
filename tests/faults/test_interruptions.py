"""An apply that is killed or interrupted anywhere: the next one finishes, nothing is doubled."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.loopback import Loopback, html
from tests.rigs.process import RunFleet, clean_environment
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml
from tests.rigs.warm import Started, Warm

TWO = ["trial-builders-0001", "trial-builders-0002"]


@pytest.fixture
def trial(project: Path) -> Trial:
    """Return a trial fleet for which two requests wait."""
    trial = Trial(project)
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, desk="boot: 5m"))
    trial.init()
    trial.wait_for("1", "2")
    return trial


Struck = Callable[[str], list[dict[str, object]]]


@pytest.fixture
def struck(trial: Trial, warm: Warm) -> Struck:
    """Return what becomes of an apply that is struck by a signal, one for each of its steps."""

    def strike_each_step(strike: str) -> list[dict[str, object]]:
        done = warm.run(
            *(trial.folder, strike),
            cwd=trial.folder,
            env=clean_environment(trial.folder),
            program="tests.faults.strikes",
        )
        assert done.returncode == 0, done.stderr
        runs: list[dict[str, object]] = json.loads(done.stdout)
        assert len(runs) >= 15, "the steps are not seen any more"
        return runs

    return strike_each_step


def test_next_apply_finishes_creation_killed_at_any_step(
    struck: Struck,
) -> None:
    runs = struck("SIGKILL")

    finished = {
        "next apply": "fine",
        "machines": TWO,
        "states": ["starting", "starting"],
        "left to do": [],
    }
    assert runs == [finished] * len(runs)


@pytest.mark.slow
def test_next_apply_finishes_deletion_killed_at_any_step(trial: Trial, struck: Struck) -> None:
    trial.apply()
    trial.wait_for()
    trial.age(hours=1)
    trial.apply()

    runs = struck("SIGKILL")

    finished = {
        "next apply": "fine",
        "machines": [],
        "states": [],
        "left to do": [],
    }
    assert runs == [finished] * len(runs)


@pytest.mark.slow
def test_interrupted_apply_reports_it_and_next_one_finishes(trial: Trial, struck: Struck) -> None:
    trial.wait_for("1")

    runs = struck("SIGINT")

    finished = {
        "code": 130,
        "last words": ["fleet: interrupted; the next apply finishes what was started"],
        "next apply": "fine",
        "machines": ["trial-builders-0001"],
        "states": ["starting"],
        "left to do": [],
    }
    assert runs == [finished] * len(runs)


@pytest.mark.slow
def test_approval_is_used_once_per_machine_when_apply_is_killed(
    trial: Trial, struck: Struck
) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.age(hours=1)
    trial.wait_for()
    day = (datetime.now(UTC) + timedelta(days=1)).date()
    approval = f"{{guard: delete, pool: builders, count: 1, reason: moved, expires: {day}}}"
    trial.write(fleet_yaml(pools={}, desk="boot: 5m", more=f"approvals: [{approval}]\n"))

    runs = struck("SIGKILL")

    # The count is just enough: what was spent twice would be refused now.
    assert {run["next apply"] for run in runs} == {"fine"}


# the lock


def waiting_apply(trial: Trial, warm: Warm) -> AbstractContextManager[Started]:
    """Start an apply that holds the lock and waits for a server that never answers."""
    return waiting(trial, warm, "apply")


@contextmanager
def waiting(trial: Trial, warm: Warm, verb: str) -> Iterator[Started]:
    """Start a command that waits for a server that never answers."""
    with Loopback(lambda _: html()) as server:
        server.faults.hold = True
        queue = f"{{kind: debusine, url: '{server.url}', scopes: [debian]}}"
        trial.write(fleet_yaml(pools={"builders": BUILDERS}, queue=queue))
        env = clean_environment(trial.folder)
        with warm.started(verb, cwd=trial.folder, env=env) as process:
            assert server.asked.wait(timeout=60), f"{verb} never asked the server"
            yield process


def test_second_apply_names_owner_of_the_lock(
    trial: Trial, run_fleet: RunFleet, warm: Warm
) -> None:
    with waiting_apply(trial, warm) as first:
        second = run_fleet("apply")
        unlocked = run_fleet("state", "unlock")

    assert (second.returncode, second.stdout) == (1, "")
    assert tells(second.stderr, "another apply", "lock", "fleet trial")
    assert f":{first.pid}, since " in second.stderr
    assert (unlocked.returncode, unlocked.stdout) == (4, "")
    assert f":{first.pid} since " in unlocked.stderr


def test_read_only_commands_need_no_lock(trial: Trial, run_fleet: RunFleet, warm: Warm) -> None:
    with waiting_apply(trial, warm):
        shown = run_fleet("state", "show")

    assert shown.returncode == 0
    assert "\nlock     " in shown.stdout


def test_interrupted_plan_prints_no_hint_to_continue(trial: Trial, warm: Warm) -> None:
    with waiting(trial, warm, "plan") as reading:
        reading.send_signal(signal.SIGINT)
        said = reading.stderr.read()

    assert (reading.wait(), said) == (130, "fleet: interrupted\n")


@pytest.mark.parametrize("strike", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_apply_releases_the_lock(
    trial: Trial, strike: signal.Signals, warm: Warm
) -> None:
    with waiting_apply(trial, warm) as first:
        first.send_signal(strike)
        said = first.stderr.read()

    assert first.wait() == 130
    assert tells(said, "interrupted", "apply")
    assert "lock     free" in trial.do("state", "show")[1]


def test_lock_of_killed_apply_is_taken_over_with_notice(
    trial: Trial, run_fleet: RunFleet, warm: Warm
) -> None:
    with waiting_apply(trial, warm) as first:
        first.kill()
        first.wait()
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))

    applied = run_fleet("apply")

    assert applied.returncode == 0
    assert tells(applied.stderr, first.pid)
    assert trial.machines() == TWO


def test_lock_of_killed_apply_can_be_removed_manually(
    trial: Trial, run_fleet: RunFleet, warm: Warm
) -> None:
    with waiting_apply(trial, warm) as first:
        first.kill()
        first.wait()

    unlocked = run_fleet("state", "unlock")
    again = run_fleet("state", "unlock")

    assert unlocked.returncode == 0
    assert f":{first.pid} since " in unlocked.stdout
    assert again.returncode == 0
    assert not tells(again.stdout, first.pid)


# streams


@pytest.mark.slow
def test_apply_continues_when_output_pipe_closes(trial: Trial, warm: Warm) -> None:
    read, write = os.pipe()
    os.close(read)

    with subprocess.Popen(
        [*warm.command(), "apply"],
        cwd=trial.folder,
        env=clean_environment(trial.folder),
        stdout=subprocess.PIPE,
        stderr=write,
        text=True,
    ) as process:
        os.close(write)
        said, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert "Applied: 2 created" in said


def test_apply_changes_nothing_when_it_cannot_print_its_plan(trial: Trial, warm: Warm) -> None:
    with Path("/dev/full").open("w") as full:
        failed = subprocess.run(
            [*warm.command(), "apply"],
            cwd=trial.folder,
            env=clean_environment(trial.folder),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert failed.returncode == 1
    assert tells(failed.stderr, "error", "standard output")
    assert trial.machines() == []
