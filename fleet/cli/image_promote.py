"""This module moves versions of an image, and says which machines are replaced because of it."""

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime

from fleet.apply.config import Config, load_config
from fleet.apply.decide import look, priced
from fleet.apply.timer import SystemClock
from fleet.apply.wire import wire
from fleet.errors import FleetError, PromotionRefused
from fleet.images.promote import declared_version, foresee, newest_promotable, promote
from fleet.model.images import Move, Version
from fleet.ports import Console
from fleet.report.images import promotion_to_text
from fleet.report.json import value_to_json
from fleet.schema.model import ExistingImage
from fleet.schema.pools import Image
from fleet.state.connecting import name_process

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
        raise FleetError(f"no image {name} in fleet.yaml; known: {names}")
    if image.version is not None:
        place = config.document.place(("images", name, "version"), "key")
        raise PromotionRefused(
            f"refused, nothing was changed: {place}: image {name} is pinned to version "
            f"{image.version}; edit or remove that line"
        )
    return image


def run(args: argparse.Namespace, console: Console) -> int:
    """Promote the version that is named, else the newest that waits for it."""

    def decide(image: Image, known: Sequence[Version], now: datetime) -> tuple[Move, ...]:
        wanted = _wanted(args, image, known, now)
        moves = promote(known, wanted, now, share=args.candidate)
        # What a person moves is a person's to move on: no rule makes it current.
        mine = moves[0]._replace(now=moves[0].now.model_copy(update={"by_rule": False}))
        return (mine, *moves[1:])

    return move_versions(args, console, decide)


def _wanted(
    args: argparse.Namespace, image: Image, known: Sequence[Version], now: datetime
) -> Version:
    if args.version is None and isinstance(image, ExistingImage):
        return declared_version(args.image, image.existing, known, now, by=name_process())
    if args.version is None:
        return newest_promotable(known, args.image)
    for version in known:
        if version.version == args.version:
            return version
    names = ", ".join(each.version for each in known) or "none"
    raise FleetError(f"image {args.image} has no version {args.version}; known: {names}")
