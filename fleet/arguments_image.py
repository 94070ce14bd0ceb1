"""This module is the part of the command line that deals with images; it imports none.

Each verb is carried out by the module of its name: `fleet image list` by commands/image_list.py.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fleet.usage import add_json, add_verb

if TYPE_CHECKING:
    from fleet.usage import Parser, Verbs

_ALL = 100


def add_image(verbs: Verbs) -> None:
    """Add what is done with images."""
    parser = add_verb(verbs, "image", "look after images and their versions", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _list(actions)
    _show(actions)
    _promote(actions)
    _rollback(actions)


def _list(actions: Verbs) -> None:
    add_json(add_verb(actions, "list", "list images and their versions: state, age, where"))


def _show(actions: Verbs) -> None:
    action = add_verb(actions, "show", "show all that is remembered of an image's versions")
    _named(action)
    add_json(action)


def _promote(actions: Verbs) -> None:
    action = add_verb(
        actions, "promote", "make a tested version the one that machines boot, or the candidate"
    )
    _named(action)
    action.add_argument(
        "--candidate",
        type=_share,
        metavar="SHARE",
        help="on this share of each pool's workers, as in 20%%, beside the current version: one "
        "worker, or at most so many",
    )
    _foreseen(action)


def _rollback(actions: Verbs) -> None:
    action = add_verb(
        actions,
        "rollback",
        "take the latest promotion back: a candidate's, else the current version's",
    )
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    _foreseen(action)


def _foreseen(action: Parser) -> None:
    """Add the options of what says which machines are replaced because of it."""
    action.add_argument(
        "--dry-run", action="store_true", help="only show what would move and be replaced"
    )
    add_json(action)


def _share(text: str) -> int:
    number = text.removesuffix("%")
    if not (number.isdecimal() and 1 <= int(number) <= _ALL):
        raise argparse.ArgumentTypeError(f"expected a share from 1% to 100%, not {text}")
    return int(number)


def _named(action: Parser) -> None:
    """Add the arguments that name an image and, where one is meant, a version of it."""
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    action.add_argument(
        "version", nargs="?", metavar="VERSION", help="one version of it, as in 20261121T203000Z"
    )
