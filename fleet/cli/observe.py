"""Record all facts that a plan is made from: personal data too, but no secrets."""

import argparse
import secrets

from fleet.apply.config import load_config
from fleet.apply.decide import look
from fleet.apply.wire import wire
from fleet.cli.arguments import Parser, add_file
from fleet.model.facts import World, pseudonymise
from fleet.ports import Console
from fleet.report.json import value_to_json
from fleet.schema.model import Askers, Fleet
from fleet.state import history
from fleet.state.files import LocalFiles


def arguments(parser: Parser) -> None:
    """Declare what `fleet observe` takes."""
    add_file(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FILE", help="write it to FILE instead")
    where.add_argument(
        "--append",
        metavar="FILE",
        help="append to the compressed history in FILE instead, as in history.jsonl.zst",
    )
    parser.add_argument(
        "--pseudonyms",
        action="store_true",
        help="replace the names of requesters, group members and sandboxes by pseudonyms; "
        "without it the recording holds personal data",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the world as JSON."""
    config = load_config(args, console)
    world = look(config, wire(config.fleet, args.file), console)
    if args.pseudonyms:
        world = pseudonymise(world, secrets.token_bytes(32), _named(config.fleet))
    if args.append:
        _append(args.append, world, console)
        return 0
    text = value_to_json(world)
    if args.out:
        LocalFiles().write_text(args.out, text)
        console.note(f"recorded in {args.out}; replay it with --world {args.out}")
    else:
        console.out(text)
    return 0


def _named(fleet: Fleet) -> set[str]:
    """Return the users that fleet.yaml names, of whom the world tells nothing new."""
    askers = [asker for rule in fleet.tags.values() for asker in rule.asked_by or ()]
    return {user for asker in askers if isinstance(asker, Askers) for user in asker.users}


def _append(name: str, world: World, console: Console) -> None:
    done = history.append(name, world.model_dump_json() + "\n", world.time)
    if done.torn:
        console.note(f"fleet: warning: {name}: {history.torn_off(done)}")
    console.note(
        f"added {done.added:,} bytes to {name}, {done.size:,} in all; replay this moment with "
        f"--world {name}@{world.time:%Y-%m-%dT%H:%M:%SZ}"
    )
