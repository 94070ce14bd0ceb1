"""The contract of the port ImageBuilder, over the fake and a machine of the simulated Hetzner.

The way that bakes disks is held to it by tests/images/test_bake.py, where that can be done.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.errors import BuildFailed, Locked
from fleet.image_ports import ImageBuilder
from fleet.images import folder
from fleet.images.disk import locked
from fleet.images.role import RoleFailed
from fleet.manifest import BuildOrder, BuildStep
from fleet.schema.pools import ImageRecipe
from fleet.service.hetzner import SimulatedHetzner
from tests.builders import NOW
from tests.fakes_builder import FakeImageBuilder
from tests.machine_rig import MachineRig

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

    builder: ImageBuilder
    images: Path
    fail: Callable[[str], None]


def fake_way(_: ExitStack, images: Path) -> Way:
    builder = FakeImageBuilder(images)

    def fail(why: str) -> None:
        builder.fails = why

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


@pytest.fixture(params=[fake_way, instance_way])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path / "images")


def heard(way: Way) -> list[BuildStep]:
    steps: list[BuildStep] = []
    way.builder.build(ORDER, steps.append)
    return steps


def test_a_version_is_whole_in_its_folder(way: Way) -> None:
    manifest = way.builder.build(ORDER, lambda _: None)

    place, found = folder.find_build(way.images, "trixie", VERSION)
    folder.verify(place, found)
    assert found == manifest
    assert (manifest.image, manifest.version, manifest.built_by) == ("trixie", VERSION, "ana")
    assert sorted(manifest.files) == sorted(
        {each.name for each in place.iterdir()} - {folder.MANIFEST}
    )


def test_what_is_being_done_is_told(way: Way) -> None:
    steps = heard(way)

    assert steps
    assert all(each.phase and each.seconds >= 0 for each in steps)


def test_a_build_that_fails_leaves_no_folder(way: Way) -> None:
    way.fail("no such package")

    with pytest.raises(BuildFailed, match="no such package"):
        heard(way)

    assert [each for each in (way.images / "trixie").iterdir() if each.is_dir()] == []


def test_an_image_that_is_being_built_already_is_not_built_twice(way: Way) -> None:
    with locked(way.images / "trixie"), pytest.raises(Locked, match="is being built already"):
        heard(way)

    assert folder.list_builds(way.images, "trixie") == ()


def test_after_a_failure_the_next_build_works(way: Way) -> None:
    way.fail("no such package")
    with pytest.raises(BuildFailed):
        heard(way)

    again = ORDER.model_copy(update={"version": "20261121T204000Z"})
    way.fail("")

    assert way.builder.build(again, lambda _: None).version == again.version
