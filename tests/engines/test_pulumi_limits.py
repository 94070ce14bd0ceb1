"""A CLI that hangs is interrupted, and then killed with all that it started."""

from pathlib import Path

import pytest

from fleet.engines.pulumi_cli import Command, Overdue
from fleet.errors import EngineAbsent
from fleet.state.processes import marked

LOOP = "trap 'echo cancelled > ended; exit {}' INT; while :; do sleep 0.01; done"


def a_cli(folder: Path, script: str) -> Path:
    path = folder / "pulumi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


@pytest.mark.parametrize(
    ("script", "grace", "says"),
    [
        (
            LOOP.format(1),
            60,
            "cancelled\n",
        ),
        (
            LOOP.format(0),
            60,
            "cancelled\n",
        ),
        ("trap '' INT; sleep 600 & sleep 600", 0.1, ""),
    ],
    ids=["ends", "ends with success", "hangs"],
)
def test_slow_cli_is_killed_with_its_children(
    tmp_path: Path, script: str, grace: float, says: str
) -> None:
    environment = {"STACK": f"of {tmp_path}"}
    command = Command(a_cli(tmp_path, script), tmp_path, environment, limit=0.2, grace=grace)

    with pytest.raises(Overdue):
        command.run("up")

    ended = tmp_path / "ended"
    assert (ended.read_text() if ended.exists() else "") == says
    assert marked(f"of {tmp_path}") == []


def test_output_of_cli_is_returned_when_it_ends_in_time(tmp_path: Path) -> None:
    cli = a_cli(tmp_path, 'echo "$FLAG"; echo "$@" >&2; exit 3')

    answer = Command(cli, tmp_path, {"FLAG": "made"}).run("up")

    told = (answer.returncode, answer.stdout, answer.stderr)
    assert told == (3, "made\n", "--non-interactive up\n")


def test_plugins_of_a_killed_cli_are_killed(tmp_path: Path) -> None:
    command = Command(a_cli(tmp_path, "sleep 600 & kill -9 $$"), tmp_path, {"OF": f"{tmp_path}"})

    assert command.run("up").returncode < 0
    assert marked(f"OF={tmp_path}") == []


def test_cli_that_cannot_start_is_absent(tmp_path: Path) -> None:
    with pytest.raises(EngineAbsent, match="nowhere"):
        Command(tmp_path / "nowhere", tmp_path, {}).run("up")
