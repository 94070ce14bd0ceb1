"""`fleet freeze`: stop creations or deletions, for a limited time, in one pool or in all pools."""

import argparse

from fleet.apply.orders import Ordering, freezes_of
from fleet.cli.arguments import Parser, add_file, add_order, option
from fleet.errors import WrongUsage
from fleet.guard.freezes import command_to_end
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
    """Store a freeze, in place of an equal earlier freeze; with --end, end freezes."""
    ordering = Ordering.of(args, console)
    if ordering.ends(args):
        if args.stops != FROZEN:
            raise WrongUsage(
                "--end ends all freezes of a pool or of the fleet; remove --creates or --deletes"
            )
        _end(args.pool, ordering, console)
        return 0
    ordering.check_pool(args.pool)
    order = Freeze(pool=args.pool, stops=args.stops, **ordering.terms(args))
    ordering.place(order)
    end = command_to_end(order)
    console.out(f"{order.what} frozen until {write_time(order.until)}; `{end}` ends it")
    return 0


def _end(pool: str | None, ordering: Ordering, console: Console) -> None:
    """End the freezes of a pool; None: of the whole fleet. Print the remaining freezes."""
    orders = ordering.in_force()
    ending = freezes_of(orders, pool)
    ordering.lift(ending, "unfreeze")
    for order in ending:
        console.out(f"{order.what} no longer frozen: ended the freeze {order.said}")
    if not ending:
        console.out(f"{f'pool {pool}' if pool else 'the fleet'} is not frozen")
    for remaining in orders:
        if isinstance(remaining, Freeze) and remaining.pool != pool:
            console.out(f"{remaining.sentence}; `{command_to_end(remaining)}` ends it")
