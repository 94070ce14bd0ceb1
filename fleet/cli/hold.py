"""`fleet hold`: keep a machine without new work; no rule deletes it until the hold ends."""

import argparse

from fleet.apply.orders import Ordering
from fleet.cli.arguments import Parser, add_file, add_order
from fleet.errors import FleetError
from fleet.model.orders import FLEET, Hold
from fleet.ports import Console
from fleet.schema.units import write_time


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet hold`."""
    add_file(parser)
    parser.add_argument("machine", metavar="MACHINE", help="name, as `fleet status` shows it")
    add_order(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Hold a machine, in place of an earlier hold; with --end, end the hold."""
    ordering = Ordering.of(args, console)
    if ordering.ends(args):
        _end(args.machine, ordering, console)
        return 0
    ordering.check_machine(args.machine)
    order = Hold(machine=args.machine, **ordering.terms(args))
    ordering.place(order)
    console.out(
        f"{order.machine} is held until {write_time(order.until)}; the next `fleet apply` drains "
        f"its worker, `fleet hold {order.machine} --end` ends it"
    )
    return 0


def _end(machine: str, ordering: Ordering, console: Console) -> None:
    """End a hold; the next run resumes the worker, or deletes the machine if it has failed."""
    holds = [each for each in ordering.in_force() if isinstance(each, Hold)]
    ending = [each for each in holds if each.machine == machine]
    if not ending:
        held = ", ".join(each.machine for each in holds) or "none"
        raise FleetError(f"{machine} is not held; held: {held}")
    ordering.lift(ending, "release")
    is_failed = all(each.by == FLEET for each in ending)
    follows = "deletes it" if is_failed else "gives its worker work again"
    console.out(f"{machine} is no longer held: the next `fleet apply` {follows}")
