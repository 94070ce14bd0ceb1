"""Killed at any moment whatever, an apply costs nothing but another apply.

The moments are those of an apply that nobody kills: each request to its cloud, before and after it
is done, and each commit of fleet's own, before and after. Many minutes: `nox -s kills`.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cloud_trial import Beginning, C, CloudTrial
from tests.faults.seen import (
    Kill,
    check_healed,
    check_row,
    kill_at,
    kill_each,
)

pytestmark = [pytest.mark.kills, pytest.mark.parametrize("at", ["at_aws", "at_hetzner"])]


def _at_commit(number: int, name: str) -> Kill:
    def kill(trial: CloudTrial[Any]) -> None:
        # What a commit writes beside its first deed hangs on the time: a ledger has its hours.
        assert trial.commits(number)[-1].partition(",")[0] == name.partition(",")[0]

    return kill


def _find_moments(start: Beginning[C], folder: Path) -> dict[str, Kill]:
    """Return the moments of an apply that nobody kills, and what kills at each of them."""
    with start.trial(folder) as trial:
        asked: list[str] = []
        trial.cloud.watch = asked.append
        commits = trial.commits()
    assert any(moment.startswith("done") for moment in asked)
    assert "after update fleet_runs" in commits  # a step of the journal
    requests = ((name, n) for name, times in Counter(asked).items() for n in range(1, times + 1))
    moments = kill_at(requests) | {
        f"commit {number}, {name}": _at_commit(number, name)
        for number, name in enumerate(commits, 1)
    }
    assert len(moments) == len(asked) + len(commits)
    return moments


def test_next_apply_finishes_a_creation_killed_at_any_moment(
    at: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    start: Beginning[Any] = request.getfixturevalue(at)

    runs = kill_each(start, tmp_path, _find_moments(start, tmp_path / "unkilled"))

    check_healed(runs, machines=3)
    assert {seen.made for seen in runs} == {0, 1, 2}
    fault = "SIGKILL at each request and commit, 2 are created"
    row = (fault, len(runs), "killed, up to 2 of 2 created")
    check_row(start.kind.__name__, row, request.config)


def test_next_apply_finishes_a_deletion_killed_at_any_moment(
    at: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    start: Beginning[Any] = request.getfixturevalue(at).with_two_to_go(tmp_path / "full")

    runs = kill_each(start, tmp_path, _find_moments(start, tmp_path / "unkilled"))

    check_healed(runs, machines=1)
    assert {0, 2} <= {-seen.made for seen in runs}
    fault = "SIGKILL at each request and commit, 2 are deleted"
    row = (fault, len(runs), "killed, up to 2 of 2 deleted")
    check_row(start.kind.__name__, row, request.config)
