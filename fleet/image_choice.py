"""This module picks the version of its image that a pool's next machine boots.

That is the newest, but for one that did not come up: `guards.boot_failures` stops it, and with
`fall_back: previous-image` the version before it takes its place.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.census import PoolCensus, take_census
from fleet.facts import ImageVersion, World
from fleet.failures import Memory, recall, stopped_images
from fleet.schema.model import (
    ExistingImage,
    Fleet,
    HooksProvider,
    LocalProvider,
    Pool,
    SimProvider,
)
from fleet.tagrules import newest_version


@dataclass(frozen=True)
class ImageChoice:
    """What a pool's next machine boots, and what it does not boot any more."""

    id: str = ""
    """The provider's own id; empty where nothing is published."""
    images: tuple[ImageVersion, ...] = ()
    """The published versions that it may be: what the pool offers rests on the newest of them."""
    stopped: tuple[str, ...] = ()
    """Ids of newer versions that did not come up."""
    said: str = ""
    """What is wrong with the image, in a sentence; empty where nothing is."""
    closed: str = ""
    """Why no machine is made with it; empty when it may be."""


def choose_image(fleet: Fleet, world: World, memory: Memory, name: str) -> ImageChoice:
    """Return what the next machine of a pool boots."""
    pool = fleet.pools.get(name)
    if not isinstance(pool, Pool):
        return ImageChoice(images=world.images)
    rule = fleet.guards.boot_failures
    stops = stopped_images(rule, memory, name)
    images, stopped, said = world.images, list[str](), list[str]()
    while True:
        newest = newest_version(images, pool.image, pool.provider)
        image = _id_of(fleet, pool, newest)
        stop = stops(image)
        if stop is None:
            break
        what = f"{pool.image} {newest.version}" if newest else pool.image
        said.append(f"image {what} {stop}")
        left = tuple(each for each in images if each != newest)
        if rule is None or rule.fall_back != "previous-image" or newest is None:
            return _closed(image, images, said, "")
        if newest_version(left, pool.image, pool.provider) is None:
            return _closed(image, images, said, "no earlier version is published")
        images, stopped = left, [*stopped, image]
    if stopped and newest:
        said.append(f"machines are made with {pool.image} {newest.version} instead")
    return ImageChoice(image, images, tuple(stopped), "; ".join(said))


def images_by_pool(
    fleet: Fleet, world: World, census: Mapping[str, PoolCensus] | None = None
) -> dict[str, tuple[ImageVersion, ...]]:
    """Return for each pool the published versions that what it offers rests on."""
    memory = recall(fleet, world, census or take_census(fleet, world))
    return {name: choose_image(fleet, world, memory, name).images for name in fleet.pools}


def _closed(
    image: str, images: tuple[ImageVersion, ...], said: list[str], more: str
) -> ImageChoice:
    because = "; ".join([*said, *([more] if more else [])])
    return ImageChoice(image, images, said=because, closed=because)


def _id_of(fleet: Fleet, pool: Pool, newest: ImageVersion | None) -> str:
    """Return the provider's own id of an image; elsewhere than in a cloud it goes by its name."""
    image = fleet.images[pool.image]
    if isinstance(image, ExistingImage):
        return image.existing.get(pool.provider, "")
    if newest is not None:
        return newest.ids[pool.provider]
    provider = fleet.providers[pool.provider]
    by_name = isinstance(provider, SimProvider | LocalProvider | HooksProvider)
    return pool.image if by_name else ""
