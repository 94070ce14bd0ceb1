"""What a store of images takes for its own, and what it leaves alone."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.errors import FileUnreadable, SourceUnreachable
from fleet.images.publish import Pipeline
from fleet.images.stores import Directory, StorePublisher
from tests.builders import NOW
from tests.rigs.publishing import MIB, VERSION, Watcher, a_build, some_disk

HOUR = timedelta(hours=1)


def a_store(root: Path) -> Pipeline:
    return Pipeline(StorePublisher(Directory(root), "debian-ci", now=lambda: NOW))


def test_partial_copy_does_not_delete_complete_folder(tmp_path: Path) -> None:
    root, build = tmp_path / "store", tmp_path / "build" / VERSION
    publisher, manifest = a_store(root), a_build(build)
    with pytest.raises(SourceUnreachable):
        publisher.publish(manifest, str(build), Watcher(breaks_at=0.5))
    shutil.copytree(root / "trixie", root / "old" / "trixie")
    publisher.publish(manifest, str(build), Watcher())

    cleaned = publisher.clean(NOW + HOUR)

    assert cleaned == ()
    assert [each.whole for each in publisher.uploads()] == [True]
    assert (root / "trixie" / VERSION / "disk.raw").exists()


def test_store_has_one_complete_upload_when_two_computers_publish(tmp_path: Path) -> None:
    builds = [tmp_path / name / "trixie" / VERSION for name in ("one", "other")]
    manifests = [a_build(build, disk=some_disk(size=8 * MIB)) for build in builds]

    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(a_store(tmp_path / "store").publish, manifest, str(build), Watcher())
            for manifest, build in zip(manifests, builds, strict=True)
        ]
        published = {each.result().id for each in both}

    (upload,) = a_store(tmp_path / "store").uploads()
    assert (published, upload.whole) == ({upload.id}, True)


def test_delete_fails_when_store_is_not_mounted(tmp_path: Path) -> None:
    root, build = tmp_path / "store", tmp_path / "build" / VERSION
    published = a_store(root).publish(a_build(build), str(build), Watcher())
    root.rename(tmp_path / "unmounted")

    with pytest.raises(FileUnreadable, match=f"{re.escape(str(root))} .*mount"):
        a_store(root).delete(published.id)
