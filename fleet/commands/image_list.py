"""This module lists images and their versions."""

import argparse

from fleet.commands.clock import SystemClock
from fleet.commands.config import load_config
from fleet.ports import Console
from fleet.promotion.listing import list_images
from fleet.render.images_text import list_to_text
from fleet.render.to_json import value_to_json
from fleet.store.database import DatabaseStore
from fleet.store.places import find_places


def run(args: argparse.Namespace, console: Console) -> int:
    """Say which versions there are of each image."""
    fleet = load_config(args, console).fleet
    store = DatabaseStore(find_places(fleet, args.file).store, fleet.fleet)
    listed = list_images(fleet, store.image_versions())
    now = SystemClock().now()
    console.out(
        value_to_json(listed) if args.json else list_to_text(listed, now, colour=console.colour)
    )
    return 0
