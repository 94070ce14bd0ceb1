"""Publish a version of an image to providers, or to stores that a URL names."""

import argparse
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fleet.apply.config import load_config
from fleet.apply.timer import Signals, SystemClock
from fleet.clouds.cloud import MachineBuilder
from fleet.clouds.kinds import clouds_of
from fleet.errors import FleetError, PublicationRefused, WrongUsage
from fleet.images.folder import find_build, verify
from fleet.images.publish import Consignment, choose_version, clean_places, publish_version
from fleet.model.images import Publishing, Transfer
from fleet.ports import Console, Publisher
from fleet.report.images import phase_to_text, publishing_to_text, transfer_to_text
from fleet.report.json import value_to_json
from fleet.schema.model import (
    Fleet,
    ImageRecipe,
)
from fleet.schema.pools import PLACE_PATTERN
from fleet.schema.secrets import holds_secret
from fleet.state.places import Places, find_places
from fleet.state.store import DatabaseStore


def publisher_of(fleet: Fleet, place: str, file: str) -> Publisher | FleetError:
    """Return what publishes at a place; an error where that cannot be, for its turn."""
    try:
        if "://" in place:
            return _store(fleet, place)
        cloud = clouds_of(fleet, file, SystemClock()).get(place)
        if cloud is None:
            known = ", ".join(fleet.providers) or "none"
            return PublicationRefused(f"no provider {place}; known: {known}")
        return cloud.publisher() or PublicationRefused(
            f"provider {place} of kind {cloud.declared.kind} takes no images"
        )
    except FleetError as error:
        return error


def builder_at(fleet: Fleet, name: str, file: str) -> MachineBuilder:
    """Return what bakes on a machine of a provider."""
    cloud = clouds_of(fleet, file, SystemClock()).get(name)
    builder = cloud.builder() if cloud else None
    if builder is None:
        kinds = {each: it.kind for each, it in fleet.providers.items()}
        there = ", ".join(f"{each} ({kind})" for each, kind in kinds.items()) or "none"
        raise PublicationRefused(
            f"images are built on machines of kind hcloud only; providers: {there}"
        )
    return builder


def _store(fleet: Fleet, url: str) -> Publisher:
    from fleet.images.stores import StorePublisher

    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        from fleet.images.stores import Directory

        return StorePublisher(Directory(Path(unquote(parts.path))), fleet.fleet)
    if parts.scheme == "s3" and parts.hostname:
        from fleet.images.stores import Bucket

        return StorePublisher(Bucket(url), fleet.fleet)
    raise PublicationRefused(f"{url}: expected file:///PATH or s3://BUCKET/PREFIX")


def run(args: argparse.Namespace, console: Console) -> int:
    """Upload it to each place, or only remove what dead runs left there."""
    fleet = load_config(args, console).fleet
    places = find_places(fleet, args.file)
    publishing = _publish(fleet, places, args, console)
    console.out(value_to_json(publishing) if args.json else publishing_to_text(publishing))
    return publishing.exit_code


def _publish(
    fleet: Fleet, places: Places, args: argparse.Namespace, console: Console
) -> Publishing:
    publishers = {place: publisher_of(fleet, place, args.file) for place in _named(fleet, args)}
    now = SystemClock().now()
    if args.clean:
        return clean_places(args.image, publishers, now)
    store = DatabaseStore(places.store, fleet.fleet)
    chosen = choose_version(store, args.image, args.version)
    folder, manifest = find_build(places.images, args.image, chosen.version)
    verify(folder, manifest)
    # A temporary machine goes also where a service manager ends this.
    with Signals().heard():
        consigned = Consignment(manifest, str(folder))
        return publish_version(store, consigned, publishers, now, _Told(console).hear)


def _named(fleet: Fleet, args: argparse.Namespace) -> list[str]:
    """Return the places that are meant, each once."""
    image = fleet.images.get(args.image)
    if image is None:
        names = ", ".join(fleet.images) or "none"
        raise FleetError(f"no image {args.image}; known: {names}")
    if not isinstance(image, ImageRecipe):
        raise FleetError(f"image {args.image} is built elsewhere (`existing`): nothing to upload")
    for place in args.to or ():
        _check(place)
    named = args.to or image.publish
    if not named:
        raise WrongUsage(f"no place to publish to; set images.{args.image}.publish, or use --to")
    return list(dict.fromkeys(named))


def _check(place: str) -> None:
    """Refuse what fleet.yaml would refuse too; it is not repeated, as it may hold credentials."""
    if not re.fullmatch(PLACE_PATTERN, place) or holds_secret(place):
        raise WrongUsage(
            "--to: expected a provider, or a URL without credentials: file:///PATH or "
            "s3://BUCKET/PREFIX"
        )


class _Told:
    """Says how far an upload is: each phase in a line, and its bytes to a person who watches."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = ("", "")

    def hear(self, place: str, transfer: Transfer) -> None:
        """Take one piece of news."""
        if self._phase != (place, transfer.phase):
            self._phase = (place, transfer.phase)
            self._console.note(phase_to_text(place, transfer))
        self._console.progress(transfer_to_text(place, transfer))
