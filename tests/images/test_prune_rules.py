"""Which versions nothing refers to any more; what could not be read refers to all it might."""

from datetime import date, timedelta

import pytest

from fleet.images.prune import PRUNED, find_forgotten, find_unreferenced, places_of
from fleet.model.facts import Unknown, World
from fleet.model.images import Publication, Upload, Version, recipe_digest
from fleet.model.plan import Plan
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_create,
    a_fleet,
    a_listing,
    a_machine,
    a_plan,
    a_stack,
    a_world,
    some_inputs,
)
from tests.builders.sentences import tells
from tests.builders.versioning import a_version

V1, V2, V3, V4 = (f"2026112{number}T060000Z" for number in (1, 2, 3, 4))
UNKNOWN = Unknown(unknown="it does not answer")


def version(name: str, state: str = "retired", **overrides: object) -> Version:
    """Return a version that is published at hetzner under its own name."""
    uploaded = Publication(id=f"id-{name}", at=NOW, verified=True)
    values = {"version": name, "state": state, "publications": {"hetzner": uploaded}}
    return a_version(**(values | overrides))


OLD = (version(V1), version(V2), version(V3), version(V4, "current"))


def quiet(**overrides: object) -> World:
    """Return a world in which nothing boots any version."""
    return a_world(**({"providers": {"hetzner": a_listing()}} | overrides))


def kept(
    world: World,
    *versions: Version,
    fleet: Fleet | None = None,
    plans: dict[str, Plan] | None = None,
) -> dict[str, str]:
    found = find_unreferenced(fleet or a_fleet(), world, versions or OLD, plans or {})
    return {each.version: each.kept for each in found if each.kept}


def test_prune_keeps_newest_versions_by_rebuild_keep() -> None:
    reasons = kept(quiet())
    assert sorted(reasons) == [V3, V4]
    assert tells(reasons[V3], "rebuild.keep")
    assert tells(reasons[V4], "current")

    image = {"suite": "trixie", "architecture": "amd64", "rebuild": {"every": "7d", "keep": 3}}
    assert set(kept(quiet(), fleet=a_fleet(images={"trixie": image}))) == {V2, V3, V4}


@pytest.mark.parametrize("state", ["candidate", "current", "previous"])
def test_prune_keeps_serving_version_of_any_age(state: str) -> None:
    assert tells(kept(quiet(), version(V1, state), *OLD[1:])[V1], state)


def test_prune_keeps_pinned_version() -> None:
    image = {"suite": "trixie", "architecture": "amd64", "version": V1}

    reasons = kept(quiet(), fleet=a_fleet(images={"trixie": image}))

    assert tells(reasons[V1], "images.trixie.version")


def test_prune_keeps_version_named_by_existing_id() -> None:
    images = {
        "trixie": {"suite": "trixie", "architecture": "amd64"},
        "frozen": {"existing": {"hetzner": f"id-{V1}", "aws": f"id-{V2}"}},
    }

    reasons = kept(quiet(), fleet=a_fleet(images=images))

    assert tells(reasons[V1], "fleet.yaml", "images.frozen.existing.hetzner")
    assert V2 not in reasons


NAME = "debian-ci-builders-0007"


@pytest.mark.parametrize(
    ("world", "by"),
    [
        ({"providers": {"hetzner": a_listing(a_machine(name=NAME, image=f"id-{V1}"))}}, "machine"),
        (
            {"stacks": {"builders": a_stack(workers=(some_inputs(name=NAME, image=f"id-{V1}"),))}},
            "stack",
        ),
    ],
)
def test_prune_keeps_version_of_a_machine(world: dict[str, object], by: str) -> None:
    assert tells(kept(quiet(**world))[V1], by, NAME)


def test_prune_keeps_version_of_planned_machine() -> None:
    create = a_create(worker=NAME, inputs=some_inputs(name=NAME, image=f"id-{V1}"))

    reasons = kept(quiet(), plans={"plan.json": a_plan(actions=(create,))})

    assert tells(reasons[V1], "plan.json", NAME)


def test_prune_keeps_version_while_approval_is_unexpired() -> None:
    def approved(expires: date) -> dict[str, str]:
        approval = {
            "guard": "delete",
            "pool": "builders",
            "count": 3,
            "reason": "a new image",
            "expires": expires.isoformat(),
        }
        return kept(quiet(), fleet=a_fleet(approvals=[approval]))

    assert tells(approved(date(2026, 12, 1))[V1], "approval", "builders")
    assert V1 not in approved(date(2026, 11, 1))


@pytest.mark.parametrize(
    ("world", "said"),
    [
        ({"providers": {"hetzner": UNKNOWN}}, "provider hetzner"),
        ({"providers": {}}, "provider hetzner"),
        ({"stacks": UNKNOWN}, "stacks"),
        ({"stacks": {"builders": UNKNOWN}}, "pool builders"),
        ({"stacks": {"gone": UNKNOWN}}, "pool gone"),
    ],
)
def test_prune_deletes_nothing_when_a_listing_failed(world: dict[str, object], said: str) -> None:
    reasons = kept(quiet(**world))

    assert set(reasons) == {V1, V2, V3, V4}
    assert tells(reasons[V1], said, "unknown")


def test_prune_keeps_building_and_untested_versions() -> None:
    reasons = kept(quiet(), version(V1, "building"), version(V2, "built"), *OLD[2:])

    assert tells(reasons[V1], "built")
    assert tells(reasons[V2], "test")


def test_version_outside_fleet_yaml_is_pruned_only_from_a_store() -> None:
    def at(place: str) -> dict[str, str]:
        publications = {place: Publication(id="id-1", at=NOW, verified=True)}
        return kept(quiet(), version(V1, publications=publications), *OLD[1:])

    assert tells(at("gone")[V1], "provider gone", "fleet.yaml")
    assert V1 not in at("file:///srv/images")


def failed(name: str, **overrides: object) -> Version:
    """Return a version of today's recipe whose build failed an hour ago."""
    today = recipe_digest(a_fleet().baked["trixie"])
    return version(name, "failed", **({"recipe_digest": today} | overrides))


def test_failed_versions_are_kept_until_a_successful_build() -> None:
    reasons = kept(quiet(), failed(V1), version(V2, "tested"), failed(V3))

    assert V1 not in reasons
    assert "fleet image due" in reasons[V3]


def test_failed_version_is_deleted_when_no_delay_depends_on_it() -> None:
    old = NOW - timedelta(days=2)

    assert kept(quiet(), failed(V3, since=old), failed(V4, recipe_digest="r0", since=old)) == {}
    assert set(kept(quiet(), failed(V2, since=old), failed(V3))) == {V2, V3}
    assert kept(quiet(), failed(V3, recipe_digest="r0")) == {}
    assert kept(quiet(), failed(V4, image="buster")) == {}
    assert V4 not in kept(quiet(), *OLD[:3], version(V4, "failed", why=PRUNED))


def test_prune_keeps_only_booted_versions_of_removed_image() -> None:
    machine = a_machine(image=f"id-{V2}")
    world = quiet(providers={"hetzner": a_listing(machine)})
    versions = [each.altered(image="buster") for each in OLD]

    reasons = kept(world, *versions)
    assert list(reasons) == [V2]
    assert tells(reasons[V2], "debian-ci-builders-0001")


def test_prune_deletes_no_upload_of_version_built_elsewhere() -> None:
    (gone, _) = find_unreferenced(
        a_fleet(), quiet(), [version(V1, "failed", elsewhere=True), version(V2)], {}
    )

    assert (gone.kept, gone.places) == ("", {})


def upload(name: str, *, whole: bool = True) -> Upload:
    return Upload(id=name, image="trixie", version=V1, sha256="0", whole=whole, since=NOW)


def test_forgotten_upload_is_complete_unnamed_and_listed_once() -> None:
    account = [upload(f"id-{V1}"), upload("stray"), upload("part", whole=False), upload("named")]
    frozen = {"existing": {"hetzner": "named"}}
    fleet = a_fleet(images={"trixie": {"suite": "trixie", "architecture": "amd64"}, "f": frozen})

    (found,) = find_forgotten(fleet, [version(V1)], {"hetzner": account, "helsinki": account})

    assert (found.place, found.id, found.image, found.version) == (
        *("helsinki", "stray", "trixie", V1),
    )


def test_prune_also_reads_former_stores_of_an_image() -> None:
    place = "file:///srv/images"
    uploaded = Publication(id="there", at=NOW, verified=True)

    assert set(places_of(a_fleet(), [version(V1, publications={place: uploaded})])) == {
        place,
        *a_fleet().providers,
    }
