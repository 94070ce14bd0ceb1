"""An image, from a changed recipe to every machine in turn, and back where it is bad."""

import re
import sys

import pytest

from tests.docs.test_documents import steady
from tests.rigs.process import ROOT
from tests.walks.conftest import Play
from tests.walks.walking import Walk

# `bake IMAGE` leaves what `fleet image build` and `fleet image test` leave, but for the disk.
BAKE = f"""#!{sys.executable} -IS
import os, sys
sys.path[:0] = [{str(ROOT)!r}, *{sys.path!r}]
from tests.walks import baking
baking.main(*sys.argv[1:])
"""
VERSION = re.compile(r"\d{8}T\d{6}Z")
# On a slow computer a story takes minutes of its own.
AGE = re.compile(
    r"\b\d+[dhms](?: \d+[dhms])?(?= ago| apart|: \d+ boot)"
    r"|\b\d+ (?:d|h)(?: \d+ (?:h|min))?\b| *\b\d+ (?:s|min)\b"
)


def settle(text: str) -> str:
    """Return what is the same in each run, whenever versions were built.

    A manifest is longer where a time in it is no whole second.
    """
    text = re.sub(r"(?<=read back: )\d+", "N", text)
    return AGE.sub("AGE", VERSION.sub("VERSION", steady(text)))


@pytest.mark.slow
def test_walk_promotes_image_in_turn_and_rolls_back_a_bad_one(walk: Walk, play: Play) -> None:
    walk.add("bake", BAKE)

    play("an-image", settle)

    (image,) = walk.json("fleet image list --json")["images"]
    states = [each["state"] for each in image["versions"]]
    assert states == ["retired", "retired", "current", "retired"]
    current = image["versions"][2]["version"]
    workers = walk.json("fleet status --json")["workers"]
    assert [current in each["image"] for each in workers] == [True] * 4
    plan = walk.json("fleet plan --json")
    assert (plan["promotions"], plan["waiting_versions"]) == ([], [])
