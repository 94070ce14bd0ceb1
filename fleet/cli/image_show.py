"""This module shows all that is remembered of an image's versions."""

import argparse

from fleet.apply.config import load_config
from fleet.errors import FleetError
from fleet.images.promote import find_version, list_images
from fleet.ports import Console
from fleet.report.images import image_to_text
from fleet.report.json import value_to_json
from fleet.state.places import find_places
from fleet.state.store import DatabaseStore


def run(args: argparse.Namespace, console: Console) -> int:
    """Show one version of an image, or all of them."""
    fleet = load_config(args, console).fleet
    store = DatabaseStore(find_places(fleet, args.file).store, fleet.fleet)
    listed = list_images(fleet, store.image_versions())
    shown = next((each for each in listed.images if each.image == args.image), None)
    if shown is None:
        names = ", ".join(each.image for each in listed.images) or "none"
        raise FleetError(f"no image {args.image}; known: {names}")
    if args.version:
        version = find_version(store, args.image, args.version)
        shown = shown.model_copy(update={"versions": (version,)})
    console.out(value_to_json(shown) if args.json else image_to_text(shown, colour=console.colour))
    return 0
