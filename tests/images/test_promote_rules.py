"""Which versions of an image move when one is promoted or taken back."""

from pathlib import Path

import pytest

from fleet.errors import PromotionRefused
from fleet.images.promote import declared_version, newest_promotable, promote, take_back
from fleet.model.images import Move, Version
from fleet.schema.pools import ExistingImage
from tests.builders import NOW
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.builders.versioning import a_version

V1, V2, V3 = "20261107T060000Z", "20261114T060000Z", "20261121T060000Z"
NAMES = {"v1": V1, "v2": V2, "v3": V3}
CASES = [*read_blocks(Path(__file__).parent / "promotions")]


def versions_of(text: str) -> list[Version]:
    """Return versions of trixie, named V1 to V3, in these states, a candidate with its share."""
    found = []
    for name, state, *share in (each.split() for each in text.split(",")):
        version = a_version(version=NAMES[name], state=state)
        found.append(version.altered(share=int(share[0])) if share else version)
    return found


def moves_of(versions: list[Version], done: str) -> tuple[Move, ...]:
    """Return what moves when one is promoted, as a candidate with a share, or taken back."""
    verb, *words = done.split()
    if verb == "rollback":
        return take_back(versions, "trixie", NOW, "edit it")
    (chosen,) = [each for each in versions if each.version == NAMES[words[0]]]
    return promote(versions, chosen, NOW, **({"share": int(words[1])} if words[1:] else {}))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_versions_move_as_in_their_case(case: Block) -> None:
    versions = versions_of(case.parts[0])
    said = {}
    try:
        moves = moves_of(versions, case.parts[1])
    except PromotionRefused as refused:
        moves, result = (), "refused"
        said["error"] = str(refused)
    else:
        named = {version: name for name, version in NAMES.items()}
        shares = [f" {move.now.share}" if move.now.share else "" for move in moves]
        states = [f"{named[each.now.version]} {each.now.state}" for each in moves]
        result = ", ".join(map("".join, zip(states, shares, strict=True)))
        said["retired"] = " ".join(move.now.why for move in moves)

    assert result == case.result
    assert all(tells(said[about], *words.split()) for about, words in case.because)
    assert {move.now.since for move in moves} <= {NOW}
    assert all(move.was in versions and move.was.version == move.now.version for move in moves)


def existing(ami: str, **more: object) -> ExistingImage:
    return ExistingImage.model_validate({"existing": {"aws": ami}} | more)


def test_newest_tested_version_waits_for_promotion() -> None:
    versions = versions_of("v1 tested, v2 candidate, v3 failed")

    assert newest_promotable(versions, "trixie").version == V2
    with pytest.raises(PromotionRefused, match=r"trixie.*fleet image show trixie"):
        newest_promotable(versions_of("v1 current, v2 built"), "trixie")


def test_existing_image_becomes_a_version_per_ids_when_promoted() -> None:
    declared = declared_version("golden", existing("ami-1"), [], NOW, by="bob")

    (move,) = promote([], declared, NOW)

    made = move.now
    assert move.was is None
    assert (made.version, made.state, made.elsewhere) == ("20261121T080000Z", "current", True)
    assert made.fact.ids == {"aws": "ami-1"}
    assert declared_version("golden", existing("ami-1"), [made], NOW, by="b") == made
    second = declared_version("golden", existing("ami-2"), [made], NOW, by="b")
    assert second.version == "20261121T080001Z"
