"""What the store remembers of a version: its build, and where it is published.

A place that fails stops no other. What is published is remembered at once, so that a run that
dies later need not do it again.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from fleet.errors import FleetError, PublicationRefused
from fleet.images.folder import read_manifest
from fleet.images.promote import change_version, find_version
from fleet.model.images import (
    BuildOrder,
    Manifest,
    Publication,
    Published,
    Publishing,
    State,
    Transfer,
    Version,
    after_tests,
    recipe_digest,
)
from fleet.ports import Clock, Publisher, Store

LEFT_AFTER = timedelta(hours=6)
"""An upload, or a machine for one, that is older is taken for left by a run that died.

No run lives as long: a job of the pipeline for images is ended before.
"""
_PUBLISHED: tuple[State, ...] = ("built", "tested", "candidate", "current", "previous")
_TESTED: tuple[State, ...] = ("tested", "candidate", "current")


Publishers = Mapping[str, Callable[[], Publisher]]
"""Where to publish, to what opens its publisher, or raises a FleetError, in its turn."""


def choose_version(store: Store, image: str, version: str | None) -> Version:
    """Return the version that is meant; None: the newest that passed its test."""
    if version is not None:
        chosen = find_version(store.image_versions(), image, version)
        if chosen.state not in _PUBLISHED:
            raise PublicationRefused(
                f"image {image} {version} is {chosen.state}; only a version that is "
                f"{', '.join(_PUBLISHED)} is published"
            )
        return chosen
    ours = [each for each in store.image_versions() if each.image == image]
    tested = [each for each in ours if each.state in _TESTED]
    if not tested:
        there = ", ".join(f"{each.version} ({each.state})" for each in ours) or "none"
        raise PublicationRefused(
            f"image {image} has no version that passed its test (it has: {there}); "
            f"`fleet image test {image}`, or name the version"
        )
    return max(tested, key=lambda each: each.version)


def publish_version(
    store: Store,
    folder: Path,
    publishers: Publishers,
    now: datetime,
    tell: Callable[[str, Transfer], None],
) -> Publishing:
    """Publish a build to each place, remember what was, and return what became of each."""
    manifest = read_manifest(folder)

    def publish(place: str, publisher: Publisher) -> Published:
        removed = publisher.clean(now - LEFT_AFTER, (manifest.image, manifest.version))
        publication = publisher.publish(manifest, str(folder), partial(tell, place))
        remember_publication(store, manifest, place, publication)
        return Published(place=place, id=publication.id, removed=removed)

    places = _at_each(publishers, publish)
    return Publishing(image=manifest.image, version=manifest.version, places=places)


def remember_publication(
    store: Store, manifest: Manifest, place: str, publication: Publication
) -> None:
    """Remember that a version is at a place, beside where else it is, and what it holds."""
    # First: once the version is published, its manifest is compared with newer packages.
    store.save_manifest(manifest)
    remembered = partial(_with, place=place, publication=publication)
    change_version(store, manifest.image, manifest.version, remembered)


def clean_places(image: str, publishers: Publishers, now: datetime) -> Publishing:
    """Remove what runs that died left at each place; publish nothing."""

    def clean(place: str, publisher: Publisher) -> Published:
        return Published(place=place, removed=publisher.clean(now - LEFT_AFTER))

    return Publishing(image=image, places=_at_each(publishers, clean))


def _at_each(
    publishers: Publishers, act: Callable[[str, Publisher], Published]
) -> tuple[Published, ...]:
    """Act at each place, whatever fails at another."""
    done = []
    for place, open_publisher in publishers.items():
        try:
            done.append(act(place, open_publisher()))
        except FleetError as error:
            done.append(Published(place=place, error=str(error)))
    return tuple(done)


def _with(version: Version, *, place: str, publication: Publication) -> Version:
    """Return a version that is published there too; an unchanged one keeps its date."""
    known = version.publications.get(place)
    if known is not None and known.id == publication.id:
        # What was baked there is a snapshot before anybody has published it.
        verified = known.verified or publication.verified
        publication = known.altered(verified=verified)
    publications = {**version.publications, place: publication}
    return version.altered(publications=publications)


_T = TypeVar("_T")


def remember_build(
    order: BuildOrder,
    store: Store,
    clock: Clock,
    build: Callable[[], tuple[Manifest, _T]],
) -> tuple[Manifest, _T]:
    """Run a build and return its result; the store has its beginning and its end."""
    building = Version(
        image=order.image,
        version=order.version,
        state="building",
        recipe_digest=recipe_digest(order.recipe),
        role_digest=order.role_digest,
        since=order.built_at,
        built_at=order.built_at,
        built_by=order.built_by,
        commit=order.commit,
    )
    store.save_image_version(building, was=None)
    try:
        manifest, more = build()
    except (FleetError, KeyboardInterrupt) as error:
        why = str(error).partition("\n")[0].rstrip(":") or "it was interrupted"
        failed = building.altered(state="failed", since=clock.now(), why=why)
        store.save_image_version(failed, was=building)
        raise
    now = clock.now()
    built = building.altered(
        state="built",
        since=now,
        digest=manifest.digest,
        built_in=round(sum(manifest.seconds.values())),
        way=manifest.way,
        rental=manifest.rental,
        worker=manifest.worker,
    )
    tested = after_tests(built, manifest.tests, now) if manifest.tests else built
    store.save_image_version(tested, was=building)
    return manifest, more


def give_up_dead(
    store: Store, image: str, clock: Clock, is_alive: Callable[[str], bool | None]
) -> None:
    """Record builds as failed whose process is gone."""
    for version in store.image_versions():
        dead = version.image == image and version.state == "building"
        if dead and is_alive(version.built_by) is False:
            why = "its process was killed"
            failed = version.altered(state="failed", since=clock.now(), why=why)
            store.save_image_version(failed, was=version)
