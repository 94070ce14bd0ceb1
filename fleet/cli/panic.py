"""Stop creations in one pool, drain it, and delete idle machines; busy ones are kept."""

import argparse
from functools import partial

from fleet.apply.orders import Ordering
from fleet.apply.sweep import Deletion, MachineSelection, delete_machines, run_deletion
from fleet.cli.arguments import Parser, add_file, add_order, option
from fleet.errors import WrongUsage
from fleet.guard.freezes import lift
from fleet.model.orders import Freeze
from fleet.ports import Console

_PASSES = 2
"""The first pass drains a worker, and the next one deletes it if it is idle."""


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet panic`."""
    add_file(parser)
    parser.add_argument("--pool", required=True, metavar="NAME", help="the pool")
    option(parser, "--confirm", "NAME", "the pool's name again; needed without a terminal")
    add_order(parser, seconds="4h", reason="panic")


def run(args: argparse.Namespace, console: Console) -> int:
    """Freeze creations, then drain and delete; the freeze is placed even without the lock."""
    ordering = Ordering.of(args, console)
    ordering.check_pool(args.pool)
    named = args.confirm or console.ask(
        f"drain pool {args.pool} and delete what is idle? its name once more: "
    )
    if named != args.pool:
        raise WrongUsage(f"nothing was changed: confirm with `--confirm {args.pool}`")
    freeze = Freeze(pool=args.pool, stops=("creates",), **ordering.terms(args))
    ordering.place(freeze)
    console.out(f"{freeze.sentence}; `{lift(freeze)}` ends it")
    choice = MachineSelection(pools=frozenset({args.pool}), by="fleet panic")
    deletion = Deletion(
        partial(delete_machines, choice=choice), "fleet apply", frozenset(), may_stay=True
    )
    args.apply, args.json = True, False
    codes = [
        run_deletion(args, console, ordering.config, ordering.sources, deletion)
        for _ in range(_PASSES)
    ]
    return codes[-1]
