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


def test_a_snapshot_that_was_baked_there_is_whole_once_it_is_published() -> None:
    baked = Publication(id="77", at=ago(hours=1), verified=False)

    known = remembered(baked, Publication(id="77", at=NOW, verified=True))

    assert (known.verified, known.at) == (True, baked.at)


def test_what_is_published_again_keeps_its_date_and_the_machine_that_it_needed() -> None:
    first = Publication(id="77", at=ago(hours=1), verified=True, rental=RENTED)

    assert remembered(first, Publication(id="77", at=NOW, verified=True)) == first


def test_what_is_another_image_there_takes_its_place() -> None:
    second = Publication(id="78", at=NOW, verified=True)

    assert remembered(Publication(id="77", at=ago(hours=1), verified=True), second) == second
