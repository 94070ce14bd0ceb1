"""This module publishes a version of an image."""

import argparse
import os
import re
from pathlib import Path

from fleet.commands.clock import SystemClock
from fleet.commands.config import load_config
from fleet.commands.publishers import publisher_of
from fleet.commands.signals import Signals
from fleet.errors import FleetError, WrongUsage
from fleet.facts.versions import Publishing, Transfer
from fleet.images.folder import find_build, verify
from fleet.operate.publish import Consignment, choose_version, clean_places, publish_version
from fleet.ports import Console
from fleet.render.publishing_text import phase_to_text, publishing_to_text, transfer_to_text
from fleet.render.to_json import value_to_json
from fleet.schema.concealed import holds_secret
from fleet.schema.model import Fleet, ImageRecipe
from fleet.schema.pools import PLACE_PATTERN
from fleet.store.database import DatabaseStore
from fleet.store.places import Places, find_places
from fleet.store.secrets import HostSecrets


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
    secrets = HostSecrets(os.environ, Path(args.file).resolve().parent)
    publishers = {
        place: publisher_of(fleet, place, places, secrets) for place in _named(fleet, args)
    }
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
        raise FleetError(f"there is no image {args.image}; there are: {names}")
    if not isinstance(image, ImageRecipe):
        raise FleetError(f"image {args.image} was baked elsewhere: there is nothing to upload")
    for place in args.to or ():
        _check(place)
    named = args.to or image.publish
    if not named:
        raise WrongUsage(
            f"images.{args.image}.publish names no place; name one there, or with --to"
        )
    return list(dict.fromkeys(named))


def _check(place: str) -> None:
    """Refuse what fleet.yaml would refuse too; it is not repeated, as it may hold credentials."""
    if not re.fullmatch(PLACE_PATTERN, place) or holds_secret(place):
        raise WrongUsage(
            "--to: expected the name of a provider, or a URL without credentials: write "
            "file:///PATH or s3://BUCKET/PREFIX"
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
