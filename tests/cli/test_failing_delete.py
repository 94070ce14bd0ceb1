"""A `delete` that fails again and again is tried ever later, and a person is told of it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from tests.builders.sentences import tells
from tests.rigs.trial import Trial

YAML = """\
fleet: trial
queues:
  work: {kind: tickets}
pools:
  one:
    provider: hooks
    hooks:
      interface: resalloc
      new: [sh, -c, 'mkdir -p up; touch "up/$RESALLOC_NAME"; echo host']
      delete: [sh, delete.sh]
      list: [sh, -c, 'mkdir -p up; ls up']
    machine: {cores: 4, memory: 8GiB, price: 1 EUR/h}
    provides: [one]
    workers: {max: 3, min: 1}
    retire: {idle_after: 1m}
"""
DELETE = """\
echo >> tries
test ! -e broken || { echo no route >&2; exit 1; }
rm "up/$RESALLOC_NAME"
"""
NAME = "one_f0001"


class Slow:
    """A fleet of one machine that is to go, and a clock that is moved by hand."""

    def __init__(self, folder: Path, clock: time_machine.Traveller) -> None:
        self.trial = Trial(folder)
        self.trial.write(YAML)
        (folder / "delete.sh").write_text(DELETE, encoding="utf-8")
        self.trial.init()
        self.trial.apply()
        self.broken = folder / "broken"
        self.broken.touch()
        self.trial.write(YAML.replace(", min: 1", ""))
        self._clock = clock

    def later(self, minutes: int) -> tuple[int, int]:
        """Apply so much later; return the exit code and how often `delete` was run by then."""
        self._clock.shift(timedelta(minutes=minutes))
        code, _ = self.trial.do("apply")
        tries = self.trial.folder / "tries"
        return code, len(tries.read_text().splitlines()) if tries.exists() else 0


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    with time_machine.travel(datetime(2026, 11, 23, 8, tzinfo=UTC), tick=False) as clock:
        yield Slow(tmp_path, clock)


@pytest.mark.slow
def test_failing_delete_is_retried_with_growing_delay(slow: Slow) -> None:
    at_once = [slow.later(minutes) for minutes in (5, 1)]
    later = [slow.later(minutes) for minutes in (1, 8, 1, 19, 1, 40, 60, 59, 1)]

    assert at_once == [(1, 1), (1, 2)]
    assert later == [(1, 2), (1, 2), (1, 3), (1, 3), (1, 4), (1, 5), (1, 6), (1, 6), (1, 7)]
    (said,) = (text for text in slow.trial.plan()["attention"] if text.startswith(NAME))
    assert tells(said, "delete", "failed", "7")
    assert "no route" in said


@pytest.mark.slow
def test_machine_delete_ignores_backoff_of_failed_deletion(slow: Slow) -> None:
    for minutes in (5, 1):
        slow.later(minutes)

    said = slow.trial.told("machine", "delete", NAME, "--apply", code=1)
    slow.broken.unlink()
    slow.trial.told("machine", "delete", NAME, "--apply")

    assert "no route" in said
    assert not (slow.trial.folder / "up" / NAME).exists()
