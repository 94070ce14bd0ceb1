"""Which versions of an image move when one is promoted or taken back."""

import pytest

from fleet.errors import PromotionRefused
from fleet.images.promote import declared_version, newest_promotable, promote, take_back
from fleet.model.images import BOOTABLE, Move, State, Version
from fleet.schema.pools import ExistingImage
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.versioning import a_version

V1, V2, V3 = "20261107T060000Z", "20261114T060000Z", "20261121T060000Z"


def moved(moves: tuple[Move, ...]) -> dict[str, str]:
    return {move.now.version: move.now.state for move in moves}


def existing(ami: str, **more: object) -> ExistingImage:
    return ExistingImage.model_validate({"existing": {"aws": ami}} | more)


def some(**states: str) -> list[Version]:
    """Return versions of trixie, named V1 to V3, in these states."""
    names = {"v1": V1, "v2": V2, "v3": V3}
    return [a_version(version=names[name], state=state) for name, state in states.items()]


def test_promotion_moves_current_to_previous_and_previous_to_retired() -> None:
    versions = some(v1="previous", v2="current", v3="tested")

    moves = promote(versions, versions[2], NOW)

    assert moved(moves) == {V3: "current", V2: "previous", V1: "retired"}
    assert {move.now.since for move in moves} == {NOW}
    assert [move.was for move in moves] == [versions[2], versions[1], versions[0]]


@pytest.mark.parametrize("state", ["building", "built", "failed"])
def test_untested_version_is_not_promoted(state: str) -> None:
    (version,) = some(v1=state)

    with pytest.raises(PromotionRefused, match=f"{state}"):
        promote([version], version, NOW)


@pytest.mark.parametrize("state", sorted(BOOTABLE - {"current"}))
def test_tested_version_may_be_promoted_again(state: State) -> None:
    (version,) = some(v1=state)

    assert moved(promote([version], version, NOW)) == {V1: "current"}


def test_promotion_of_current_version_is_refused() -> None:
    (version,) = some(v1="current")

    with pytest.raises(PromotionRefused, match=rf"trixie {V1}.*current"):
        promote([version], version, NOW)


def test_candidate_keeps_current_and_retires_older_candidate() -> None:
    versions = some(v1="current", v2="candidate", v3="tested")

    moves = promote(versions, versions[2], NOW, share=20)

    assert moved(moves) == {V3: "candidate", V2: "retired"}
    assert moves[0].now.share == 20


def test_share_of_candidate_is_changed() -> None:
    current, candidate = some(v1="current", v2="candidate")

    (move,) = promote([current, candidate], candidate, NOW, share=50)

    assert (move.now.state, move.now.share) == ("candidate", 50)


def test_candidate_is_refused_without_a_current_version() -> None:
    (version,) = some(v1="tested")

    with pytest.raises(PromotionRefused, match=r"trixie.*--candidate"):
        promote([version], version, NOW, share=20)


def test_promoted_candidate_has_no_share() -> None:
    current, candidate = some(v1="current", v2="candidate")
    candidate = candidate.altered(share=20)

    move, _ = promote([current, candidate], candidate, NOW)

    assert (move.now.state, move.now.share) == ("current", 0)


def test_promotion_retires_only_older_candidates() -> None:
    older = some(v1="candidate", v2="tested")
    newer = some(v2="tested", v3="candidate")

    assert moved(promote(older, older[1], NOW)) == {V2: "current", V1: "retired"}
    assert moved(promote(newer, newer[0], NOW)) == {V2: "current"}


def test_rollback_retires_current_version_with_reason() -> None:
    moves = take_back(some(v1="retired", v2="previous", v3="current"), "trixie", NOW, "edit it")

    assert moved(moves) == {V2: "current", V3: "retired"}
    assert tells(moves[1].now.why, V2)


def test_rollback_retires_candidate_before_current() -> None:
    moves = take_back(some(v1="previous", v2="current", v3="candidate"), "trixie", NOW, "edit it")

    assert moved(moves) == {V3: "retired"}


def test_rollback_is_refused_without_previous_version() -> None:
    with pytest.raises(PromotionRefused, match=r"trixie.*fleet image promote trixie"):
        take_back(some(v1="retired", v3="current"), "trixie", NOW, "edit it")


def test_newest_tested_version_waits_for_promotion() -> None:
    versions = some(v1="tested", v2="candidate", v3="failed")

    assert newest_promotable(versions, "trixie").version == V2
    with pytest.raises(PromotionRefused, match=r"trixie.*fleet image show trixie"):
        newest_promotable(some(v1="current", v2="built"), "trixie")


def test_existing_image_becomes_a_version_when_promoted() -> None:
    declared = declared_version("golden", existing("ami-1"), [], NOW, by="bob")

    (move,) = promote([], declared, NOW)

    assert move.was is None
    assert (move.now.version, move.now.state, move.now.elsewhere) == (
        "20261121T080000Z",
        "current",
        True,
    )
    assert move.now.fact.ids == {"aws": "ami-1"}


def test_existing_image_with_same_ids_is_the_same_version() -> None:
    (first,) = promote([], declared_version("golden", existing("ami-1"), [], NOW, by="b"), NOW)

    again = declared_version("golden", existing("ami-1"), [first.now], NOW, by="b")

    assert again == first.now


def test_other_ids_in_the_same_second_are_another_version() -> None:
    (first,) = promote([], declared_version("golden", existing("ami-1"), [], NOW, by="b"), NOW)

    second = declared_version("golden", existing("ami-2"), [first.now], NOW, by="b")

    assert second.version == "20261121T080001Z"
