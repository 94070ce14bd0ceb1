"""This module lists images and their versions."""

import argparse

from fleet.apply.config import load_config
from fleet.apply.timer import SystemClock
from fleet.images.promote import list_images
from fleet.ports import Console
from fleet.report.images import list_to_text
from fleet.report.json import value_to_json
from fleet.state.places import find_places
from fleet.state.store import DatabaseStore


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
