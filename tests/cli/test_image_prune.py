"""`fleet image prune`: what nothing refers to is deleted, also where it was published."""

import pytest

from fleet.images.publish import Pipeline
from fleet.images.stores import Directory, StorePublisher
from fleet.model.images import Publication, Version
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.versioning import a_version
from tests.rigs.publishing import a_build
from tests.rigs.trial import Trial

V0, V1, V2, V3 = "20261101T060000Z", "20261107T060000Z", "20261114T060000Z", "20261121T060000Z"


def a_published(version: str, state: str) -> Version:
    uploaded = Publication(id=f"trixie-{version}", at=NOW, verified=True)
    return a_version(version=version, state=state, publications={"desk": uploaded})


@pytest.fixture
def baked(trial: Trial) -> Trial:
    """Return a trial fleet with three versions; the folder of the oldest build is there."""
    trial.remember(
        a_published(V1, "retired"), a_published(V2, "previous"), a_published(V3, "current")
    )
    folder = trial.folder / ".fleet/images/trixie" / V1
    folder.mkdir(parents=True)
    (folder / "build.log").write_text("baked\n")
    return trial


@pytest.fixture
def shelf(baked: Trial) -> Directory:
    """Return a place that holds a version whole which nobody remembers."""
    source = baked.folder / "build"
    manifest = a_build(source, version=V0)
    shelf = Directory(baked.folder / ".fleet/sim-desk-images")
    Pipeline(StorePublisher(shelf, "trial")).publish(manifest, str(source), lambda _: None)
    return shelf


def id_at(shelf: Directory) -> str:
    (upload,) = Pipeline(StorePublisher(shelf, "trial")).uploads()
    return upload.id


def test_prune_lists_and_keeps_uploads_without_version(baked: Trial, shelf: Directory) -> None:
    first, second = baked.do("image", "prune"), baked.do("image", "prune")

    told = f"? found trixie {V0} at desk, {id_at(shelf)}: no version in the store; publish it"
    assert (first[0], second[0]) == (0, 0)
    assert told in first[1]
    assert told in second[1]
    assert shelf.keys(f"trixie/{V0}/")


def test_prune_deletes_forgotten_upload_when_named(baked: Trial, shelf: Directory) -> None:
    named = ("--forgotten", id_at(shelf))
    told = f"- delete trixie {V0} at desk, {id_at(shelf)}: no version in the store\n"

    tried = baked.do("image", "prune", *named, "--dry-run")
    kept = shelf.keys(f"trixie/{V0}/")
    done = baked.do("image", "prune", *named)

    assert [(code, told in said) for code, said in (tried, done)] == [(0, True), (0, True)]
    assert kept
    assert not shelf.keys(f"trixie/{V0}/")


def test_prune_refuses_recorded_or_unknown_id(baked: Trial, shelf: Directory) -> None:
    said = baked.told(
        "image", "prune", "--forgotten", id_at(shelf), "--forgotten", f"trixie-{V3}", code=1
    )

    assert tells(said, f"trixie-{V3}", "store")
    assert set(baked.versions()) == {V1, V2, V3}
    assert shelf.keys(f"trixie/{V0}/")
