"""A CLI that hangs is interrupted, and then killed with all that it started."""

from pathlib import Path

import pytest

from fleet.engines.pulumi_sdk import Command, Overdue
from fleet.state.processes import marked

LOOP = "trap 'echo cancelled > ended; exit {}' INT; while :; do sleep 0.01; done"


def a_cli(folder: Path, script: str) -> Path:
    path = folder / "bin" / "pulumi"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return folder


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
    command = Command(str(a_cli(tmp_path, script)), limit=0.2, grace=grace)

    with pytest.raises(Overdue):
        command.run(["up"], str(tmp_path), {"STACK": f"of {tmp_path}"})

    ended = tmp_path / "ended"
    assert (ended.read_text() if ended.exists() else "") == says
    assert marked(f"of {tmp_path}") == []


def test_output_of_cli_is_returned_when_it_ends_in_time(tmp_path: Path) -> None:
    heard: list[str] = []
    command = Command(str(a_cli(tmp_path, 'echo "$FLAG"; echo "$@" >&2')))

    answer = command.run(["up"], str(tmp_path), {"FLAG": "made"}, heard.append)

    assert (answer.stdout, answer.stderr) == ("made", "--non-interactive up")
    assert heard == ["made"]
