"""Open the providers and stores that images are published to, and the builder at a provider."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from fleet.clouds.hcloud.cloud import Hcloud
from fleet.clouds.kinds import KINDS, clouds_of
from fleet.errors import PublicationRefused
from fleet.images.pipeline import Pipeline
from fleet.images.stores import Bucket, Directory, StorePublisher
from fleet.model.images import Publication
from fleet.ports import Clock, ImageBuilder
from fleet.schema.model import Fleet


def publisher_of(fleet: Fleet, file: str, clock: Clock, place: str) -> Pipeline:
    """Return the publisher at a provider or store URL; raises PublicationRefused if impossible."""
    if "://" in place:
        return _store(fleet, place)
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
    site, api = cloud.temporary_servers()
    from fleet.images.instance import InstanceBuilder

    folder = cloud.site.storage.images.resolve()
    return InstanceBuilder(folder, site, api, beside=cloud.site.folder)


def _store(fleet: Fleet, url: str) -> Pipeline:
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        return Pipeline(StorePublisher(Directory(Path(unquote(parts.path))), fleet.fleet))
    if parts.scheme == "s3" and parts.hostname:
        return Pipeline(StorePublisher(Bucket(url), fleet.fleet))
    raise PublicationRefused(f"{url}: expected file:///PATH or s3://BUCKET/PREFIX")
