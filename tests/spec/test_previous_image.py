"""What is said of a pool that fell back to the version before: it is judged by that one."""

from fleet.facts import ImageVersion, World
from fleet.image_choice import images_by_pool
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, ago, an_attempt

GUARDS = {"boot_failures": {"stop_after": 2, "of_last": 3, "fall_back": "previous-image"}}


def versions(*provided: tuple[str, ...]) -> tuple[ImageVersion, ...]:
    """Return a version for each set of tags, the first the oldest."""
    return tuple(
        ImageVersion(
            image="trixie", version=str(number), ids={"desk": f"trixie-{number}"}, provides=tags
        )
        for number, tags in enumerate(provided, start=1)
    )


def a_fleet_that_falls_back() -> Fleet:
    return a_sim_fleet(
        guards=GUARDS,
        pools={"builders": a_pool(provider="desk")},
    )


def dead(*images: ImageVersion, **overrides: object) -> World:
    """Return a world in which the newest version did not come up in two boots."""
    newest = images[-1].ids["desk"]
    failed = (an_attempt(result="failed", at=ago(minutes=m), image=newest) for m in (40, 20))
    world = a_sim_world().model_copy(update={"images": images, "attempts": tuple(failed)})
    return world.model_copy(update=overrides)


def test_a_pool_that_fell_back_rests_on_the_version_it_boots() -> None:
    images = versions((), ("big",))

    assert images_by_pool(a_fleet_that_falls_back(), dead(*images)) == {"builders": images[:1]}


def test_what_a_dead_image_reports_contradicts_nothing_any_more() -> None:
    fleet, images = a_fleet_that_falls_back(), versions((), ("worker:build-arch:s390x",))

    alive = reconcile(fleet, dead(*images, attempts=()))
    fallen = reconcile(fleet, dead(*images))

    assert [warning.rule for warning in alive.warnings] == ["contradicting-sources"]
    assert fallen.warnings == ()


def test_what_no_pool_offers_is_told_by_the_image_that_is_booted() -> None:
    images = versions((), ("big",))
    queues = a_sim_world(requests=(a_request(required=("big",)),)).queues

    (unserved,) = reconcile(a_fleet_that_falls_back(), dead(*images, queues=queues)).unserved

    assert unserved.because == ("no pool fits; nearest is builders, which does not provide big")
