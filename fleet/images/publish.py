"""Publish versions to providers and stores; record builds and publications in the store.

A place lists the uploads with the mark of this fleet, uploads a disk and removes an upload. It
reads an uploaded disk back before it marks the upload as whole. The next run resumes an upload
that is not whole, or a clean-up removes it. Uploads without the mark are never changed.

An error at one place does not stop the other places. Each publication is recorded immediately, so
that the next run does not repeat the upload if this run dies.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from fleet.clouds.hcloud.cloud import Hcloud
from fleet.clouds.kinds import KINDS, clouds_of
from fleet.errors import FleetError, PublicationRefused
from fleet.images.disk import disk_of, raw_disk
from fleet.images.folder import read_manifest
from fleet.images.programs import held
from fleet.images.promote import change_version, find_version
from fleet.images.records import BuildOrder, ImageBuilder, Published, after_tests
from fleet.images.stores import Bucket, Directory, StorePublisher
from fleet.model.images import (
    LEFT_AFTER,
    ImageDisk,
    Manifest,
    Publication,
    State,
    Tell,
    Transfer,
    Upload,
    Version,
    recipe_digest,
)
from fleet.ports import Clock, Publisher
from fleet.schema.model import Fleet
from fleet.state.store import Store


class Pipeline:
    """Publisher of a fleet's image versions at one provider or store."""

    def __init__(self, place: Publisher) -> None:
        self._at = place

    def uploads(self) -> tuple[Upload, ...]:
        """Return the uploads that are marked as uploads of this fleet."""
        return tuple(sorted(self._at.find(), key=lambda each: (each.image, each.version)))

    def publish(self, manifest: Manifest, folder: str, tell: Tell) -> Publication:
        """Upload the disk of a version and verify it, unless a verified upload exists."""
        with held(Path(folder).parent / f".publish-{self._at.kind}.lock") as holder:
            raw = partial(raw_disk, manifest, Path(folder))
            # A version that was baked at a provider has no local disk.
            content = (
                manifest.digest if manifest.way == "instance" else disk_of(manifest)[1].sha256
            )
            disk = ImageDisk(manifest, folder, content, holder, raw, tell)
            known, rental = [*self._at.find((manifest.image, manifest.version))], None
            for each in known:
                if not each.sha256 or not content.startswith(each.sha256):
                    raise PublicationRefused(
                        f"{each.id} at {self._at.place} has another disk of {manifest.image} "
                        f"{manifest.version}, of sha256 {each.sha256[:12]}…; delete it if unused"
                    )
            found = known[0] if known else None
            if found is None or not found.whole:
                found, rental = self._at.upload(disk, found)
        return Publication(id=found.id, at=found.since, verified=True, rental=rental)

    def delete(self, upload_id: str) -> None:
        """Delete an upload, if it exists; raises PublicationRefused if another fleet owns it."""
        owner = self._at.owner(upload_id)
        if owner is None:
            return
        if owner != self._at.fleet:
            raise PublicationRefused(
                f"{upload_id} at {self._at.place} does not carry the mark of fleet "
                f"{self._at.fleet}" + (f"; it is of fleet {owner}" if owner else "")
            )
        self._at.remove(upload_id)

    def clean(self, before: datetime, but_for: tuple[str, str] | None = None) -> tuple[str, ...]:
        """Remove partial uploads that started before a time; return a description of each."""
        old = [each for each in self.uploads() if each.was_left(before, but_for)]
        for each in old:
            self._at.remove(each.id)
        names = (f"{self._at.noun} {each.id} of {each.image} {each.version}" for each in old)
        return (*names, *self._at.clean_others(before))


def publisher_of(fleet: Fleet, file: str, clock: Clock, place: str) -> Pipeline:
    """Return the publisher at a provider or store URL; raises PublicationRefused if impossible."""
    if "://" in place:
        parts = urlsplit(place)
        if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
            return Pipeline(StorePublisher(Directory(Path(unquote(parts.path))), fleet.fleet))
        if parts.scheme == "s3" and parts.hostname:
            return Pipeline(StorePublisher(Bucket(place), fleet.fleet))
        raise PublicationRefused(f"{place}: expected file:///PATH or s3://BUCKET/PREFIX")
    cloud = clouds_of(fleet, file, clock).get(place)
    if cloud is None:
        known = ", ".join(fleet.providers) or "none"
        raise PublicationRefused(f"no provider {place}; known: {known}")
    publisher = cloud.publisher()
    if cloud.image_folder is not None:
        publisher = StorePublisher(Directory(cloud.image_folder), fleet.fleet)
    if publisher is None:
        kind = cloud.declared.kind
        raise PublicationRefused(f"provider {place} of kind {kind} takes no images")
    return Pipeline(publisher)


def builder_at(fleet: Fleet, name: str, file: str, clock: Clock) -> ImageBuilder[Publication]:
    """Return the builder on machines of a provider; raises PublicationRefused if impossible."""
    cloud = clouds_of(fleet, file, clock).get(name)
    if not isinstance(cloud, Hcloud):
        kinds = {each: it.kind for each, it in fleet.providers.items()}
        there = ", ".join(f"{each} ({kind})" for each, kind in kinds.items()) or "none"
        able = ", ".join(kind for kind, each in KINDS.items() if issubclass(each, Hcloud))
        raise PublicationRefused(
            f"images are built on machines of kind {able} only; providers: {there}"
        )
    site = cloud.image_site()
    from fleet.images.instance import InstanceBuilder

    folder = cloud.site.storage.images.resolve()
    return InstanceBuilder(folder, site, beside=cloud.site.folder)


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
    folder: Path | None,
    publishers: Publishers,
    now: datetime,
    tell: Callable[[str, Transfer], None],
) -> tuple[Published, ...]:
    """Publish a build to each provider or store, record each success, and return all results.

    First remove the uploads of killed runs there. Without a folder, do only that. After an error,
    continue with the next provider or store.
    """
    manifest, done = read_manifest(folder) if folder else None, list[Published]()
    for place, open_publisher in publishers.items():
        try:
            publisher, published = open_publisher(), ""
            own = (manifest.image, manifest.version) if manifest else None
            removed = publisher.clean(now - LEFT_AFTER, own)
            if manifest:
                publication = publisher.publish(manifest, str(folder), partial(tell, place))
                remember_publication(store, manifest, place, publication)
                published = publication.id
            done.append(Published(place=place, id=published, removed=removed))
        except FleetError as error:
            done.append(Published(place=place, error=str(error)))
    return tuple(done)


def remember_publication(
    store: Store, manifest: Manifest, place: str, publication: Publication
) -> None:
    """Record that a version is published at a provider or store, and save its manifest.

    A known id keeps its earlier date.
    """

    def add(version: Version) -> Version:
        known, added = version.publications.get(place), publication
        if known is not None and known.id == publication.id:
            # A build at the provider records its snapshot, unverified, before it is published.
            added = known.altered(verified=known.verified or publication.verified)
        return version.altered(publications={**version.publications, place: added})

    # Save the manifest first: `fleet image due` reads the manifest of each published version.
    store.save_manifest(manifest)
    change_version(store, manifest.image, manifest.version, add)


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
