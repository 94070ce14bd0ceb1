"""Stop creations or deletions for a limited time, in one pool or all, effective immediately."""

import argparse

from fleet.apply.orders import Ordering
from fleet.cli.arguments import Parser, add_file, add_order, option
from fleet.guard.freezes import lift
from fleet.model.orders import FROZEN, Freeze
from fleet.ports import Console
from fleet.schema.units import write_time


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet freeze`."""
    add_file(parser)
    option(parser, "--pool", "NAME", "only this pool (default: every pool)")
    which = parser.add_mutually_exclusive_group()
    for what in FROZEN:
        which.add_argument(
            f"--{what}",
            action="store_const",
            dest="stops",
            const=(what,),
            default=FROZEN,
            help=f"only {what} (default: creates and deletes)",
        )
    add_order(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Place the freeze; it replaces one of the same pool and kind."""
    ordering = Ordering.of(args, console)
    ordering.check_pool(args.pool)
    order = Freeze(pool=args.pool, stops=args.stops, **ordering.terms(args))
    ordering.place(order)
    console.out(f"{order.what} frozen until {write_time(order.until)}; `{lift(order)}` ends it")
    return 0
