"""This module is the part of the command line that asks fleet for machines: tickets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.arguments.usage import add_json, add_verb

if TYPE_CHECKING:
    from fleet.arguments.usage import Parser, Verbs


def add_ticket(verbs: Verbs) -> None:
    """Add the verb `ticket` and its actions."""
    parser = add_verb(
        verbs, "ticket", "ask for a machine by its tags, and give it back", config=False
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _open(add_verb(actions, "open", "open a ticket and print its id"))
    for name, help_text in (
        ("check", "print the answer of a ticket that is ready; exit 1 while it is not"),
        ("wait", "wait until a ticket is ready and print its answer"),
        ("show", "show a ticket: its tags, what the rules add, what it waits for"),
        ("close", "close a ticket: what it has, or what starts for it, is let go"),
    ):
        action = add_verb(actions, name, help_text)
        action.add_argument("ticket", metavar="ID", help="as `ticket open` printed it")
        _common(action)
        if name == "show":
            add_json(action)
        else:
            _server(action)
        if name == "close":
            action.add_argument(
                "--built",
                action="store_true",
                help="its build (`open --build`) ran there from start to end and succeeded: how "
                "long that took counts for later builds of the package",
            )
        if name == "wait":
            action.add_argument(
                "--for", dest="most", metavar="DURATION", help="wait no longer, as in --for 30m"
            )
    listing = add_verb(actions, "list", "list the open tickets")
    _queue(listing)
    add_json(listing)


def _open(parser: Parser) -> None:
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        required=True,
        metavar="TAG",
        help="a tag that the machine has to provide; may be repeated",
    )
    parser.add_argument(
        "--sandbox", default="", metavar="NAME", help="only its tickets may get the machine again"
    )
    parser.add_argument(
        "--owner", metavar="NAME", help="whose turn it is, and whose limits count (default: user)"
    )
    parser.add_argument(
        "--build",
        metavar="NAME",
        help="of which build it is, OWNER/PROJECT/CHROOT/PACKAGE: the rules of `powerful` and "
        "`derive` act on it",
    )
    parser.add_argument("--team", default="", metavar="NAME", help="whose budget it is")
    parser.add_argument(
        "--priority", type=int, default=0, metavar="N", help="higher comes first (default: 0)"
    )
    parser.add_argument(
        "--background", action="store_true", help="it comes after what is not in the background"
    )
    parser.add_argument(
        "--lease",
        metavar="DURATION",
        help="it expires when it was neither checked nor waited for for so long",
    )
    _common(parser)
    _server(parser)


def _server(parser: Parser) -> None:
    parser.add_argument(
        "--server",
        metavar="URL",
        help="ask the `fleet serve` at this address, as in https://HOST:49100, in place of the "
        "fleet of fleet.yaml; it is told tags and sandbox only",
    )
    parser.add_argument(
        "--netrc",
        metavar="FILE",
        help="with --server: where its token is, `machine HOST login NAME password TOKEN`, "
        "readable by its owner alone (default: ~/.netrc)",
    )


def _common(parser: Parser) -> None:
    parser.add_argument("--user", metavar="NAME", help="who asks (default: who runs this)")
    _queue(parser)


def _queue(parser: Parser) -> None:
    parser.add_argument(
        "--queue", metavar="NAME", help="which queue of tickets, where fleet.yaml has several"
    )
