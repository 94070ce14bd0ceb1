"""This module wires what publishes images: to a provider, or to a store that a URL names."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, assert_never
from urllib.parse import unquote, urlsplit

from fleet.errors import FleetError, PublicationRefused
from fleet.ports.images import Publisher
from fleet.schema.model import (
    AwsProvider,
    Fleet,
    HcloudProvider,
    HooksProvider,
    LocalProvider,
    Provider,
    SimProvider,
)
from fleet.store.places import Places
from fleet.store.secrets import HostSecrets

if TYPE_CHECKING:
    from fleet.images.instance import InstanceBuilder


def publisher_of(
    fleet: Fleet, place: str, places: Places, secrets: HostSecrets
) -> Publisher | FleetError:
    """Return what publishes at a place; an error where that cannot be, for its turn."""
    try:
        if "://" in place:
            return _store(fleet, place)
        provider = fleet.providers.get(place)
        if provider is None:
            known = ", ".join(fleet.providers) or "none"
            return PublicationRefused(f"there is no provider {place}; there are: {known}")
        return _provider(fleet, place, provider, places, secrets)
    except FleetError as error:
        return error


def builder_at(fleet: Fleet, name: str, places: Places, base: Path) -> "InstanceBuilder":
    """Return what bakes on a machine of a provider."""
    provider = fleet.providers.get(name)
    if not isinstance(provider, HcloudProvider):
        kinds = {each: it.kind for each, it in fleet.providers.items()}
        there = ", ".join(f"{each} ({kind})" for each, kind in kinds.items()) or "none"
        raise PublicationRefused(
            f"images are baked on machines of kind hcloud only; providers: {there}"
        )
    from fleet.images.hcloud import HcloudSite
    from fleet.images.hetzner import Hetzner
    from fleet.images.instance import InstanceBuilder

    secrets = HostSecrets(os.environ, base)
    api = Hetzner(secrets.read(provider.token), pause=time.sleep)
    site = HcloudSite(fleet.fleet, provider.location, name)
    return InstanceBuilder(places.images.resolve(), site, api)


def _store(fleet: Fleet, url: str) -> Publisher:
    from fleet.images.shelves import StorePublisher

    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        from fleet.images.directory import Directory

        return StorePublisher(Directory(Path(unquote(parts.path))), fleet.fleet)
    if parts.scheme == "s3" and parts.hostname:
        from fleet.images.s3 import Bucket

        return StorePublisher(Bucket(url), fleet.fleet)
    raise PublicationRefused(
        f"{url} is no store of images; write file:///PATH or s3://BUCKET/PREFIX"
    )


def _provider(
    fleet: Fleet, name: str, provider: Provider, places: Places, secrets: HostSecrets
) -> Publisher:
    match provider:
        case HcloudProvider():
            from fleet.images.hcloud import HcloudPublisher, HcloudSite

            site = HcloudSite(fleet.fleet, provider.location, name)
            return HcloudPublisher(site, secrets.read(provider.token))
        case AwsProvider():
            from fleet.images.aws import AwsPublisher

            return AwsPublisher(fleet.fleet, provider.region)
        case SimProvider():
            from fleet.images.directory import Directory
            from fleet.images.shelves import StorePublisher

            # Its machines boot nothing: any name of an image will do.
            return StorePublisher(Directory(places.folder / f"sim-{name}-images"), fleet.fleet)
        case LocalProvider() | HooksProvider():
            raise PublicationRefused(
                f"provider {name} of kind {provider.kind} takes no images; its machines are made "
                "by other means"
            )
    assert_never(provider)
