"""This module deletes versions of images that nothing refers to, wherever they are."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.errors import FleetError, PublicationRefused
from fleet.facts.versions import Upload, Version
from fleet.operate.versions import change_version
from fleet.ports.images import Publisher
from fleet.ports.store import Store
from fleet.promotion.pruning import PRUNED, Forgotten, PrunedVersion


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


def list_uploads(
    places: Iterable[str], publisher_of: Callable[[str], Publisher | FleetError]
) -> tuple[dict[str, tuple[Upload, ...]], dict[str, str]]:
    """Return by place what it holds, and why where it could not be listed."""
    listed: dict[str, tuple[Upload, ...]] = {}
    unlisted: dict[str, str] = {}
    for place in places:
        publisher = publisher_of(place)
        if isinstance(publisher, PublicationRefused):
            continue  # it takes no images
        try:
            if isinstance(publisher, FleetError):
                raise publisher
            listed[place] = publisher.uploads()
        except FleetError as error:
            unlisted[place] = str(error)
    return listed, unlisted


def name_forgotten(found: Iterable[Forgotten], named: Collection[str]) -> tuple[Forgotten, ...]:
    """Have go what a person named by its id; raises FleetError where nothing found has one."""
    judged = tuple(
        each.model_copy(update={"kept": ""}) if each.id in named else each for each in found
    )
    if unknown := sorted(set(named) - {each.id for each in judged}):
        raise FleetError(
            f"no place that could be listed holds {', '.join(unknown)} without a version that "
            "remembers it; `fleet image prune --dry-run` shows what does"
        )
    return judged


def delete_forgotten(
    judged: Iterable[Forgotten], publisher_of: Callable[[str], Publisher | FleetError]
) -> tuple[Forgotten, ...]:
    """Delete what was named; return all, with why it stays after all."""
    return tuple(each if each.kept else _delete(each, publisher_of) for each in judged)


def _delete(judged: Forgotten, publisher_of: Callable[[str], Publisher | FleetError]) -> Forgotten:
    try:
        _delete_everywhere({judged.place: judged.id}, publisher_of)
    except FleetError as error:
        return judged.model_copy(update={"kept": f"it could not be deleted: {error}"})
    return judged


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
