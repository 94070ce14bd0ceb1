"""`fleet image promote` and `rollback`: versions move, and it is said which machines go."""

import pytest

from fleet.model.images import Publication, Version
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.versioning import a_version
from tests.rigs.trial import Trial

OLD, NEW = "20261114T060000Z", "20261121T060000Z"


def a_published(version: str, state: str, **more: object) -> Version:
    uploaded = Publication(id=f"trixie-{version}", at=NOW, verified=True)
    values = {"version": version, "state": state, "publications": {"desk": uploaded}}
    return a_version(**(values | more))


@pytest.fixture
def baked(trial: Trial) -> Trial:
    """Return a trial fleet in which one machine boots the current version; a newer is tested."""
    return trial.begun(begin_baked)


def begin_baked(trial: Trial) -> None:
    trial.remember(a_published(OLD, "current"), a_published(NEW, "tested"))
    trial.wait_for("1")
    trial.apply()


def booted(trial: Trial) -> list[str]:
    return [machine.inputs.image for machine in trial.made()]


def test_candidate_replaces_at_most_its_share(baked: Trial) -> None:
    baked.age(minutes=2)

    promotion = baked.json("image", "promote", "trixie", NEW, "--candidate", "20%")

    assert promotion["moves"] == [
        {"version": NEW, "was": "tested", "now": "candidate", "share": 20}
    ]
    assert [pool["boots"] for pool in promotion["pools"]] == [OLD, OLD]
    assert [pool["replaced"] for pool in promotion["pools"]] == [[], ["trial-builders-0001"]]


def test_promote_reports_providers_without_the_version(baked: Trial) -> None:
    nowhere = "20261122T060000Z"
    baked.remember(a_published(nowhere, "tested", publications={}))

    _, said = baked.do("image", "promote", "trixie", nowhere)

    assert tells(said, "pool builders", OLD, "none")
