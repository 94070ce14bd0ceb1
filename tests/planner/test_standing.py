"""Which version of an image comes next by `images.NAME.promote`: one never in use, published."""

from datetime import timedelta

import pytest

from fleet.model.images import ImageVersion
from fleet.planner.images import NextVersion, find_standing
from tests.builders import NOW, a_sim_fleet, ago
from tests.builders.sentences import tells

OLD, NEW, NEWEST = "20261107T060000Z", "20261114T060000Z", "20261121T060000Z"


def version(name: str, state: str, **overrides: object) -> ImageVersion:
    values = {
        "image": "trixie",
        "version": name,
        "state": state,
        "ids": {"desk": f"id-{name}"},
        "since": ago(hours=1),
        "by_rule": True,
    }
    return ImageVersion.model_validate(values | overrides)


CURRENT = version(OLD, "current")


def standing(*versions: ImageVersion, **recipe: object) -> NextVersion | None:
    declared = {"suite": "trixie", "architecture": "amd64", "publish": ["desk"]} | recipe
    return find_standing(a_sim_fleet(images={"trixie": declared}), "trixie", versions, {}, NOW)


def steps(*versions: ImageVersion, **recipe: object) -> tuple[str, str | None, int] | None:
    found = standing(*versions, **recipe)
    return (found.version.version, found.becomes, found.share) if found else None


def test_newer_tested_version_becomes_candidate_at_20_percent() -> None:
    assert steps(CURRENT, version(NEW, "tested")) == (NEW, "candidate", 20)


def test_tested_version_becomes_current_when_none_is_current() -> None:
    assert steps(version(NEW, "tested")) == (NEW, "current", 0)


def test_tested_version_becomes_current_when_promote_is_tested() -> None:
    assert steps(CURRENT, version(NEW, "tested"), promote="tested") == (NEW, "current", 0)


@pytest.mark.parametrize(("hours", "becomes"), [(5.9, None), (6, "current")])
def test_candidate_becomes_current_after_trial(hours: float, becomes: str | None) -> None:
    candidate = version(NEW, "candidate", since=ago(hours=hours))

    found = standing(CURRENT, candidate)

    assert found is not None
    assert (found.becomes, found.is_on_trial) == (becomes, True)
    assert found.until == (None if becomes else candidate.since and NOW + timedelta(hours=0.1))


def test_newer_version_waits_for_end_of_trial() -> None:
    found = steps(CURRENT, version(NEW, "candidate"), version(NEWEST, "tested"))

    assert found == (NEW, None, 0)


@pytest.mark.parametrize("used", ["retired", "previous", "candidate"])
def test_version_older_than_a_used_one_is_not_next(used: str) -> None:
    found = standing(version(OLD, "current"), version(NEW, "tested"), version(NEWEST, used))

    assert found is None or found.version.version == NEWEST


@pytest.mark.parametrize("ids", [{}, {"desk": "id"}, {"hetzner": "7"}])
def test_partly_published_version_is_not_next(
    ids: dict[str, str],
) -> None:
    fresh = version(NEW, "tested", ids=ids)

    assert standing(CURRENT, fresh, publish=["desk", "hetzner"]) is None


def test_unpublished_version_is_not_next() -> None:
    assert standing(CURRENT, version(NEW, "tested"), publish=[]) is None


def test_pinned_version_precedes_current_one() -> None:
    assert standing(CURRENT, version(NEW, "tested"), version=OLD) is None


@pytest.mark.parametrize(
    ("overrides", "recipe", "why"),
    [
        ({}, {"promote": "manual"}, "images.trixie.promote"),
        ({"by_rule": False}, {}, "before"),
    ],
)
def test_version_waits_for_manual_promotion(
    overrides: dict[str, object], recipe: dict[str, object], why: str
) -> None:
    found = standing(CURRENT, version(NEW, "tested", **overrides), **recipe)

    assert found is not None
    assert (found.becomes, found.is_on_trial) == (None, False)
    assert tells(found.why, why)
    assert found.waiting().command == f"fleet image promote trixie {NEW}"


def test_manual_candidate_waits_for_manual_promotion() -> None:
    found = standing(CURRENT, version(NEW, "candidate", by_rule=False, share=5))

    assert found is not None
    assert (found.becomes, found.is_on_trial) == (None, False)
    assert tells(found.why, "candidate", "by hand")


def test_recorded_versions_without_times_are_not_promoted() -> None:
    assert standing(CURRENT, version(NEW, "tested", since=None)) is None
