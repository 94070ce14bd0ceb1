"""A package that builds faster on a big machine goes there, once its runs have shown that."""

import re

import pytest

from tests.walks.conftest import Play
from tests.walks.walking import Walk, roughly

_SECONDS = re.compile(r"\b((\d+[dhm] )+)\d+s\b")
"""Durations that hold how long the commands of the page took."""


def settled(text: str) -> str:
    return roughly(_SECONDS.sub(r"\1", text))


@pytest.mark.slow
def test_build_gets_machine_that_costs_less_by_its_runs(walk: Walk, play: Play) -> None:
    play("a-faster-machine", settle=settled)

    (reading,) = walk.json("fleet observe")["queues"].values()
    runs = reading["demand"]["runs"]
    assert [(each["machine"], len(each["seconds"])) for each in runs] == [("mons", 3), ("norm", 3)]
    workers = walk.json("fleet status --json")["workers"]
    assert sorted(each["type"] for each in workers if each["state"] == "starting") == [
        "mons",
        "norm",
    ]
