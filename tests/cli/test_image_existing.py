"""Images that were built elsewhere: their pin, their rollback, and the breaker that names them."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.builders import an_attempt
from tests.builders.sentences import tells
from tests.rigs.trial import Trial, fleet_yaml

PIN = "20260101T000000Z"
NEXT = "20260108T000000Z"
RECIPE = "trixie: {suite: trixie, architecture: amd64}"


def declare(trial: Trial, name: str, version: str = "") -> None:
    pin = f", version: {version}" if version else ""
    trial.write(fleet_yaml().replace(RECIPE, f"trixie: {{existing: {{desk: {name}}}{pin}}}"))


def boots(trial: Trial, *results: tuple[str, str], pool: str = "builders") -> None:
    """Record how boots of images ended, the oldest first, a minute apart."""
    begin = datetime.now(UTC) - timedelta(hours=1)
    trial.store().record_attempts(
        [
            an_attempt(
                pool=pool,
                worker=f"trial-{pool}-{number:04}",
                image=image,
                result=result,
                at=begin + timedelta(minutes=number),
            )
            for number, (image, result) in enumerate(results)
        ]
    )


@pytest.fixture
def elsewhere(trial: Trial) -> Trial:
    declare(trial, "golden-1", PIN)
    return trial


def test_ids_boot_as_the_pinned_version_when_none_is_remembered(elsewhere: Trial) -> None:
    elsewhere.wait_for("1")
    elsewhere.apply()

    assert [machine.inputs.image for machine in elsewhere.made()] == ["golden-1"]


def test_promote_remembers_ids_under_the_pinned_version(elsewhere: Trial) -> None:
    code, _ = elsewhere.do("image", "promote", "trixie")

    assert code == 0
    assert elsewhere.versions() == {PIN: "current"}


def test_pin_boots_stored_ids_when_fleet_yaml_has_newer_ids(elsewhere: Trial) -> None:
    elsewhere.do("image", "promote", "trixie")
    declare(elsewhere, "golden-2", NEXT)
    elsewhere.do("image", "promote", "trixie", NEXT)
    declare(elsewhere, "golden-2", PIN)
    elsewhere.wait_for("1")
    elsewhere.apply()

    assert elsewhere.versions() == {PIN: "previous", NEXT: "current"}
    assert [machine.inputs.image for machine in elsewhere.made()] == ["golden-1"]


def problems(trial: Trial) -> list[str]:
    return [str(each) for each in trial.plan()["attention"]]


def test_plan_names_promotion_when_fleet_yaml_names_an_earlier_id(trial: Trial) -> None:
    for name in ("golden-1", "golden-2"):
        declare(trial, name)
        trial.do("image", "promote", "trixie")
    before = problems(trial)

    declare(trial, "golden-1")

    assert before == []
    assert problems(trial)
    assert all(tells(each, "golden-1", "golden-2", "promote") for each in problems(trial))


def test_plan_is_silent_after_rollback_of_the_id_in_fleet_yaml(trial: Trial) -> None:
    for name in ("golden-1", "golden-2"):
        declare(trial, name)
        trial.do("image", "promote", "trixie")

    trial.do("image", "rollback", "trixie")

    assert problems(trial) == []


def test_unknown_pin_names_command_when_other_versions_exist(elsewhere: Trial) -> None:
    elsewhere.do("image", "promote", "trixie")
    declare(elsewhere, "golden-2", NEXT)
    elsewhere.wait_for("1")

    plan = elsewhere.plan()

    assert not plan["actions"]
    assert PIN in plan["attention"][0]
    assert "`fleet image promote trixie`" in plan["attention"][0]


@pytest.mark.parametrize(("image", "pin"), [("golden-1", NEXT), ("golden-2", PIN)])
def test_promote_is_refused_when_pin_and_ids_disagree(
    elsewhere: Trial, image: str, pin: str
) -> None:
    elsewhere.do("image", "promote", "trixie")
    declare(elsewhere, image, pin)

    code, said = elsewhere.do("image", "promote", "trixie")

    assert (code, elsewhere.versions()) == (4, {PIN: "current"})
    assert f"trixie {PIN}" in said


def test_promote_is_refused_for_version_other_than_pin(elsewhere: Trial) -> None:
    code, said = elsewhere.do("image", "promote", "trixie", NEXT)

    assert (code, elsewhere.versions()) == (4, {})
    assert "fleet.yaml:7" in said


def test_rollback_names_the_key_when_nothing_was_promoted(trial: Trial) -> None:
    declare(trial, "golden-1")

    code, said = trial.do("image", "rollback", "trixie")

    assert code == 4
    assert "images.trixie.existing.desk" in said
    assert "VERSION" not in said


def test_rollback_names_each_of_two_providers(trial: Trial) -> None:
    text = fleet_yaml().replace(RECIPE, "trixie: {existing: {desk: one, shop: two}}")
    trial.write(text.replace("providers:\n", "providers:\n  shop: {kind: sim}\n"))

    _, said = trial.do("image", "rollback", "trixie")

    assert "images.trixie.existing.desk" in said
    assert "images.trixie.existing.shop" in said


def test_rollback_names_the_command_when_the_pool_has_hooks(trial: Trial) -> None:
    hooks = "{new: [a], delete: [b], list: [c]}"
    machine = "{cores: 4, memory: 8GiB, price: 1 EUR/h}"
    pool = f"{{provider: hooks, hooks: {hooks}, machine: {machine}}}"
    trial.write(fleet_yaml(pools={"racks": pool}))

    code, said = trial.do("image", "rollback", "racks")

    assert code == 4
    assert "`new` of racks" in said
    assert "images.racks" not in said


def test_rollback_names_retired_version_when_one_exists(trial: Trial) -> None:
    for image in ("golden-1", "golden-2"):
        declare(trial, image)
        trial.do("image", "promote", "trixie")
    trial.do("image", "rollback", "trixie")
    (retired,) = (each for each, state in trial.versions().items() if state == "retired")

    code, said = trial.do("image", "rollback", "trixie")

    assert code == 4
    assert f"`fleet image promote trixie {retired}`" in said


def test_rollback_of_recipe_suggests_build_without_earlier_version(trial: Trial) -> None:
    _, said = trial.do("image", "rollback", "trixie")

    assert "`fleet image build trixie`" in said


def surfaces(trial: Trial) -> dict[str, str]:
    """Return what each place says of pool `builders`, with the lines joined."""
    said = {
        "plan": trial.do("plan")[1],
        "status": trial.do("status")[1],
        "doctor": trial.do("doctor")[1],
        "list": trial.do("image", "list")[1],
        "show": trial.do("image", "show", "trixie")[1],
    }
    return {where: " ".join(text.split()) for where, text in said.items()}


@pytest.mark.parametrize(
    ("earlier", "last"),
    [
        ([("golden-1", "registered")], "trixie golden-1"),
        ([], "no successful boot of this image"),
    ],
)
def test_boot_guard_names_image_and_last_boot_in_each_output(
    trial: Trial, earlier: list[tuple[str, str]], last: str
) -> None:
    declare(trial, "golden-2")
    boots(trial, *earlier, *[("golden-2", "failed")] * 4)

    for where, said in surfaces(trial).items():
        assert "image trixie golden-2 failed 4 of its last" in said, where
        assert last in said, where
        assert "images.trixie.existing.desk" in said, where


def test_boot_guard_suspects_no_image_that_booted_before(trial: Trial) -> None:
    declare(trial, "golden-2")
    boots(trial, ("golden-2", "registered"), *[("golden-2", "failed")] * 4)

    for where, said in surfaces(trial).items():
        assert "image trixie golden-2 failed 4 of its last 5 boots on ccx33" in said, where
        assert "so suspect the network of pool builders, not the image" in said, where
        assert "pools.builders.boot.on_failure" in said, where
        assert "images.trixie.existing" not in said, where


def test_boot_guard_counts_boots_of_all_pools_of_image(trial: Trial) -> None:
    declare(trial, "golden-2")
    boots(trial, *[("golden-2", "failed")] * 4)
    boots(trial, ("golden-1", "registered"), pool="big")

    for where, said in surfaces(trial).items():
        assert "last booted: trixie golden-1" in said, where


def test_boot_guard_names_version_to_promote(trial: Trial) -> None:
    for image in ("golden-1", "golden-2"):
        declare(trial, image)
        trial.do("image", "promote", "trixie")
    old, new = sorted(trial.versions())
    boots(trial, ("golden-1", "registered"), *[("golden-2", "failed")] * 4)

    for where, said in surfaces(trial).items():
        assert f"image trixie {new} failed 4 of" in said, where
        assert f"last booted: trixie {old} at" in said, where
        assert f"`fleet image promote trixie {old}`" in said, where


def test_boot_guard_is_in_json_of_image_list(trial: Trial) -> None:
    declare(trial, "golden-2")
    boots(trial, *[("golden-2", "failed")] * 4)

    (listed,) = json.loads(trial.do("image", "list", "--json")[1])["images"]

    assert [*listed["troubles"]] == ["builders"]
