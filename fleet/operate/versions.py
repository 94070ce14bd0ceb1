"""This module changes what is remembered of an image's version, whoever else does so meanwhile."""

from collections.abc import Callable

from fleet.errors import FleetError, VersionMoved
from fleet.facts.versions import Version
from fleet.ports.store import Store

_TRIES = 10


def find_version(store: Store, image: str, version: str) -> Version:
    """Return what is remembered of a version; raises FleetError with those that are."""
    known = [each for each in store.image_versions() if each.image == image]
    for each in known:
        if each.version == version:
            return each
    names = ", ".join(each.version for each in known) or "none"
    raise FleetError(f"image {image} has no version {version}; it has: {names}")


def change_version(
    store: Store, image: str, version: str, change: Callable[[Version], Version]
) -> Version:
    """Change a version as it is now, and return what it became.

    `change` is asked again where somebody else changed that version meanwhile; what it raises
    ends it.
    """
    for _ in range(_TRIES):
        was = find_version(store, image, version)
        changed = change(was)
        try:
            store.save_image_version(changed, was=was)
        except VersionMoved:
            continue
        return changed
    raise VersionMoved(f"image {image} {version} is being changed by others all the time")
