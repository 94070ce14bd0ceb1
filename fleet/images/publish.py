"""Record builds and publications of image versions in the store.

An error at one place does not stop the other places. Each publication is recorded immediately, so
that the next run does not repeat the upload if this run dies.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from fleet.errors import FleetError, PublicationRefused
from fleet.images.folder import read_manifest
from fleet.images.pipeline import Pipeline
from fleet.images.promote import change_version, find_version
from fleet.model.images import (
    LEFT_AFTER,
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
from fleet.ports import Clock
from fleet.state.store import Store

_PUBLISHABLE: tuple[State, ...] = ("built", "tested", "candidate", "current", "previous")
_PASSED: tuple[State, ...] = ("tested", "candidate", "current")


Publishers = Mapping[str, Callable[[], Pipeline]]
"""Provider or store URL to a function that opens its publisher, or raises FleetError."""


def choose_version(store: Store, image: str, version: str | None) -> Version:
    """Return the version to publish, by default the newest version that passed its test."""
    if version is not None:
        chosen = find_version(store.image_versions(), image, version)
        if chosen.state not in _PUBLISHABLE:
            raise PublicationRefused(
                f"image {image} {version} is {chosen.state}; only a version that is "
                f"{', '.join(_PUBLISHABLE)} is published"
            )
        return chosen
    ours = [each for each in store.image_versions() if each.image == image]
    tested = [each for each in ours if each.state in _PASSED]
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
    """Publish a build to each provider or store, record each success, and return all results."""
    manifest = read_manifest(folder)

    def publish(place: str, publisher: Pipeline) -> Published:
        removed = publisher.clean(now - LEFT_AFTER, (manifest.image, manifest.version))
        publication = publisher.publish(manifest, str(folder), partial(tell, place))
        remember_publication(store, manifest, place, publication)
        return Published(place=place, id=publication.id, removed=removed)

    places = _act_at_each(publishers, publish)
    return Publishing(image=manifest.image, version=manifest.version, places=places)


def remember_publication(
    store: Store, manifest: Manifest, place: str, publication: Publication
) -> None:
    """Record that a version is published at a provider or store, and save its manifest."""
    # Save the manifest first: `fleet image due` reads the manifest of each published version.
    store.save_manifest(manifest)
    remembered = partial(_add_publication, place=place, publication=publication)
    change_version(store, manifest.image, manifest.version, remembered)


def clean_places(image: str, publishers: Publishers, now: datetime) -> Publishing:
    """Remove uploads of killed runs at each provider or store. Publish nothing."""

    def clean(place: str, publisher: Pipeline) -> Published:
        return Published(place=place, removed=publisher.clean(now - LEFT_AFTER))

    return Publishing(image=image, places=_act_at_each(publishers, clean))


def _act_at_each(
    publishers: Publishers, act: Callable[[str, Pipeline], Published]
) -> tuple[Published, ...]:
    """Call `act` for each provider or store. Record an error and continue with the next."""
    done = []
    for place, open_publisher in publishers.items():
        try:
            done.append(act(place, open_publisher()))
        except FleetError as error:
            done.append(Published(place=place, error=str(error)))
    return tuple(done)


def _add_publication(version: Version, *, place: str, publication: Publication) -> Version:
    """Return the version with a publication added. A known id keeps its earlier date."""
    known = version.publications.get(place)
    if known is not None and known.id == publication.id:
        # A snapshot of a build at the provider is recorded, unverified, before it is published.
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
    """Run a build and return its result. Record the start and the end in the store."""
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
    """Record unfinished builds of killed processes as failed."""
    for version in store.image_versions():
        dead = version.image == image and version.state == "building"
        if dead and is_alive(version.built_by) is False:
            why = "its process was killed"
            failed = version.altered(state="failed", since=clock.now(), why=why)
            store.save_image_version(failed, was=version)
