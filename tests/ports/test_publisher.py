"""The contract of the port Publisher, over the fake, stores and providers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.errors import FleetError, PublicationRefused, SourceUnreachable
from fleet.model.images import Transfer
from tests.builders import NOW
from tests.rigs.publishing import MIB, PLACES, VERSION, Place, Watcher, a_build, sha256, some_disk

HOUR = timedelta(hours=1)
BIG = some_disk(size=6 * MIB + 512)
"""More than one part of S3."""


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield request.param(request, stack, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images" / "trixie" / VERSION


def test_upload_is_never_complete_when_the_copy_is_damaged(place: Place, folder: Path) -> None:
    class Spoiling(Watcher):
        def __call__(self, transfer: Transfer) -> None:
            is_sent = transfer.phase == "upload" and transfer.done == transfer.total
            if is_sent or (transfer.phase == "read back" and not self.heard):
                place.spoil()
            if transfer.phase == "read back":
                self.heard.append(transfer)

    publisher, manifest = place.open("debian-ci"), a_build(folder, disk=BIG)

    with suppress(FleetError):
        publisher.publish(manifest, str(folder), Spoiling())

    assert not any(each.whole for each in publisher.uploads()) or (
        place.holds(publisher.publish(manifest, str(folder), Watcher()))[: len(BIG)] == BIG
    )


def test_uploads_of_another_fleet_are_not_listed(place: Place, folder: Path) -> None:
    theirs = place.open("debian-ci-0002")
    published = theirs.publish(a_build(folder, image="sid"), str(folder), Watcher())
    ours = place.open("debian-ci")

    assert ours.uploads() == ()
    with pytest.raises(PublicationRefused):
        ours.delete(published.id)
    assert [each.id for each in theirs.uploads()] == [published.id]


def test_clean_removes_older_partial_uploads(place: Place, folder: Path) -> None:
    publisher, later = place.open("debian-ci"), place.open("debian-ci", later=HOUR)
    publisher.publish(a_build(folder), str(folder), Watcher())
    for number, each in enumerate((publisher, later)):
        manifest = a_build(folder, disk=BIG, version=f"2026112{number}T000000Z")
        with pytest.raises(SourceUnreachable):
            each.publish(manifest, str(folder), Watcher(breaks_at=0.7))

    cleaned = publisher.clean(NOW + HOUR)

    assert len(cleaned) == int(place.keeps_partial)
    assert publisher.clean(NOW + HOUR) == ()
    left = [(each.version, each.whole) for each in publisher.uploads()]
    unfinished = [("20261121T000000Z", False)] * place.keeps_partial
    assert left == [*unfinished, (VERSION, True)]


def test_remove_of_upload_is_idempotent(place: Place, folder: Path) -> None:
    publisher = place.open("debian-ci")
    kept = publisher.publish(a_build(folder, version="20261120T000000Z"), str(folder), Watcher())
    published = publisher.publish(a_build(folder), str(folder), Watcher())

    publisher.delete(published.id)
    publisher.delete(published.id)

    assert [each.id for each in publisher.uploads()] == [kept.id]


def test_concurrent_publishes_create_one_upload(place: Place, folder: Path) -> None:
    manifest = a_build(folder)

    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(place.open("debian-ci").publish, manifest, str(folder), Watcher())
            for _ in range(2)
        ]
        published = {each.result().id for each in both}

    (upload,) = place.open("debian-ci").uploads()
    assert published == {upload.id}
    assert upload.whole


def test_version_is_published_once_and_listed_as_complete(place: Place, folder: Path) -> None:
    publisher, manifest = place.open("debian-ci"), a_build(folder)
    assert publisher.uploads() == ()
    first, again = Watcher(), Watcher()

    published = publisher.publish(manifest, str(folder), first)
    second = publisher.publish(manifest, str(folder), again)

    (upload,) = publisher.uploads()
    assert (upload.image, upload.version, upload.id) == ("trixie", VERSION, published.id)
    assert (upload.whole, published.verified, second.id) == (True, True, published.id)
    assert len(upload.sha256) >= 32
    assert sha256(some_disk()).startswith(upload.sha256)
    assert place.holds(published)[: len(some_disk())] == some_disk()
    up, back = first.last("upload"), first.last("read back")
    assert up.done == up.total >= len(some_disk())
    assert back.done == back.total >= len(some_disk())
    assert [each for each in again.heard if each.phase == "upload"] == []

    other = a_build(folder, disk=some_disk(seed=b"other"))
    with pytest.raises(PublicationRefused, match="another disk"):
        publisher.publish(other, str(folder), Watcher())
    assert len(publisher.uploads()) == 1


def test_interrupted_publish_is_resumed_unless_cleaned(place: Place, folder: Path) -> None:
    publisher, manifest = place.open("debian-ci"), a_build(folder, disk=BIG)
    with pytest.raises(SourceUnreachable):
        publisher.publish(manifest, str(folder), Watcher(breaks_at=0.7))

    cleaned = publisher.clean(NOW + HOUR, ("trixie", VERSION))
    left = publisher.uploads()
    published = publisher.publish(manifest, str(folder), Watcher())

    assert (cleaned, [each.whole for each in left]) == ((), [False] * place.keeps_partial)
    assert [(each.id, each.whole) for each in publisher.uploads()] == [(published.id, True)]
    assert place.holds(published)[: len(BIG)] == BIG
