"""Images that were built elsewhere: their pin, their rollback, and the breaker that names them."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.builders import an_attempt
from tests.rigs.trial import Trial, fleet_yaml

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


OWN = (
    "{provider: hooks, hooks: {new: [a], delete: [b], list: [c]},"
    " machine: {cores: 4, memory: 8GiB, price: 1 EUR/h}}"
)
TWO = fleet_yaml().replace(RECIPE, "trixie: {existing: {desk: one, shop: two}}")
ROLLBACKS = {
    "an id of fleet.yaml": (
        fleet_yaml().replace(RECIPE, "trixie: {existing: {desk: one}}"),
        "trixie",
        ("images.trixie.existing.desk",),
        "VERSION",
    ),
    "ids of two providers": (
        TWO.replace("providers:\n", "providers:\n  shop: {kind: sim}\n"),
        "trixie",
        ("images.trixie.existing.desk", "images.trixie.existing.shop"),
        "VERSION",
    ),
    "commands of a pool": (
        fleet_yaml(pools={"racks": OWN}),
        "racks",
        ("`new` of racks",),
        "images.racks",
    ),
    "a recipe": (fleet_yaml(), "trixie", ("`fleet image build trixie`",), "images.trixie"),
}


@pytest.mark.parametrize(("text", "image", "named", "unnamed"), ROLLBACKS.values(), ids=ROLLBACKS)
def test_rollback_names_the_next_step_when_nothing_was_promoted(
    trial: Trial, text: str, image: str, named: tuple[str, ...], unnamed: str
) -> None:
    trial.write(text)

    said = trial.told("image", "rollback", image, code=4)

    assert all(each in said for each in named)
    assert unnamed not in said


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
