"""This module does to images what the action says, by the module of that action alone."""

import argparse
import importlib

from fleet.cli.arguments import Parser, Verbs, add_json, add_verb
from fleet.ports import Console

_ALL = 100


def arguments(parser: Parser) -> None:
    """Declare what `fleet image` takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _list(actions)
    _show(actions)
    _build(actions)
    _test(actions)
    _publish(actions)
    add_version_verbs(actions)


def add_version_verbs(actions: Verbs) -> None:
    """Add what moves versions."""
    _promote(actions)
    _rollback(actions)
    _prune(actions)
    _due(actions)


def _promote(actions: Verbs) -> None:
    action = add_verb(
        actions, "promote", "make a tested version the current one, or the candidate"
    )
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    action.add_argument(
        "version",
        nargs="?",
        metavar="VERSION",
        help="the version (default: the newest that passed its test)",
    )
    action.add_argument(
        "--candidate",
        type=_share,
        metavar="SHARE",
        help="use it on this share of each pool's workers, as in 20%% (at least one worker), "
        "beside the current version",
    )
    _foreseen(action)


def _rollback(actions: Verbs) -> None:
    action = add_verb(
        actions,
        "rollback",
        "undo the latest promotion: the candidate's, else the current version's",
    )
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    _foreseen(action)


def _prune(actions: Verbs) -> None:
    action = add_verb(
        actions, "prune", "delete versions that no machine, pool, plan or approval uses"
    )
    action.add_argument("image", nargs="?", metavar="NAME", help="the image (default: all)")
    action.add_argument(
        "--plan",
        action="append",
        default=[],
        metavar="FILE",
        help="keep the versions that a plan saved in FILE uses; may be repeated",
    )
    action.add_argument(
        "--forgotten",
        action="append",
        default=[],
        metavar="ID",
        help="also delete the upload ID that no known version has; may be repeated",
    )
    action.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    add_json(action)


def _due(actions: Verbs) -> None:
    action = add_verb(actions, "due", "list the images that need a build, and why")
    action.add_argument(
        "--gitlab-child-pipeline",
        metavar="FILE",
        help="also write a GitLab child pipeline to FILE, with one job per image",
    )
    add_json(action)


def _foreseen(action: Parser) -> None:
    """Add the options of what says which machines are replaced because of it."""
    action.add_argument(
        "--dry-run",
        action="store_true",
        help="only show which versions move and which machines are replaced",
    )
    add_json(action)


def _share(text: str) -> int:
    number = text.removesuffix("%")
    if not (number.isdecimal() and 1 <= int(number) <= _ALL):
        raise argparse.ArgumentTypeError(f"expected a share from 1% to 100%, not {text}")
    return int(number)


def _list(actions: Verbs) -> None:
    add_json(add_verb(actions, "list", "list images and their versions: state, age, where"))


def _show(actions: Verbs) -> None:
    action = add_verb(actions, "show", "show the versions of an image in full")
    _named(action)
    add_json(action)


def _build(actions: Verbs) -> None:
    action = add_verb(actions, "build", "build a new version of an image")
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    action.add_argument(
        "--at",
        metavar="PLACE",
        help="where to build: a provider of kind hcloud (on a temporary machine, as a snapshot) "
        "or a Debusine queue (by its image task, as a disk); default: this computer",
    )
    action.add_argument(
        "--mirror",
        metavar="URL",
        help="the Debian archive to build from, in place of the recipe's (default: "
        "FLEET_MIRROR); the image keeps it as its source",
    )
    action.add_argument(
        "--snapshot",
        action="store_true",
        help="accept expired package lists: the archive is a snapshot of an earlier day",
    )
    action.add_argument(
        "--raw", action="store_true", help="keep the uncompressed disk too, as disk.raw"
    )
    action.add_argument(
        "--check-reproducible",
        action="store_true",
        help="build a second time from scratch, and show which files differ and why",
    )
    action.add_argument(
        "--on",
        metavar="QUEUE",
        help="like --at QUEUE, also if a provider has the same name",
    )
    action.add_argument(
        "--workspace",
        metavar="[SCOPE/]NAME",
        help="at a queue: the workspace of the work request (default: the server's default, in "
        "the queue's first scope)",
    )
    add_json(action)


def _publish(actions: Verbs) -> None:
    action = add_verb(actions, "publish", "upload a version to providers and stores")
    _named(action)
    action.add_argument(
        "--to",
        action="append",
        metavar="PLACE",
        help="a provider of fleet.yaml, or a URL as in file:///srv/images or s3://BUCKET/PREFIX "
        "(default: images.NAME.publish); may be repeated",
    )
    action.add_argument(
        "--clean",
        action="store_true",
        help="publish nothing; remove what runs that died over six hours ago left there",
    )
    add_json(action)


def _test(actions: Verbs) -> None:
    action = add_verb(actions, "test", "check a built image, and boot it with --boot")
    _named(action)
    action.add_argument(
        "--boot",
        action="store_true",
        help="also boot it under QEMU until its worker registers and asks for work, at a server "
        "made for this test",
    )
    action.add_argument(
        "--queue",
        metavar="NAME",
        help="with --boot: register at this queue of fleet.yaml, and run one of its work requests",
    )
    action.add_argument(
        "--limit",
        metavar="DURATION",
        default="10m",
        help="with --boot: how long the worker may take (default: 10m)",
    )
    action.add_argument(
        "--accelerator",
        choices=["auto", "kvm", "tcg"],
        default="auto",
        help="with --boot: kvm, or tcg (no KVM needed); auto uses kvm if it works",
    )
    add_json(action)


def _named(action: Parser) -> None:
    """Add the arguments that name an image and, where one is meant, a version of it."""
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    action.add_argument(
        "version", nargs="?", metavar="VERSION", help="the version, as in 20261121T203000Z"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Carry out one action; what it needs is loaded for it only."""
    action = importlib.import_module(f"fleet.cli.image_{args.action}")
    code: int = action.run(args, console)
    return code
