"""End a freeze before its time."""

import argparse

from fleet.apply.orders import Ordering, freezes_of
from fleet.cli.arguments import Parser, add_file, option
from fleet.guard.freezes import lift
from fleet.model.orders import Freeze
from fleet.ports import Console


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet unfreeze`."""
    add_file(parser)
    option(parser, "--pool", "NAME", "end this pool's freezes (default: those of the whole fleet)")


def run(args: argparse.Namespace, console: Console) -> int:
    """End the freezes of this scope, and print the remaining ones."""
    ordering = Ordering.of(args, console)
    orders = ordering.in_force()
    ending = freezes_of(orders, args.pool)
    ordering.lift(ending, "unfreeze")
    for order in ending:
        console.out(f"{order.what} no longer frozen")
    if not ending:
        console.out(f"{f'pool {args.pool}' if args.pool else 'the fleet'} is not frozen")
    for stays in orders:
        if isinstance(stays, Freeze) and stays.pool != args.pool:
            console.out(f"{stays.sentence}; `{lift(stays)}` ends it")
    return 0
