"""Builds in folders: whole or not there at all, and checked against their manifests."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.errors import FileUnreadable
from fleet.images.folder import (
    drafting,
    find_build,
    finish_build,
    list_versions,
    read_manifest,
    verify,
    version_at,
    write_manifest,
)
from fleet.images.records import BuildOrder
from tests.builders import NOW
from tests.builders.image_trees import a_recipe
from tests.builders.versioning import a_manifest, open_build

IMAGE = "trixie-amd64"
VERSION = "20261121T203000Z"


def a_build(images: Path, version: str = VERSION) -> Path:
    partial = open_build(images, IMAGE, version)
    (partial / "disk.qcow2").write_bytes(b"disk" * 100)
    (partial / "build.log").write_text("built\n")
    return finish_build(partial, a_manifest(image=IMAGE, version=version))[0]


def test_version_is_named_by_start_of_its_build_and_unique() -> None:
    moment = datetime(2026, 11, 21, 20, 30, 59, 5, tzinfo=UTC)

    assert version_at(moment) == "20261121T203059Z"
    assert version_at(moment, taken={"20261121T203059Z"}) == "20261121T203100Z"


def test_manifest_has_checksum_of_every_file(tmp_path: Path) -> None:
    assert list_versions(tmp_path, IMAGE) == ()
    folder = a_build(tmp_path)
    partial = open_build(tmp_path, IMAGE, "20261121T213000Z")
    (partial / "disk.qcow2").write_bytes(b"half")

    manifest = read_manifest(folder)
    assert folder == tmp_path / IMAGE / VERSION
    sizes = {name: file.size for name, file in manifest.files.items()}
    assert sizes == {"build.log": 6, "disk.qcow2": 400}
    verify(folder, manifest)
    assert list_versions(tmp_path, IMAGE) == (VERSION,)
    assert find_build(tmp_path, IMAGE, VERSION) == (folder, manifest)


@pytest.mark.parametrize("version", [VERSION, "20261121T190000Z"])
def test_next_build_removes_partial_builds(tmp_path: Path, version: str) -> None:
    (open_build(tmp_path, IMAGE, version) / "old").touch()

    order = BuildOrder(
        image=IMAGE, version=VERSION, recipe=a_recipe(), built_at=NOW, built_by="ana"
    )

    with drafting(tmp_path, order, lambda _: None) as draft:
        assert list((tmp_path / IMAGE).glob(".*.partial")) == [draft.folder]
        assert list(draft.folder.iterdir()) == []
    assert list((tmp_path / IMAGE).glob(".*.partial")) == []


def test_verify_refuses_a_changed_missing_or_unknown_file(tmp_path: Path) -> None:
    folder = a_build(tmp_path)
    manifest = read_manifest(folder)

    with pytest.raises(FileUnreadable, match=r"disk\.raw.*build\.log.*disk\.q"):
        verify(folder, manifest, ["disk.raw"])
    (folder / "disk.qcow2").write_bytes(b"dusk" * 100)
    with pytest.raises(FileUnreadable, match=r"disk\.qcow2"):
        verify(folder, manifest)
    (folder / "disk.qcow2").unlink()
    with pytest.raises(FileUnreadable, match=r"disk\.qcow2"):
        verify(folder, manifest, ["disk.qcow2"])


def test_builds_are_listed_oldest_first_with_faults(tmp_path: Path) -> None:
    later = "20261122T203000Z"
    a_build(tmp_path, later)
    folder = a_build(tmp_path)
    (folder / "manifest.json").write_text('{"image": 5}')

    assert list_versions(tmp_path, IMAGE) == (VERSION, later)
    with pytest.raises(FileUnreadable, match=r"manifest\.json.*image"):
        find_build(tmp_path, IMAGE, VERSION)
    _, manifest = find_build(tmp_path, IMAGE, later)
    expected = a_manifest(image=IMAGE, version=later).altered(files=manifest.files)
    assert manifest == expected


def test_unlistable_builds_are_an_error(tmp_path: Path) -> None:
    (tmp_path / IMAGE).write_text("a file in the folder's place")

    with pytest.raises(FileUnreadable, match="Not a directory"):
        list_versions(tmp_path, IMAGE)


def test_unknown_version_error_lists_versions(tmp_path: Path) -> None:
    a_build(tmp_path)

    with pytest.raises(FileUnreadable, match=rf"{IMAGE} .*20\.\./x.*{VERSION}"):
        find_build(tmp_path, IMAGE, "20../x")


def test_manifest_is_replaced_atomically(tmp_path: Path) -> None:
    folder = a_build(tmp_path)
    tested = read_manifest(folder).altered(commit="1f2e3d")

    write_manifest(folder, tested)

    assert read_manifest(folder) == tested
    assert sorted(path.name for path in folder.iterdir()) == [
        "build.log",
        "disk.qcow2",
        "manifest.json",
    ]
