"""What walks stand on: time passes for the program, and nothing else does."""

from datetime import datetime, timedelta

import pytest

from tests.walks.walking import Walk


@pytest.mark.slow
def test_program_uses_time_of_the_walk(walk: Walk) -> None:
    walk.run("fleet state init")
    before = datetime.fromisoformat(walk.json("fleet observe")["time"])

    walk.run("later 90m")
    walk.run("later 1d")

    after = datetime.fromisoformat(walk.json("fleet observe")["time"])
    assert timedelta(hours=25, minutes=30) <= after - before < timedelta(hours=25, minutes=31)
    assert walk.now() >= after
