"""`fleet image promote` and `rollback`: versions move, and it is said which machines go."""

import json

import pytest

from fleet.model.images import Publication, Version
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.versioning import a_version
from tests.rigs.trial import Trial, fleet_yaml

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


def test_machines_boot_the_current_version(baked: Trial) -> None:
    assert booted(baked) == [f"trixie-{OLD}"]


def test_promote_selects_newest_tested_and_lists_replaced_machines(
    baked: Trial,
) -> None:
    code, said = baked.do("image", "promote", "trixie")

    assert code == 0
    assert tells(said, NEW, "tested -> current")
    assert tells(said, OLD, "current -> previous")
    assert tells(said, "pool big: ", NEW, "0")
    assert tells(said, "pool builders: ", NEW, "1 of", "1", "10%")
    assert baked.versions() == {OLD: "previous", NEW: "current"}


def test_promoted_version_replaces_machine_in_later_runs(baked: Trial) -> None:
    baked.do("image", "promote", "trixie")
    baked.wait_for()

    for _ in range(4):
        baked.age(minutes=2)
        baked.apply()
    baked.wait_for("2")
    baked.apply()

    assert booted(baked) == [f"trixie-{NEW}"]


def test_promote_lists_machines_outdated_by_earlier_promotion(baked: Trial) -> None:
    newer = "20261122T060000Z"
    baked.remember(a_published(newer, "tested"))
    baked.do("image", "promote", "trixie", NEW)

    promotion = json.loads(baked.do("image", "promote", "trixie", newer, "--json")[1])

    assert [pool["replaced"] for pool in promotion["pools"]] == [[], ["trial-builders-0001"]]


def test_promote_dry_run_changes_nothing(baked: Trial) -> None:
    code, said = baked.do("image", "promote", "trixie", "--dry-run")

    assert code == 0
    assert tells(said, "(--dry-run)")
    assert baked.versions() == {OLD: "current", NEW: "tested"}


def test_candidate_replaces_at_most_its_share(baked: Trial) -> None:
    baked.age(minutes=2)

    code, said = baked.do("image", "promote", "trixie", NEW, "--candidate", "20%", "--json")

    promotion = json.loads(said)
    assert code == 0
    assert promotion["moves"] == [
        {"version": NEW, "was": "tested", "now": "candidate", "share": 20}
    ]
    assert [pool["boots"] for pool in promotion["pools"]] == [OLD, OLD]
    assert [pool["replaced"] for pool in promotion["pools"]] == [[], ["trial-builders-0001"]]


def test_rollback_restores_previous_version(baked: Trial) -> None:
    baked.do("image", "promote", "trixie")

    code, said = baked.do("image", "rollback", "trixie")

    assert code == 0
    assert said.splitlines()[1:3] == [
        f"  {OLD}  previous -> current",
        f"  {NEW}  current -> retired",
    ]
    assert baked.versions() == {OLD: "current", NEW: "retired"}


@pytest.mark.parametrize("verb", ["promote", "rollback"])
def test_promote_of_pinned_image_is_refused_with_place_of_pin(baked: Trial, verb: str) -> None:
    baked.write(fleet_yaml().replace("suite: trixie,", f"version: {OLD}, suite: trixie,"))

    code, said = baked.do("image", verb, "trixie")

    assert code == 4
    assert tells(said, "fleet.yaml:7:12", "image trixie", "pinned", f"version {OLD}")
    assert baked.versions() == {OLD: "current", NEW: "tested"}


def test_promote_of_untested_version_is_refused(baked: Trial) -> None:
    baked.remember(a_published("20261122T060000Z", "built"))

    code, said = baked.do("image", "promote", "trixie", "20261122T060000Z")

    assert code == 4
    assert tells(said, "image trixie 20261122T060000Z", "built", "fleet image test trixie")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (["sid"], ("image sid", "fleet.yaml", "trixie")),
        (["trixie", "1"], ("image trixie", "version 1", f"{OLD}, {NEW}")),
    ],
)
def test_promote_lists_versions_when_name_is_unknown(
    baked: Trial, name: list[str], said: tuple[str, ...]
) -> None:
    code, told = baked.do("image", "promote", *name)

    assert (code, told.count("\n")) == (1, 1)
    assert tells(told, "fleet: error", *said)
    assert baked.versions() == {OLD: "current", NEW: "tested"}


@pytest.mark.parametrize("share", ["0%", "101", "all"])
def test_candidate_share_is_from_1_to_100_percent(baked: Trial, share: str) -> None:
    with pytest.raises(SystemExit) as ended:
        baked.do("image", "promote", "trixie", "--candidate", share)

    assert ended.value.code == 2


def test_existing_image_is_promoted_from_fleet_yaml(trial: Trial) -> None:
    def declare(name: str) -> None:
        recipe = "trixie: {suite: trixie, architecture: amd64}"
        trial.write(fleet_yaml().replace(recipe, f"trixie: {{existing: {{desk: {name}}}}}"))

    declare("golden-1")
    assert trial.do("image", "promote", "trixie")[0] == 0
    trial.wait_for("1")
    trial.apply()

    declare("golden-2")
    plan = trial.plan()

    assert booted(trial) == ["golden-1"]
    assert tells(
        plan["attention"][1],
        "pool builders",
        "fleet.yaml",
        "golden-2",
        "promoted",
        "fleet image promote trixie",
    )
    assert not any(worker["outdated"] for worker in plan["workers"])


def test_promote_reports_providers_without_the_version(baked: Trial) -> None:
    nowhere = "20261122T060000Z"
    baked.remember(a_published(nowhere, "tested", publications={}))

    _, said = baked.do("image", "promote", "trixie", nowhere)

    assert tells(said, "pool builders", OLD, "none")
