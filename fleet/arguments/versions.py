"""This module is the part of the command line that deals with versions; it imports none."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fleet.arguments.usage import add_json, add_verb

if TYPE_CHECKING:
    from fleet.arguments.usage import Parser, Verbs

_ALL = 100


def add_version_verbs(actions: Verbs) -> None:
    """Add what moves versions."""
    _promote(actions)
    _rollback(actions)
    _prune(actions)
    _due(actions)


def _promote(actions: Verbs) -> None:
    action = add_verb(
        actions, "promote", "make a tested version the one that machines boot, or the candidate"
    )
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    action.add_argument(
        "version",
        nargs="?",
        metavar="VERSION",
        help="one version of it (default: the newest that passed its test)",
    )
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


def _prune(actions: Verbs) -> None:
    action = add_verb(
        actions, "prune", "delete versions that no machine, pool, plan or approval refers to"
    )
    action.add_argument(
        "image", nargs="?", metavar="NAME", help="of this image only (default: of every one)"
    )
    action.add_argument(
        "--plan",
        action="append",
        default=[],
        metavar="FILE",
        help="keep what a plan saved in FILE makes machines with; may be repeated",
    )
    action.add_argument(
        "--forgotten",
        action="append",
        default=[],
        metavar="ID",
        help="also delete what a place holds under ID and no version remembers; may be repeated",
    )
    action.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    add_json(action)


def _due(actions: Verbs) -> None:
    action = add_verb(actions, "due", "say which images need building, and why")
    action.add_argument(
        "--gitlab-child-pipeline",
        metavar="FILE",
        help="also write a child pipeline for GitLab to FILE, with a job for each of them",
    )
    add_json(action)


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
