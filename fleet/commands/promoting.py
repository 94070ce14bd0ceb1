"""This module moves versions of an image, and says which machines are replaced because of it."""

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime

from fleet.commands.clock import SystemClock
from fleet.commands.config import Config, load_config
from fleet.commands.wiring import look, priced, wire
from fleet.errors import FleetError, PromotionRefused
from fleet.facts.versions import Move, Version
from fleet.ports import Console
from fleet.promotion.recycling import foresee
from fleet.render.promotion_text import promotion_to_text
from fleet.render.to_json import value_to_json
from fleet.schema.pools import Image

Decide = Callable[[Image, Sequence[Version], datetime], tuple[Move, ...]]
"""Says of an image and its versions what moves; raises PromotionRefused."""


def move_versions(args: argparse.Namespace, console: Console, decide: Decide) -> int:
    """Say what a promotion means, and carry it out where that is asked for."""
    config = load_config(args, console)
    image = _unpinned(config, args.image)
    sources = wire(config.fleet, args.file)
    known = [each for each in sources.store.image_versions() if each.image == args.image]
    moves = decide(image, known, SystemClock().now())
    world = look(config, sources, console)
    if not args.dry_run:
        sources.store.move_image_versions(moves)
    promotion = foresee(priced(config, world).fleet, world, moves, done=not args.dry_run)
    console.out(
        value_to_json(promotion)
        if args.json
        else promotion_to_text(promotion, colour=console.colour)
    )
    return 0


def _unpinned(config: Config, name: str) -> Image:
    """Return an image of fleet.yaml; raises where that pins its version."""
    image = config.fleet.images.get(name)
    if image is None:
        names = ", ".join(config.fleet.images) or "none"
        raise FleetError(f"there is no image {name} in fleet.yaml; there are: {names}")
    if image.version is not None:
        place = config.document.place(("images", name, "version"), "key")
        raise PromotionRefused(
            f"refused, nothing was changed: {place}: image {name} is pinned to version "
            f"{image.version}, and only what is not pinned is moved; edit or remove that line"
        )
    return image
