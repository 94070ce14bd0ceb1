"""This module says of images which versions there are of each, and what fleet.yaml says of it."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from fleet.facts.values import Value
from fleet.facts.versions import Version
from fleet.schema.model import ExistingImage, Fleet, Pool


class ListedImage(Value):
    """An image that fleet.yaml declares or that versions are remembered of."""

    image: str
    declared: Literal["recipe", "existing", "no"] = Field(
        description="How fleet.yaml has it; `no`: it is not there, or not any more."
    )
    pinned: str | None = Field(
        None, description="The version that fleet.yaml pins; it boots whatever is promoted."
    )
    pools: tuple[str, ...] = Field((), description="Pools whose machines boot it, sorted.")
    versions: tuple[Version, ...] = Field((), description="The newest first.")


class ImageList(Value):
    """Images, by name."""

    fleet: str
    images: tuple[ListedImage, ...]


def list_images(fleet: Fleet, versions: Iterable[Version]) -> ImageList:
    """Return every image of a fleet with its versions."""
    known: dict[str, list[Version]] = {name: [] for name in fleet.images}
    for version in versions:
        known.setdefault(version.image, []).insert(0, version)
    listed = (_listed(fleet, name, tuple(found)) for name, found in sorted(known.items()))
    return ImageList(fleet=fleet.fleet, images=tuple(listed))


def _listed(fleet: Fleet, name: str, versions: tuple[Version, ...]) -> ListedImage:
    image = fleet.images.get(name)
    if image is None:
        return ListedImage(image=name, declared="no", versions=versions)
    return ListedImage(
        image=name,
        declared="existing" if isinstance(image, ExistingImage) else "recipe",
        pinned=image.version,
        pools=tuple(sorted(_pools_of(fleet, name))),
        versions=versions,
    )


def _pools_of(fleet: Fleet, image: str) -> Iterable[str]:
    return (
        name
        for name, pool in fleet.pools.items()
        if isinstance(pool, Pool) and pool.image == image
    )
