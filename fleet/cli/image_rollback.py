"""This module takes back the latest promotion of an image."""

import argparse
from collections.abc import Sequence
from datetime import datetime

from fleet.cli.image_promote import move_versions
from fleet.images.promote import take_back
from fleet.model.images import Move, Version
from fleet.ports import Console
from fleet.schema.pools import Image


def run(args: argparse.Namespace, console: Console) -> int:
    """Retire the candidate, where there is one, else the current version."""

    def decide(_: Image, known: Sequence[Version], now: datetime) -> tuple[Move, ...]:
        return take_back(known, args.image, now)

    return move_versions(args, console, decide)
