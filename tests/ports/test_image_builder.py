"""The contract of ImageBuilder, over a disk, a machine and a work request.

What bakes the disk is a stand-in here, in namespaces all the same; the real one is in
tests/images/test_bake.py.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.errors import BuildFailed, Locked
from fleet.images import disk, folder
from fleet.images.debusine_build import RequestBuilder
from fleet.images.disk import DiskBuilder
from fleet.images.programs import explain_no_namespaces, held
from fleet.images.records import BuildOrder, BuildStep, ImageBuilder
from fleet.images.role import RoleFailed
from fleet.schema.pools import ImageRecipe
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW
from tests.rigs.debusine_builds import DebusineBuilds
from tests.rigs.loopback import Answer, Loopback
from tests.rigs.machines import MachineRig

VERSION = "20261121T203000Z"
ORDER = BuildOrder(
    image="trixie",
    version=VERSION,
    recipe=ImageRecipe(suite="trixie", architecture="amd64"),
    built_at=NOW,
    built_by="ana",
)


@dataclass
class Way:
    """A way to bake, and how it is made to fail."""

    builder: ImageBuilder[object]
    images: Path
    fail: Callable[[str], None]


BAKES = """
step=$1 raw=$3
case $step in
base) for each; do case $each in *.partial) : >"$each" ;; esac; done ;;
role) echo 'TASK [Install it] ***'; : >"$3" ;;
disk) cat REASON >&2; test ! -s REASON || exit 1; : >"$raw" ;;
esac
"""
RELEASE = b"-----BEGIN PGP SIGNED MESSAGE-----\n\nDate: Sat, 21 Nov 2026 08:11:10 UTC\n"


def disk_way(stack: ExitStack, images: Path) -> Way:
    if lacking := explain_no_namespaces() or disk.explain_no_disk("amd64"):
        pytest.skip(f"the way that bakes disks is NOT TESTED: {lacking}")
    mirror = stack.enter_context(Loopback(lambda _: Answer(200, RELEASE)))
    script, reason = images.parent / "bake.sh", images.parent / "reason"
    script.write_text(BAKES.replace("REASON", str(reason)), encoding="utf-8")
    reason.touch()
    builder = DiskBuilder(
        images, images.parent / "cache", mirror=f"{mirror.url}/debian", script=script
    )

    def fail(why: str) -> None:
        reason.write_text(why, encoding="utf-8")

    return Way(builder, images, fail)


def instance_way(stack: ExitStack, images: Path) -> Way:
    api = stack.enter_context(SimulatedHetzner(now=lambda: NOW))
    rig = MachineRig(images, api)

    def fail(why: str) -> None:
        def role() -> None:
            if why:
                raise RoleFailed(why)

        rig.role = role

    return Way(rig.builder, images, fail)


def request_way(stack: ExitStack, images: Path) -> Way:
    debusine = DebusineBuilds()
    server = stack.enter_context(Loopback(debusine))
    debusine.url = server.url
    builder = RequestBuilder(
        images,
        *(server.url, "debian", "secret"),
        mirror="http://deb.example.org/debian",
        wait=lambda _: None,
    )

    def fail(why: str) -> None:
        debusine.refusal = why

    return Way(builder, images, fail)


@pytest.fixture(params=[disk_way, instance_way, request_way])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path / "images")


def heard(way: Way) -> list[BuildStep]:
    steps: list[BuildStep] = []
    way.builder.build(ORDER, steps.append)
    return steps


def test_version_folder_is_complete(way: Way) -> None:
    manifest, _ = way.builder.build(ORDER, lambda _: None)

    place, found = folder.find_build(way.images, "trixie", VERSION)
    folder.verify(place, found)
    assert found == manifest
    assert (manifest.image, manifest.version, manifest.built_by) == ("trixie", VERSION, "ana")
    assert sorted(manifest.files) == sorted(
        {each.name for each in place.iterdir()} - {folder.MANIFEST}
    )


def test_builder_reports_each_step(way: Way) -> None:
    steps = heard(way)

    assert steps
    assert all(each.phase and each.seconds >= 0 for each in steps)


def test_failed_build_leaves_no_folder(way: Way) -> None:
    way.fail("no such package")

    with pytest.raises(BuildFailed, match="no such package"):
        heard(way)

    assert [each for each in (way.images / "trixie").iterdir() if each.is_dir()] == []


def test_concurrent_build_of_same_image_is_refused(way: Way) -> None:
    with held(way.images / "trixie/.lock"), pytest.raises(Locked, match=f"trixie.* {os.getpid()}"):
        heard(way)

    assert folder.list_versions(way.images, "trixie") == ()


def test_build_succeeds_after_a_failed_one(way: Way) -> None:
    way.fail("no such package")
    with pytest.raises(BuildFailed):
        heard(way)

    again = ORDER.altered(version="20261121T204000Z")
    way.fail("")

    assert way.builder.build(again, lambda _: None)[0].version == again.version
