"""Approve actions that a guard refuses, for a number of machines of a pool and a limited time."""

import argparse
from typing import get_args

from fleet.apply.orders import Ordering
from fleet.cli.arguments import Parser, add_file, add_order, count
from fleet.model.orders import GivenApproval
from fleet.model.plan import GuardName
from fleet.ports import Console
from fleet.schema.units import write_count, write_time


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet approve`."""
    add_file(parser)
    parser.add_argument(
        "guard", choices=get_args(GuardName), metavar="GUARD", help=", ".join(get_args(GuardName))
    )
    parser.add_argument(
        "--pool", required=True, metavar="NAME", help="the pool whose machines may pass"
    )
    parser.add_argument(
        "--count",
        required=True,
        type=count(1, 10_000),
        metavar="N",
        help="how many machines may pass",
    )
    add_order(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Place the approval, in addition to those of fleet.yaml."""
    ordering = Ordering.of(args, console)
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
