"""A merge request that halves `idle_after`: what it would have cost and saved over a fortnight."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.builders.recording import record_fixed, working_days, write
from tests.walks.conftest import Play
from tests.walks.walking import Walk

START = datetime(2026, 11, 2, tzinfo=UTC)


@pytest.mark.slow
def test_half_the_idle_time(walk: Walk, play: Play) -> None:
    days, every = timedelta(days=14), timedelta(minutes=30)
    worlds = record_fixed(list(working_days(START, 14, 30)), START, START + days, every=every)
    write(walk.project / "history.jsonl.zst", worlds)

    play("halve-idle-after")

    span = "--history history.jsonl.zst --to 2026-11-06"
    found = walk.json(f"fleet simulate {span} --against main.yaml --json")
    before, after = found["before"], found["after"]
    assert float(after["money"]) < float(before["money"])
    assert after["waits"]["most"] > before["waits"]["most"]
    assert len(found["worse"]) == min(20, found["worse_count"])
