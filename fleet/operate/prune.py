"""This module deletes versions of images that nothing refers to, wherever they are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fleet.errors import FleetError
from fleet.image_ports import Publisher
from fleet.operate.versions import change_version
from fleet.ports import Store
from fleet.pruning import PRUNED, PrunedVersion
from fleet.versions import Version


@dataclass(frozen=True)
class Shears:
    """What deletes a version: at each place, and its folder on this computer."""

    store: Store
    publisher_of: Callable[[str], Publisher | FleetError]
    drop_build: Callable[[str, str], None]
    """Deletes the folder of an image's version, where there is one; raises FleetError."""


def prune_versions(judged: Sequence[PrunedVersion], shears: Shears) -> tuple[PrunedVersion, ...]:
    """Delete what nothing refers to; return every version, with why it stays after all."""
    return tuple(each if each.kept else _prune(each, shears) for each in judged)


def _prune(judged: PrunedVersion, shears: Shears) -> PrunedVersion:
    """Delete one version; first it is made one that nobody can promote meanwhile."""

    def fail(version: Version) -> Version:
        if version.state != judged.state:
            raise FleetError(f"it is {version.state} since")
        # What was baked elsewhere is judged without its places.
        ids = {place: upload.id for place, upload in version.publications.items()}
        if not version.elsewhere and ids != judged.places:
            raise FleetError("where it is published has changed since")
        return version.model_copy(update={"state": "failed", "why": PRUNED})

    try:
        change_version(shears.store, judged.image, judged.version, fail)
        _delete_everywhere(judged.places, shears.publisher_of)
        shears.drop_build(judged.image, judged.version)
    except FleetError as error:
        return judged.model_copy(update={"kept": f"it could not be deleted: {error}"})
    shears.store.forget_image_version(judged.image, judged.version)
    return judged


def _delete_everywhere(
    places: Mapping[str, str], publisher_of: Callable[[str], Publisher | FleetError]
) -> None:
    """Delete a version wherever it is; raises FleetError with where it is left and why."""
    left = []
    for place, upload in sorted(places.items()):
        publisher = publisher_of(place)
        try:
            if isinstance(publisher, FleetError):
                raise publisher
            publisher.delete(upload)
        except FleetError as error:
            left.append(f"{place}: {error}")
    if left:
        raise FleetError("; ".join(left))
