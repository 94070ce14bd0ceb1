"""A build is remembered before it begins, and how it ended, whatever that is."""

import pytest

from fleet.errors import BuildFailed
from fleet.images.publish import give_up_dead, remember_build
from fleet.images.records import BuildOrder
from fleet.model import images as manifests
from fleet.model.images import Manifest, Rental, Version
from fleet.schema.pools import ImageRecipe
from fleet.state.store import Store
from tests.builders import NOW
from tests.builders.stores import new_store
from tests.builders.versioning import a_manifest, a_version
from tests.fakes.engine import FixedClock

ORDER = BuildOrder(
    image="trixie",
    version="20261121T203000Z",
    recipe=ImageRecipe(suite="trixie", architecture="amd64"),
    built_at=NOW,
    built_by="ci",
    commit="1f2e3d",
)
MANIFEST = a_manifest(version=ORDER.version, built_at=NOW)


@pytest.fixture
def store() -> Store:
    return new_store()


def build(
    store: Store, error: BaseException | None = None, manifest: Manifest = MANIFEST
) -> Version:
    def bake() -> tuple[Manifest, str]:
        (building,) = store.image_versions()
        assert building.state == "building"
        if error:
            raise error
        return manifest, "more"

    assert remember_build(ORDER, store, FixedClock(NOW), bake) == (manifest, "more")
    return store.image_versions()[0]


def test_built_version_has_author_commit_rental_and_test(store: Store) -> None:
    rented = Rental(provider="hetzner", type="cx23", location="fsn1", seconds=560)
    test = manifests.Test(kind="offline", at=NOW, seconds=2)

    version = build(store, manifest=MANIFEST.altered(rental=rented))
    tested = build(new_store(), manifest=MANIFEST.altered(tests=(test,)))

    assert (version.state, version.digest, version.built_by, version.commit) == (
        *("built", "d1", "ci", "1f2e3d"),
    )
    assert version.fact.rentals == (rented,)
    assert (tested.state, tested.since, tested.digest) == ("tested", NOW, "d1")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (BuildFailed("the role failed at task one:\n  no package"), "the role failed at task one"),
        (KeyboardInterrupt(), "it was interrupted"),
    ],
)
def test_failed_build_is_stored_with_reason(store: Store, error: BaseException, why: str) -> None:
    with pytest.raises(type(error)):
        build(store, error)

    (version,) = store.image_versions()
    assert (version.state, version.why) == ("failed", why)


def test_version_is_failed_when_build_process_has_ended(store: Store) -> None:
    dead, alive, far = "20261121T01", "20261121T02", "20261121T03"
    for name in (dead, alive, far):
        store.save_image_version(
            a_version(version=name, state="building", built_by=name), was=None
        )
    store.save_image_version(a_version(version="20261121T04", state="tested"), was=None)

    give_up_dead(
        *(store, "trixie", FixedClock(NOW)),
        {dead: False, alive: True, far: None}.__getitem__,
    )

    states = {version.version: version.state for version in store.image_versions()}
    # The process of a version that is not being built is not looked for.
    assert states == {
        dead: "failed",
        **dict.fromkeys((alive, far), "building"),
        "20261121T04": "tested",
    }
