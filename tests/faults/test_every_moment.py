"""Killed at any moment whatever, an apply costs nothing but another apply.

The moments are those of an apply that nobody kills: each request at Hetzner, before and after it
is done, and each commit of fleet's own, before and after. Many minutes: `nox -s kills`.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.hetzner_trial import BUSY, THREE, TWO, Beginning, HetznerTrial, moment_of
from tests.faults.test_hetzner import (
    Seen,
    beginning,
    check_row,
    follow,
    is_healed,
    postgres_url,
    row_of,
)

__all__ = ["beginning", "postgres_url"]

pytestmark = pytest.mark.kills
AT_ONCE = 4
Kill = Callable[[HetznerTrial], None]


def _at_request(moment: str, ordinal: int) -> Kill:
    def kill(trial: HetznerTrial) -> None:
        assert trial.killed_at(moment, ordinal), f"{moment} never came {ordinal} times"

    return kill


def _at_commit(number: int, name: str) -> Kill:
    def kill(trial: HetznerTrial) -> None:
        # What a commit writes beside its first deed hangs on the time: a ledger has its hours.
        assert trial.commits(number)[-1].partition(",")[0] == name.partition(",")[0]

    return kill


def _find_moments(start: Beginning, folder: Path) -> list[Kill]:
    """Return what kills at each moment of an apply, as one that nobody kills has shown them."""
    with start.trial(folder) as trial:
        asked: list[str] = []
        trial.api.watch = lambda when, request: asked.append(moment_of(when, request))
        commits = trial.commits()
    requests = [
        (moment, ordinal) for moment, n in Counter(asked).items() for ordinal in range(1, n + 1)
    ]
    assert len(requests) == len(asked)
    assert any(moment.startswith("done") for moment, _ in requests)
    assert "after update fleet_runs" in commits  # a step of the journal
    return [_at_request(*each) for each in requests] + [
        _at_commit(number, name) for number, name in enumerate(commits, 1)
    ]


def _kill_at_each(start: Beginning, folder: Path) -> list[Seen]:
    def try_one(numbered: tuple[int, Kill]) -> Seen:
        number, kill = numbered
        with start.trial(folder / str(number)) as trial:
            busy, there = trial.id_of(BUSY), len(trial.servers())
            kill(trial)
            return follow(trial, -9, len(trial.servers()) - there, busy)

    moments = _find_moments(start, folder / "unkilled")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(try_one, enumerate(moments)))


def test_killed_at_every_moment_of_making_the_next_apply_leaves_no_orphan_and_no_double(
    beginning: Beginning,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    runs = _kill_at_each(beginning, tmp_path)

    assert [seen for seen in runs if not is_healed(seen, servers=3)] == []
    assert {seen.made for seen in runs} == {0, 1, 2}
    fault = "SIGKILL at every request and every commit while 2 are made"
    row = row_of(fault, len(runs), "killed, 0 to 2 of 2 made", "exit code 0, all 3 are there")
    check_row(row, request.config)


def test_killed_at_every_moment_of_deleting_the_next_apply_finishes_and_keeps_who_is_busy(
    beginning: Beginning,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    with beginning.trial(tmp_path / "full") as trial:
        assert trial.fleet("apply").returncode == 0
        trial.place.ask("DELETE FROM db_workrequest WHERE id > 1")
        trial.be_late(TWO, THREE)
        full = trial.as_beginning()

    runs = _kill_at_each(full, tmp_path)

    assert [seen for seen in runs if not is_healed(seen, servers=1)] == []
    assert {0, 2} <= {-seen.made for seen in runs}
    fault = "SIGKILL at every request and every commit while 2 are deleted"
    struck = "killed, 0 to 2 of 2 deleted"
    check_row(
        row_of(fault, len(runs), struck, "exit code 0, only the busy one is there"), request.config
    )
