"""A merge request that halves `idle_after`: what it would have cost and saved over a fortnight."""

import pytest

from tests.builders.recording import made_up
from tests.walks.conftest import Play
from tests.walks.walking import Walk


@pytest.mark.slow
def test_walk_of_halved_idle_after(walk: Walk, play: Play) -> None:
    made_up(walk.project / "history.jsonl.zst", 14)

    play("halve-idle-after")

    span = "--history history.jsonl.zst --to 2026-11-06"
    found = walk.json(f"fleet simulate {span} --against main.yaml --json")
    before, after = found["before"], found["after"]
    assert float(after["money"]) < float(before["money"])
    assert after["waits"]["most"] > before["waits"]["most"]
    assert len(found["worse"]) == min(20, found["worse_count"])
