"""`fleet approve`: let a number of machines of a pool pass a guard for a limited time."""

import argparse
from typing import get_args

from fleet.apply.orders import Ordering
from fleet.cli.arguments import Parser, add_file, add_order, count, option
from fleet.errors import FleetError, WrongUsage
from fleet.model.orders import GivenApproval
from fleet.model.plan import GuardName
from fleet.ports import Console
from fleet.schema.units import write_count, write_time


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet approve`."""
    add_file(parser)
    parser.add_argument(
        "guard",
        choices=get_args(GuardName),
        metavar="GUARD",
        help="the guard to pass: " + ", ".join(get_args(GuardName)),
    )
    parser.add_argument(
        "--pool", required=True, metavar="NAME", help="the pool whose machines may pass"
    )
    option(parser, "--count", "N", "maximum number of machines to pass", kind=count(1, 10_000))
    add_order(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Store an approval; with --end, end the stored approvals of a guard and a pool."""
    ordering = Ordering.of(args, console)
    if ordering.ends(args):
        _end(args.guard, args.pool, ordering, console)
        return 0
    if args.count is None:
        raise WrongUsage("missing: --count; `--end` alone ends an approval")
    ordering.check_pool(args.pool)
    order = GivenApproval(
        guard=args.guard, pool=args.pool, count=args.count, **ordering.terms(args)
    )
    ordering.place(order)
    console.out(
        f"guard {order.guard} lets {write_count(order.count, 'machine')} of pool {order.pool} "
        f"pass until {write_time(order.until)}"
    )
    return 0


def _end(guard: str, pool: str, ordering: Ordering, console: Console) -> None:
    """End the stored approvals of a guard and a pool; those in fleet.yaml stay active."""
    given = [each for each in ordering.in_force() if isinstance(each, GivenApproval)]
    ending = [each for each in given if (each.guard, each.pool) == (guard, pool)]
    if not ending:
        known = ", ".join(f"{each.guard} of pool {each.pool}" for each in given) or "none"
        raise FleetError(f"guard {guard} has no approval for pool {pool}; approved: {known}")
    ordering.lift(ending, "disapprove")
    console.out(f"guard {guard} refuses again for pool {pool}, except for approvals in fleet.yaml")
