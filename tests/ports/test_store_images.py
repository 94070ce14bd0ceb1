"""What every Store promises of image versions: what was read is what is changed, or nothing is."""

import pytest

from fleet.errors import VersionMoved
from fleet.model.images import Move, Package, Publication
from fleet.state.store import Store
from tests.builders import NOW
from tests.builders.versioning import a_manifest, a_version
from tests.ports.stores import Opener, opener, postgres_url, store

__all__ = ["opener", "postgres_url", "store"]

UPLOADED = Publication(id="4711", at=NOW, verified=True)


def test_versions_are_returned_by_image_oldest_first(store: Store, opener: Opener) -> None:
    late = a_version(version="20261121T070000Z", publications={"hetzner": UPLOADED})
    other = a_version(image="bookworm", provides=("worker:executor:unshare",), share=20)
    for version in (late, a_version(), other):
        store.save_image_version(version, was=None)

    assert opener("debian").image_versions() == (other, a_version(), late)


def test_version_is_saved_only_over_its_predecessor(store: Store) -> None:
    building, built = a_version(state="building"), a_version(publications={"hetzner": UPLOADED})
    store.save_image_version(building, was=None)
    store.save_image_version(built, was=building)

    for was in (building, None):
        with pytest.raises(VersionMoved):
            store.save_image_version(a_version(publications={"aws": UPLOADED}), was=was)
    assert store.image_versions() == (built,)

    store.forget_image_version("trixie", built.version)
    with pytest.raises(VersionMoved):
        store.save_image_version(a_version(state="current"), was=built)
    assert store.image_versions() == ()


def test_changes_of_several_versions_are_atomic(store: Store) -> None:
    older, newer = a_version(state="current"), a_version(version="20261121T070000Z")
    for version in (older, newer):
        store.save_image_version(version, was=None)
    promoted = Move(newer, newer.altered(state="current"))
    outdated = Move(a_version(state="tested"), a_version(state="previous"))

    with pytest.raises(VersionMoved):
        store.move_image_versions([promoted, outdated])
    assert store.image_versions() == (older, newer)

    store.move_image_versions([promoted, Move(older, a_version(state="previous"))])
    assert [each.state for each in store.image_versions()] == ["previous", "current"]


def test_forget_of_version_is_idempotent_and_keeps_others(store: Store) -> None:
    store.forget_image_version("trixie", a_version().version)
    for version in (a_version(), a_version(image="sid")):
        store.save_image_version(version, was=None)

    for _ in range(2):
        store.forget_image_version("trixie", a_version().version)

    assert store.image_versions() == (a_version(image="sid"),)


def test_manifest_is_stored_and_deleted_with_its_version(store: Store, opener: Opener) -> None:
    worker = Package(
        name="debusine-worker",
        version="0.16.2-1",
        architecture="all",
        source="debusine",
        source_version="0.16.2-1",
        origin="trixie/main at http://deb.example.org/debian",
    )
    store.save_manifest(a_manifest())
    store.save_manifest(a_manifest(packages=(worker,)))

    assert opener("debian").manifest("trixie", a_manifest().version) == a_manifest(
        packages=(worker,)
    )
    store.forget_image_version("trixie", a_manifest().version)
    assert store.manifest("trixie", a_manifest().version) is None
