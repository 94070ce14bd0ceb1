"""A clock beyond the years that fleet knows is an error of one line."""

from datetime import UTC, datetime

import pytest

from fleet import program
from tests.rigs.trial import Trial


@pytest.mark.parametrize("year", [1, 1969, 2200, 2201, 9999])
@pytest.mark.parametrize("command", [("plan",), ("validate",), ("status",), ("apply",)])
def test_clock_out_of_range_gives_one_line_error(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, year: int, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(program, "utc_now", lambda: datetime(year, 6, 1, tzinfo=UTC))

    code, said = trial.do(*command)

    assert code == 1
    assert "clock" in said
    assert str(year) in said
