"""This program leaves what a build and a test of an image leave, but for the disk: `bake IMAGE`.

A real build takes minutes and root. The packages are what the archive of the recipe offers now.
"""

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleet.images.folder import QCOW2, finish_build, manifest_of, version_at
from fleet.images.publish import remember_build
from fleet.images.records import BuildOrder
from fleet.images.role import role_digest
from fleet.images.sources import read_index
from fleet.model.apt_sources import Source
from fleet.model.images import Manifest, Package, Test
from fleet.schema.load import load
from fleet.schema.pools import ImageRecipe
from fleet.state.files import LocalFiles
from fleet.state.store import Store


class Clock:
    """What time it is in the story."""

    def now(self) -> datetime:
        now = float(Path(os.environ["WALK_CLOCK"]).read_text(encoding="utf-8"))
        return datetime.fromtimestamp(now, UTC)


def main(image: str) -> None:
    """Bake and test an image."""
    fleet = load("fleet.yaml", LocalFiles()).fleet
    assert fleet is not None
    recipe = fleet.images[image]
    assert isinstance(recipe, ImageRecipe)
    store, images = Store("sqlite:///.fleet/store.db", fleet.fleet), Path(".fleet/images")
    now = Clock().now()
    taken = {each.version for each in store.image_versions() if each.image == image}
    order = BuildOrder(
        image=image,
        version=version_at(now, taken),
        recipe=recipe,
        role_digest=role_digest(),
        built_at=now,
        built_by="the pipeline",
    )

    def build() -> tuple[Manifest, None]:
        partial = images / image / f".{order.version}.partial"
        partial.mkdir(parents=True)
        (partial / QCOW2).write_bytes(b"disk")
        packages = tuple(packages_of(recipe))
        manifest = manifest_of(order, "disk", packages).altered(
            seconds={"base": 130.2, "role": 96.4}
        )
        test = Test(kind="offline", at=now + timedelta(seconds=230), seconds=3.1)
        return finish_build(partial, manifest.altered(tests=(test,)))[1], None

    remember_build(order, store, Clock(), build)
    sys.stdout.write(f"built {image} {order.version} in 227 s; tested: no problem\n")


def packages_of(recipe: ImageRecipe) -> Iterator[Package]:
    """Yield every package of the archive's suite, as its security suite has it where it does."""
    if recipe.mirror is None:
        return
    found: dict[str, Package] = {}
    suites = (
        (recipe.mirror, recipe.suite),
        (f"{recipe.mirror}-security", f"{recipe.suite}-security"),
    )
    for uri, suite in suites:
        listed = read_index(Source(uri, suite, "main", recipe.architecture))
        for name, version in listed.items():
            found[name] = Package(
                name=name,
                version=version,
                architecture=recipe.architecture,
                source=name,
                source_version=version,
                origin=f"{suite}/main at {uri}",
            )
    yield from (found[name] for name in sorted(found))
