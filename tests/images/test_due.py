"""What is due of images: a build, a test, a publication, and why; failures hold builds back."""

from datetime import timedelta
from typing import Any

import pytest

from fleet.images.due import News, Update, find_due
from fleet.model.facts import Unknown
from fleet.model.images import DueImage, Publication, Rental, Version, recipe_digest
from fleet.schema.model import ImageRecipe
from tests.builders import NOW, a_fleet, ago
from tests.builders.sentences import tells
from tests.builders.versioning import a_version

ROLE = "a1"
UPLOADED = Publication(id="4711", at=NOW, verified=True)


def recipe(**overrides: object) -> dict[str, object]:
    return {"suite": "trixie", "architecture": "amd64", "rebuild": {"every": "7d"}} | overrides


TODAY = recipe_digest(ImageRecipe.model_validate(recipe()))


def built(**overrides: object) -> Version:
    return a_version(**({"recipe_digest": TODAY, "role_digest": ROLE} | overrides))


def failed(hours: float, **overrides: object) -> Version:
    """Return a build that failed so many hours ago."""
    at = NOW - timedelta(hours=hours)
    name = at.strftime("%Y%m%dT%H%M%SZ")
    values = {"version": name, "state": "failed", "since": at, "built_at": at, "why": "no space"}
    return built(**(values | overrides))


def due(*versions: Version, news: News = (), **overrides: object) -> DueImage:
    fleet = a_fleet(images={"trixie": recipe(**overrides)})
    (image,) = find_due(
        fleet, versions, digests=dict.fromkeys(fleet.images, ROLE), news={"trixie": news}, now=NOW
    ).images
    return image


def reasons(image: DueImage) -> list[str]:
    return [cause.reason for cause in image.causes]


def test_due_build_shows_duration_and_cost_of_last_one() -> None:
    rented = Rental(provider="hetzner", type="cx23", location="fsn1", seconds=560)

    image = due(built(recipe_digest="old", built_in=552, way="instance", rental=rented))

    assert "9m 12s" in image.rebuild
    assert "0.0096 EUR" in image.rebuild
    assert due(built()).rebuild == ""


THERE = built(publications={"hetzner": UPLOADED})


@pytest.mark.parametrize(
    ("versions", "keys", "causes", "steps"),
    [
        ((), {}, ["never-built"], ("build", "test")),
        ((built(),), {}, [], ()),
        ((built(recipe_digest="r0"),), {}, ["recipe-changed"], ("build", "test")),
        ((built(role_digest="a0"),), {}, ["role-changed"], ("build", "test")),
        # Neither a pin nor a place to publish changes the recipe.
        ((THERE,), {"publish": ["hetzner"], "version": THERE.version}, [], ()),
        ((built(built_at=ago(days=7, seconds=-1)),), {}, [], ()),
        ((built(built_at=ago(days=900)),), {"rebuild": None}, [], ()),
        ((built(state="retired"),), {"publish": ["hetzner"]}, [], ()),
    ],
)
def test_image_is_due_by_its_recipe_and_versions(
    versions: tuple[Version, ...],
    keys: dict[str, Any],
    causes: list[str],
    steps: tuple[str, ...],
) -> None:
    image = due(*versions, **keys)

    assert (reasons(image), image.steps, image.is_due) == (causes, steps, bool(steps))


def test_image_is_due_at_age_of_rebuild_every() -> None:
    image = due(built(built_at=ago(days=7)))

    assert reasons(image) == ["too-old"]
    assert tells(image.causes[0].because, "20261121T060000Z", "7d", "rebuild.every", "7d")


def test_image_is_due_when_packages_are_newer_unless_pinned() -> None:
    worker = Update(
        package="debusine-worker", installed="1", available="2", suite="trixie", security=False
    )
    fix = worker.altered(package="zlib1g", security=True)
    pinned = recipe_digest(ImageRecipe.model_validate(recipe(worker_version="1")))

    image = due(built(), news=(worker, fix))

    assert reasons(image) == ["newer-worker", "security-update"]
    assert tells(image.causes[0].because, "trixie", "debusine-worker 2", "1")
    assert due(built(recipe_digest=pinned), news=(worker,), worker_version="1").steps == ()


def test_image_is_not_due_when_updates_are_unknown() -> None:
    image = due(built(), news=Unknown(unknown="the mirror does not answer"))

    assert (image.steps, image.unknown) == ((), "the mirror does not answer")


def test_untested_version_is_due_for_test_and_publication() -> None:
    image = due(built(state="built"), publish=["hetzner"])

    assert reasons(image) == ["not-tested"]
    assert (image.steps, image.version) == (("test", "publish"), built().version)


@pytest.mark.parametrize("state", ["tested", "candidate", "current"])
def test_only_missing_publication_is_due(state: str) -> None:
    uploaded = {"hetzner": UPLOADED, "aws": UPLOADED.altered(verified=False)}

    image = due(built(state=state, publications=uploaded), publish=["hetzner", "aws"])

    assert tells(image.causes[0].because, "20261121T060000Z", "aws")
    assert (image.steps, image.version) == (("publish",), built().version)


# failures


def test_failed_build_is_due_again_after_an_hour() -> None:
    good = built(state="current", recipe_digest="r0")

    image = due(good, failed(0.5))

    assert (image.is_due, image.serving) == (False, good.version)
    assert tells(image.waits, "failed", "once", "no space")
    assert image.waits_until == NOW + timedelta(minutes=30)
    assert due(good, failed(1)).is_due


@pytest.mark.parametrize(
    ("failures", "hours"), [(1, 1), (2, 2), (3, 4), (5, 16), (6, 24), (40, 24)]
)
def test_delay_doubles_per_failure_up_to_a_day(failures: int, hours: int) -> None:
    tries = [
        failed(hours + failures - number, version=f"20261121T0700{number:02}Z")
        for number in range(1, failures + 1)
    ]

    assert due(built(recipe_digest="r0"), *tries).is_due
    almost = tries[-1].altered(since=ago(hours=hours, seconds=-1))
    assert not due(built(recipe_digest="r0"), *tries[:-1], almost).is_due


def test_failure_delays_only_builds_of_its_recipe_until_a_success() -> None:
    good = built(recipe_digest="r0", version="20261121T075900Z")

    assert not due(failed(0.1)).is_due
    assert due(failed(0.1, recipe_digest="r0")).is_due
    assert due(failed(0.1, role_digest="a0")).is_due
    assert due(failed(0.5), good).is_due


def test_running_build_is_not_due_again_unless_dead() -> None:
    building = failed(5, state="building")

    image = due(building)

    assert not image.is_due
    assert tells(image.waits, building.version, "built")
    assert due(failed(6, state="building")).is_due


def test_existing_image_is_never_due() -> None:
    fleet = a_fleet(images={"trixie": {"existing": {"hetzner": "1"}}})

    assert find_due(fleet, (), digests={}, news={}, now=NOW).images == ()
