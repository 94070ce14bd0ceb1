"""Build, test, publish, promote and prune images."""

import argparse
import importlib
from collections.abc import Callable, Sequence
from datetime import datetime

from fleet.apply.config import Config, load_config
from fleet.apply.decide import look, priced
from fleet.apply.timer import SystemClock
from fleet.apply.wire import wire
from fleet.cli.arguments import Parser, Verbs, add_json, add_verb
from fleet.errors import FleetError, PromotionRefused
from fleet.images.promote import (
    ImageList,
    declared_version,
    find_version,
    foresee,
    list_images,
    newest_promotable,
    promote,
    take_back,
)
from fleet.model.images import Move, Version
from fleet.ports import Console
from fleet.report.images import image_to_text, list_to_text, promotion_to_text
from fleet.report.json import value_to_json
from fleet.schema.model import ExistingImage
from fleet.schema.pools import Image
from fleet.state.database import name_process
from fleet.state.places import find_places
from fleet.state.store import DatabaseStore

_ALL = 100


def arguments(parser: Parser) -> None:
    """Declare what `fleet image` takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _list_arguments(actions)
    _show_arguments(actions)
    _build_arguments(actions)
    _test_arguments(actions)
    _publish_arguments(actions)
    _promote_arguments(actions)
    _rollback_arguments(actions)
    _prune_arguments(actions)
    _due_arguments(actions)


def _promote_arguments(actions: Verbs) -> None:
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


def _rollback_arguments(actions: Verbs) -> None:
    action = add_verb(
        actions,
        "rollback",
        "undo the latest promotion: the candidate's, else the current version's",
    )
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    _foreseen(action)


def _prune_arguments(actions: Verbs) -> None:
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


def _due_arguments(actions: Verbs) -> None:
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


def _list_arguments(actions: Verbs) -> None:
    add_json(add_verb(actions, "list", "list images and their versions: state, age, where"))


def _show_arguments(actions: Verbs) -> None:
    action = add_verb(actions, "show", "show the versions of an image in full")
    _named(action)
    add_json(action)


def _build_arguments(actions: Verbs) -> None:
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


def _publish_arguments(actions: Verbs) -> None:
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


def _test_arguments(actions: Verbs) -> None:
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
    """Carry out one action; the larger ones have a module each, loaded for them only."""
    match args.action:
        case "list":
            return _list(args, console)
        case "show":
            return _show(args, console)
        case "promote":
            return _promote(args, console)
        case "rollback":
            return _rollback(args, console)
        case _:
            action = importlib.import_module(f"fleet.cli.image_{args.action}")
            code: int = action.run(args, console)
            return code


def _list(args: argparse.Namespace, console: Console) -> int:
    listed, _ = _listed(args, console)
    now = SystemClock().now()
    console.out(
        value_to_json(listed) if args.json else list_to_text(listed, now, colour=console.colour)
    )
    return 0


def _show(args: argparse.Namespace, console: Console) -> int:
    listed, store = _listed(args, console)
    shown = next((each for each in listed.images if each.image == args.image), None)
    if shown is None:
        names = ", ".join(each.image for each in listed.images) or "none"
        raise FleetError(f"no image {args.image}; known: {names}")
    if args.version:
        version = find_version(store, args.image, args.version)
        shown = shown.model_copy(update={"versions": (version,)})
    console.out(value_to_json(shown) if args.json else image_to_text(shown, colour=console.colour))
    return 0


def _listed(args: argparse.Namespace, console: Console) -> tuple[ImageList, DatabaseStore]:
    fleet = load_config(args, console).fleet
    store = DatabaseStore(find_places(fleet, args.file).store, fleet.fleet)
    return list_images(fleet, store.image_versions()), store


def _promote(args: argparse.Namespace, console: Console) -> int:
    """Promote the named version, else the newest that may be promoted."""

    def decide(image: Image, known: Sequence[Version], now: datetime) -> tuple[Move, ...]:
        wanted = _wanted(args, image, known, now)
        moves = promote(known, wanted, now, share=args.candidate)
        # A person moved it, so no rule makes it current.
        mine = moves[0]._replace(now=moves[0].now.model_copy(update={"by_rule": False}))
        return (mine, *moves[1:])

    return _move_versions(args, console, decide)


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


def _rollback(args: argparse.Namespace, console: Console) -> int:
    """Retire the candidate, if there is one, else the current version."""

    def decide(_: Image, known: Sequence[Version], now: datetime) -> tuple[Move, ...]:
        return take_back(known, args.image, now)

    return _move_versions(args, console, decide)


Decide = Callable[[Image, Sequence[Version], datetime], tuple[Move, ...]]
"""Says of an image and its versions what moves; raises PromotionRefused."""


def _move_versions(args: argparse.Namespace, console: Console, decide: Decide) -> int:
    """Move versions unless --dry-run, and print which machines are replaced because of it."""
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
