"""What a store of images takes for its own, and what it leaves alone."""

import re
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.errors import FileUnreadable, SourceUnreachable
from fleet.images.stores import Directory, StorePublisher
from tests.builders import NOW
from tests.rigs.publishing import VERSION, Watcher, a_build

HOUR = timedelta(hours=1)


def a_store(root: Path) -> StorePublisher:
    return StorePublisher(Directory(root), "debian-ci", now=lambda: NOW)


def test_a_copy_of_a_partial_folder_does_not_have_the_whole_one_deleted(tmp_path: Path) -> None:
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


def test_what_a_directory_that_is_not_there_held_is_not_taken_for_deleted(tmp_path: Path) -> None:
    root, build = tmp_path / "store", tmp_path / "build" / VERSION
    published = a_store(root).publish(a_build(build), str(build), Watcher())
    root.rename(tmp_path / "unmounted")

    with pytest.raises(FileUnreadable, match=f"{re.escape(str(root))} .*mount"):
        a_store(root).delete(published.id)
