"""Hold a machine: it gets no new work and is kept, whatever other rules say."""

import argparse

from fleet.apply.orders import Ordering
from fleet.cli.arguments import Parser, add_file, add_order
from fleet.model.orders import Hold
from fleet.ports import Console
from fleet.schema.units import write_time


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet hold`."""
    add_file(parser)
    parser.add_argument("machine", metavar="MACHINE", help="its name, as plan and status show it")
    add_order(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Place the hold; it replaces an earlier one of the same machine."""
    ordering = Ordering.of(args, console)
    ordering.check_machine(args.machine)
    order = Hold(machine=args.machine, **ordering.terms(args))
    ordering.place(order)
    console.out(
        f"{order.machine} is held until {write_time(order.until)}; the next `fleet apply` drains "
        f"its worker, `fleet release {order.machine}` ends it"
    )
    return 0
