"""This module is what the command line says of machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.arguments.usage import add_json, add_verb, add_world

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.arguments.usage import Verbs

STATES = (
    *("up", "ready", "idle", "busy", "starting", "assumed", "draining", "deaf"),
    *("disconnected", "failed", "disabled", "stopped", "never-registered", "unrecorded"),
    *("missing", "unfinished", "undeleted", "static", "unknown"),
)


def add_machine(verbs: Verbs) -> None:
    """Add `fleet machine` and its actions."""
    parser = add_verb(verbs, "machine", "list, delete and forget machines", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = add_verb(actions, "list", "list machines: state, what they run, since when, cost")
    _pool(listing.add_argument, "only those of this pool; may be repeated")
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        choices=STATES,
        metavar="STATE",
        help="only those in this state; may be repeated. `up`: connected, busy or not; `ready`: "
        f"idle; else one of {', '.join(STATES[2:])}",
    )
    add_world(listing)
    add_json(listing)
    delete = add_verb(actions, "delete", "delete machines: drain, then delete what runs nothing")
    delete.add_argument(
        "machine", nargs="*", metavar="NAME", help="its name, as plan and status show it"
    )
    _pool(delete.add_argument, "machines of this pool; with --unused or --all; may be repeated")
    which = delete.add_mutually_exclusive_group()
    which.add_argument("--unused", action="store_true", help="those that run nothing")
    which.add_argument("--all", action="store_true", help="all; busy ones are only drained")
    delete.add_argument(
        "--apply", action="store_true", help="do it; left out: only show what would go"
    )
    add_json(delete)
    forget = add_verb(
        actions, "forget", "take a machine that its provider no longer has out of its stack"
    )
    forget.add_argument("machine", metavar="NAME", help="its name, as plan and status show it")


def _pool(add: Callable[..., object], said: str) -> None:
    add("--pool", action="append", default=[], metavar="NAME", help=said)
