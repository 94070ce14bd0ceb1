"""Release a held machine before its hold expires."""

import argparse

from fleet.apply.orders import Ordering
from fleet.cli.arguments import Parser, add_file
from fleet.errors import FleetError
from fleet.model.orders import FLEET, Hold
from fleet.ports import Console


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet release`."""
    add_file(parser)
    parser.add_argument("machine", metavar="MACHINE", help="the machine that is held")


def run(args: argparse.Namespace, console: Console) -> int:
    """End the hold; the next run resumes its worker, or deletes a machine that failed to boot."""
    ordering = Ordering.of(args, console)
    holds = [each for each in ordering.in_force() if isinstance(each, Hold)]
    ending = [each for each in holds if each.machine == args.machine]
    if not ending:
        held = ", ".join(each.machine for each in holds) or "none"
        raise FleetError(f"{args.machine} is not held; held: {held}")
    ordering.lift(ending, "release")
    is_failed = all(each.by == FLEET for each in ending)
    follows = "deletes it" if is_failed else "gives its worker work again"
    console.out(f"{args.machine} is no longer held: the next `fleet apply` {follows}")
    return 0
