"""Which version of an image comes next by `images.NAME.promote`: one never in use, published."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from fleet.model.images import ImageVersion
from fleet.planner.images import NextVersion, find_standing
from tests.builders import NOW, a_sim_fleet, ago
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells

VERSIONS = {"1": "20261107T060000Z", "2": "20261114T060000Z", "3": "20261121T060000Z"}
CASES = [*read_blocks(Path(__file__).parent / "versions")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_next_version_is_that_of_its_case(case: Block) -> None:
    found = standing(*case.parts)

    assert describe(found) == case.result
    for _, words in case.because:
        assert found is not None
        assert tells(found.why, *words.split())
        assert found.waiting().command == f"fleet image promote trixie {VERSIONS['2']}"


def standing(versions: str, recipe: str) -> NextVersion | None:
    declared = {"suite": "trixie", "architecture": "amd64", "publish": ["desk"]}
    fleet = a_sim_fleet(images={"trixie": declared | yaml.safe_load(f"{{{recipe}}}")})
    known = [version_of(*each.split()) for each in versions.split(",")]
    return find_standing(fleet, "trixie", known, {}, NOW)


def version_of(number: str, state: str, *said: str) -> ImageVersion:
    """Return a version that is published at desk since an hour, unless the words say otherwise."""
    values: dict[str, object] = {"image": "trixie", "version": VERSIONS[number], "state": state}
    values |= {"ids": {"desk": f"id-{number}"}, "since": ago(hours=1), "by_rule": True}
    if "for" in said:
        values["since"] = ago(hours=float(said[said.index("for") + 1].rstrip("h")))
    pairs = (word.partition("=") for word in said if "=" in word)
    return ImageVersion.model_validate(values | {k: yaml.safe_load(v) for k, _, v in pairs})


def describe(found: NextVersion | None) -> str:
    """Return the version, its next state and share, or the end of its trial."""
    if found is None:
        return "none"
    (number,) = (number for number, name in VERSIONS.items() if name == found.version.version)
    becomes = f"becomes {found.becomes}" if found.becomes else "waits"
    share = f" at {found.share}%" if found.share else ""
    trial = " on trial" if found.is_on_trial else ""
    until = f" for {(found.until - NOW) / timedelta(minutes=1):g} min" if found.until else ""
    return f"{number} {becomes}{share}{trial}{until}"
