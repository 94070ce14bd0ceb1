"""The table of provider kinds, and the publishers and builders of images."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fleet.clouds.aws.cloud import Aws
from fleet.clouds.cloud import AnyCloud, Cloud, Site
from fleet.clouds.hcloud.cloud import Hcloud
from fleet.clouds.hooks.cloud import OwnCommands
from fleet.clouds.local.cloud import Local
from fleet.clouds.ready import Slots
from fleet.clouds.sim.cloud import Sim
from fleet.errors import PublicationRefused
from fleet.model.images import Publication
from fleet.ports import Clock, ImageBuilder, Publisher
from fleet.schema.model import Fleet
from fleet.state.secrets import HostSecrets
from fleet.state.storage import find_storage

KINDS: Mapping[str, type[AnyCloud]] = {
    "aws": Aws,
    "hcloud": Hcloud,
    "hooks": OwnCommands,
    "local": Local,
    "sim": Sim,
}


def clouds_of(
    fleet: Fleet, file: str, clock: Clock, slots: Slots | None = None
) -> dict[str, AnyCloud]:
    """Return the providers of this fleet.yaml by name, each of its kind's class."""
    folder, storage = Path(file).resolve().parent, find_storage(fleet, file)
    secrets = HostSecrets(os.environ, folder)
    return {
        name: KINDS[declared.kind](
            Site(name, fleet, folder, storage, secrets, clock, slots), declared
        )
        for name, declared in fleet.providers.items()
    }


def publisher_of(fleet: Fleet, file: str, clock: Clock, place: str) -> Publisher:
    """Return the publisher at a place; raises PublicationRefused if it stores no images."""
    if "://" in place:
        return _store(fleet, place)
    cloud = clouds_of(fleet, file, clock).get(place)
    if cloud is None:
        known = ", ".join(fleet.providers) or "none"
        raise PublicationRefused(f"no provider {place}; known: {known}")
    publisher = cloud.publisher()
    if publisher is None:
        kind = cloud.declared.kind
        raise PublicationRefused(f"provider {place} of kind {kind} takes no images")
    return publisher


def builder_at(fleet: Fleet, name: str, file: str, clock: Clock) -> ImageBuilder[Publication]:
    """Return the builder on machines of a provider."""
    cloud = clouds_of(fleet, file, clock).get(name)
    builder = cloud.builder() if cloud else None
    if builder is None:
        kinds = {each: it.kind for each, it in fleet.providers.items()}
        there = ", ".join(f"{each} ({kind})" for each, kind in kinds.items()) or "none"
        able = ", ".join(kind for kind, each in KINDS.items() if each.builder is not Cloud.builder)
        raise PublicationRefused(
            f"images are built on machines of kind {able} only; providers: {there}"
        )
    return builder


def _store(fleet: Fleet, url: str) -> Publisher:
    from fleet.images.stores import Bucket, Directory, StorePublisher

    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        return StorePublisher(Directory(Path(unquote(parts.path))), fleet.fleet)
    if parts.scheme == "s3" and parts.hostname:
        return StorePublisher(Bucket(url), fleet.fleet)
    raise PublicationRefused(f"{url}: expected file:///PATH or s3://BUCKET/PREFIX")
