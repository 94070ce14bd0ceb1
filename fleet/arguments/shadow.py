"""This module is the part of the command line that compares fleet with a Resalloc that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.arguments.usage import add_json, add_verb

if TYPE_CHECKING:
    from fleet.arguments.usage import Verbs


def add_shadow(verbs: Verbs) -> None:
    """Add the verb `shadow` and its actions."""
    parser = add_verb(
        verbs, "shadow", "say what fleet would have done in a Resalloc's place", config=False
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    watch = add_verb(
        actions, "run", "repeat a Resalloc's tickets with simulated machines, and record both"
    )
    watch.add_argument(
        "--resalloc",
        required=True,
        metavar="FILE",
        help="a file with the address of its database, as in `db_url`; it is only read",
    )
    watch.add_argument(
        "--log", required=True, metavar="FILE", help="add a line for each look to FILE"
    )
    watch.add_argument(
        "--every", default="20s", metavar="DURATION", help="look so often (default: 20s)"
    )
    watch.add_argument(
        "--for", dest="most", metavar="DURATION", help="look no longer, as in --for 7d"
    )
    watch.add_argument(
        "--queue", metavar="NAME", help="which queue of tickets, where fleet.yaml has several"
    )
    report = add_verb(actions, "report", "print each day of a log", config=False)
    report.add_argument("log", metavar="FILE", help="what `fleet shadow run` wrote")
    add_json(report)
