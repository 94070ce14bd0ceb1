"""An account that runs out of stock and quota for a day, and what is bought instead."""

import re

import pytest

from tests.docs.test_documents import steady
from tests.walks.conftest import Play
from tests.walks.walking import Walk

_SECONDS = re.compile(r"\b((\d+[dhm] )+)\d+s\b")
"""Durations that hold how long the commands of the page took."""


def settled(text: str) -> str:
    return steady(_SECONDS.sub(r"\1", text))


@pytest.mark.slow
def test_account_runs_out_of_stock_and_quota_for_a_day(walk: Walk, play: Play) -> None:
    play("out-of-stock", settle=settled)

    workers = walk.json("fleet status --json")["workers"]
    assert sorted((each["type"], each["market"], each["cost"]) for each in workers) == [
        ("large", "on-demand", "0.2000"),
        *[("quick", "on-demand", "0.0900")] * 2,
        *[("quick", "spot", "0.0300")] * 3,
    ]
