"""This module promotes a version of an image, or makes it the candidate."""

import argparse
from collections.abc import Sequence
from datetime import datetime

from fleet.commands.promoting import move_versions
from fleet.errors import FleetError
from fleet.facts.versions import Move, Version
from fleet.ports import Console
from fleet.promotion import declared_version, newest_promotable, promote
from fleet.schema.model import ExistingImage
from fleet.schema.pools import Image
from fleet.store.holders import name_process


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
    raise FleetError(f"image {args.image} has no version {args.version}; it has: {names}")
