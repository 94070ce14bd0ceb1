"""What is pruned is deleted everywhere, or stays remembered until it is."""

from collections.abc import Iterator

import pytest

from fleet.errors import FileUnreadable, FleetError, PublicationRefused, SourceUnreachable
from fleet.images.prune import (
    PrunedVersion,
    Pruner,
    UntrackedUpload,
    list_uploads,
)
from fleet.images.publish import Pipeline
from fleet.model.images import Publication, State, Upload, Version
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.stores import new_store
from tests.builders.versioning import a_version
from tests.fakes.publisher import Account, FakePublisher

V1 = a_version().version
PLACES = {"aws": "aws", "hetzner": "hetzner"}


def published(state: State, *places: str) -> Version:
    """Return a version that is remembered to be at these places; none named: at both."""
    at = {each: Publication(id=each, at=NOW, verified=True) for each in places or PLACES}
    return a_version(state=state, publications=at)


class Sticky(FakePublisher):
    """A publisher that cannot delete."""

    def owner(self, upload_id: str) -> str | None:
        """Fail."""
        raise SourceUnreachable(f"{upload_id}: the provider does not answer")


class Trial:
    """A store that remembers one version, published at hetzner and aws."""

    def __init__(self, version: Version) -> None:
        self.store = new_store()
        self.store.save_image_version(version, was=None)
        self.account = Account()
        for place in ("aws", "hetzner"):
            self.account.uploads["debian-ci", "trixie", place] = Upload(
                id=place, image="trixie", version=V1, sha256="0", whole=True, since=NOW
            )
        self.publishers: dict[str, Pipeline | FleetError] = {
            "aws": Pipeline(FakePublisher(self.account, "debian-ci")),
            "hetzner": Pipeline(FakePublisher(self.account, "debian-ci")),
        }
        self.folders = [V1]

    def prune(self, **overrides: object) -> PrunedVersion:
        """Prune that version as it was judged, and return what became of it."""
        values = {
            "image": "trixie",
            "version": V1,
            "state": "retired",
            "places": PLACES,
        }
        judged = PrunedVersion.model_validate(values | overrides)
        return Pruner(self.store, self.publisher_of, self._drop).delete(judged)

    def publisher_of(self, place: str) -> Pipeline:
        """Return the publisher of a place, or raise what stands there."""
        found = self.publishers[place]
        if isinstance(found, FleetError):
            raise found
        return found

    def _drop(self, image: str, version: str) -> None:
        if not self.folders:
            raise FileUnreadable(f"{image}/{version}: permission denied")
        self.folders.remove(version)


def test_pruned_version_is_deleted_at_each_place_and_in_store() -> None:
    trial = Trial(published("retired"))

    pruned = trial.prune()

    assert (pruned.kept, trial.account.uploads, trial.folders) == ("", {}, [])
    assert trial.store.image_versions() == ()


def test_kept_version_is_unchanged() -> None:
    trial = Trial(published("retired"))

    trial.prune(kept="machine debian-ci-builders-0001 boots it")

    assert len(trial.account.uploads) == 2
    assert trial.store.image_versions() == (published("retired"),)


def test_pruned_version_stays_in_store_when_a_place_fails() -> None:
    trial = Trial(published("retired"))
    trial.publishers["aws"] = Pipeline(Sticky(trial.account, "debian-ci"))

    pruned = trial.prune()

    assert tells(pruned.kept, "deleted", "aws", "aws", "answer")
    assert [upload.id for upload in trial.account.uploads.values()] == ["aws"]
    assert [each.state for each in trial.store.image_versions()] == ["failed"]
    trial.publishers["aws"] = SourceUnreachable("no token")
    assert tells(trial.prune(state="failed").kept, "deleted", "aws")


def test_version_is_kept_when_its_folder_cannot_be_deleted() -> None:
    trial = Trial(published("retired"))
    trial.folders.clear()

    assert "permission denied" in trial.prune().kept
    assert len(trial.store.image_versions()) == 1


@pytest.mark.parametrize(
    ("state", "judged"),
    [
        ("current", {}),  # it was promoted meanwhile
        ("retired", {"places": {"aws": "aws"}}),  # it was published meanwhile
    ],
)
def test_prune_skips_version_changed_meanwhile(state: State, judged: dict[str, object]) -> None:
    trial = Trial(published(state))

    pruned = trial.prune(**judged)

    assert tells(pruned.kept, "deleted")
    assert len(trial.account.uploads) == 2
    assert trial.store.image_versions() == (published(state),)


def test_killed_prune_is_finished_by_the_next() -> None:
    trial = Trial(published("failed"))
    trial.account.uploads.clear()

    assert trial.prune(state="failed").kept == ""
    assert trial.store.image_versions() == ()


def test_prune_keeps_uploads_of_version_built_elsewhere() -> None:
    trial = Trial(published("failed").altered(elsewhere=True))

    assert trial.prune(state="failed", places={}).kept == ""
    assert len(trial.account.uploads) == 2
    assert trial.store.image_versions() == ()


def test_list_uploads_skips_places_without_images_or_answer() -> None:
    class Marred(FakePublisher):
        def find(self, version: tuple[str, str] | None = None) -> Iterator[Upload]:  # noqa: ARG002 - the port's own argument
            raise PublicationRefused("trixie/1/mark is no mark of fleet; move it away")

    trial = Trial(published("retired"))
    trial.publishers |= {
        "aws": SourceUnreachable("no token"),
        "here": PublicationRefused("it takes no images"),
        "store": Pipeline(Marred(Account(), "debian-ci")),
    }

    listed, unlisted = list_uploads(("aws", "here", "hetzner", "store"), trial.publisher_of)

    assert [upload.version for upload in listed["hetzner"]] == [V1, V1]
    assert list(listed) == ["hetzner"]
    assert unlisted == {
        "aws": "no token",
        "store": "trixie/1/mark is no mark of fleet; move it away",
    }


def a_forgotten(*, kept: str) -> UntrackedUpload:
    return UntrackedUpload(
        place="aws", id="ami-1", image="trixie", version=V1, since=NOW, kept=kept
    )


def a_pruner(publisher: FakePublisher) -> Pruner:
    return Pruner(new_store(), lambda _: Pipeline(publisher), lambda *_: None)


def test_delete_forgotten_deletes_only_named_uploads() -> None:
    account = Account()
    for name in ("ami-1", "ami-2"):
        account.uploads["debian-ci", "trixie", name] = Upload(
            id=name, image="trixie", version=V1, sha256="0", whole=True, since=NOW
        )
    other = a_forgotten(kept="nobody named it").altered(id="ami-2")

    pruner = a_pruner(FakePublisher(account, "debian-ci"))
    gone = [pruner.delete(each) for each in (a_forgotten(kept=""), other)]

    assert [each.kept for each in gone] == ["", "nobody named it"]
    assert [each.id for each in account.uploads.values()] == ["ami-2"]


def test_delete_forgotten_keeps_upload_with_reason_when_it_fails() -> None:
    left = a_pruner(Sticky(Account(), "debian-ci")).delete(a_forgotten(kept=""))

    assert tells(left.kept, "deleted", "aws", "ami-1", "answer")
