"""This module is the part of the command line that gives out machines as a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.arguments.usage import add_verb

if TYPE_CHECKING:
    from fleet.arguments.usage import Verbs


def add_serve(verbs: Verbs) -> None:
    """Add the verb `serve`."""
    parser = add_verb(verbs, "serve", "give out machines to clients of Resalloc, and apply")
    parser.add_argument(
        "--listen",
        default="127.0.0.1:49100",
        metavar="ADDRESS:PORT",
        help="where to listen; elsewhere than on this computer with --tokens and --certificate "
        "(default: 127.0.0.1:49100, port 0: a free one)",
    )
    parser.add_argument(
        "--queue", metavar="NAME", help="which queue of tickets, where fleet.yaml has several"
    )
    parser.add_argument(
        "--every",
        default="20s",
        metavar="DURATION",
        help="apply at least so often; a ticket that is taken or closed does not wait for it "
        "(default: 20s)",
    )
    parser.add_argument(
        "--apart",
        default="1s",
        metavar="DURATION",
        help="begin runs so far apart on average; five may follow at once (default: 1s)",
    )
    parser.add_argument(
        "--tokens",
        metavar="FILE",
        help="who may ask: a client a line, NAME TOKEN; each has only its own tickets",
    )
    parser.add_argument(
        "--certificate", metavar="FILE", help="listen over TLS with this chain, in PEM"
    )
    parser.add_argument(
        "--key", metavar="FILE", help="the certificate's private key (default: in the same file)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the outcome of each run as JSON"
    )
