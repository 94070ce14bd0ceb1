"""A version is changed as it is, and not as it was when somebody looked."""

from collections.abc import Callable

import pytest

from fleet.errors import FleetError, VersionMoved
from fleet.images.promote import change_version
from fleet.model.images import Publication, Version
from fleet.state.store import Store
from tests.builders import NOW
from tests.builders.stores import new_store
from tests.builders.versioning import a_version

NAMES = ("trixie", a_version().version)


def a_store(*versions: Version) -> Store:
    store = new_store()
    for version in versions:
        store.save_image_version(version, was=None)
    return store


def publish(place: str) -> Callable[[Version], Version]:
    uploaded = Publication(id=f"{place}-1", at=NOW, verified=True)
    return lambda version: version.altered(publications=version.publications | {place: uploaded})


def test_concurrent_publications_are_both_stored() -> None:
    store = a_store(a_version())
    others = [publish("aws")]

    def publish_while_another_does(version: Version) -> Version:
        while others:
            change_version(store, *NAMES, others.pop())
        return publish("hetzner")(version)

    changed = change_version(store, *NAMES, publish_while_another_does)

    assert set(changed.publications) == {"aws", "hetzner"}
    assert store.image_versions() == (changed,)


def test_constantly_changing_version_is_an_error() -> None:
    store = a_store(a_version())
    places = iter(map(str, range(100)))

    def be_late(version: Version) -> Version:
        change = publish(next(places))
        (now,) = store.image_versions()
        store.save_image_version(change(now), was=now)
        return version

    with pytest.raises(VersionMoved):
        change_version(store, *NAMES, be_late)


def test_unknown_version_error_lists_known_versions() -> None:
    with pytest.raises(FleetError, match=r"version 1.*20261121T060000Z"):
        change_version(a_store(a_version()), "trixie", "1", publish("aws"))
