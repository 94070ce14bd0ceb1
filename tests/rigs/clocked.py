"""The program run in this process, in the current folder, at times that a test chooses."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from fleet.program import main


class Clocked:
    """A fleet in the current folder, and a clock that is moved by hand."""

    def __init__(self, clock: time_machine.Traveller, capsys: pytest.CaptureFixture[str]) -> None:
        self._clock = clock
        self._capsys = capsys

    def run(self, *args: str) -> str:
        """Run the program; it has to end in order."""
        assert main([*args]) == 0
        return self._capsys.readouterr().out

    def write(self, text: str, **words: str) -> None:
        """Write a fleet.yaml, with each of these words replaced, and make its store."""
        for name, value in words.items():
            text = text.replace(name.upper(), value)
        Path("fleet.yaml").write_text(text, encoding="utf-8")
        self.run("state", "init")

    def later(self, minutes: float) -> None:
        """Let time pass."""
        self._clock.shift(timedelta(minutes=minutes))


@contextmanager
def moved_clock() -> Iterator[time_machine.Traveller]:
    """Yield a clock that stands until it is moved."""
    with time_machine.travel(datetime(2026, 11, 23, 8, tzinfo=UTC), tick=False) as clock:
        yield clock
