"""What is remembered of a publication, and when it counts as whole."""

from fleet.images.publish import remember_publication
from fleet.model.images import Publication, Rental
from tests.builders import NOW, ago
from tests.builders.stores import new_store
from tests.builders.versioning import a_manifest, a_version

RENTED = Rental(provider="hetzner", type="cx23", location="fsn1", seconds=400)


def remembered(*publications: Publication) -> Publication:
    """Return what is known at last of a version that was published so, one after the other."""
    store = new_store()
    store.save_image_version(a_version(), was=None)
    for each in publications:
        remember_publication(store, a_manifest(), "hetzner", each)
    return store.image_versions()[0].publications["hetzner"]


def test_snapshot_of_instance_build_is_verified_by_publish() -> None:
    baked = Publication(id="77", at=ago(hours=1), verified=False)

    known = remembered(baked, Publication(id="77", at=NOW, verified=True))

    assert (known.verified, known.at) == (True, baked.at)


def test_repeated_publication_keeps_time_and_rental() -> None:
    first = Publication(id="77", at=ago(hours=1), verified=True, rental=RENTED)

    assert remembered(first, Publication(id="77", at=NOW, verified=True)) == first


def test_publication_of_other_id_replaces_the_first() -> None:
    second = Publication(id="78", at=NOW, verified=True)

    assert remembered(Publication(id="77", at=ago(hours=1), verified=True), second) == second
