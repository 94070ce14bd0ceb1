"""This module makes it so, once or again and again: lock, observe, plan, guard, change, record.

A helper of the engine is started first; while it gets ready, the rest is loaded.
"""

import argparse
from contextlib import nullcontext
from typing import TYPE_CHECKING

from fleet.apply.parallel import early_process

if TYPE_CHECKING:
    from fleet.apply.signals import Signals
    from fleet.ports import Console
from fleet.cli.arguments import Parser, add_file


def arguments(parser: Parser) -> None:
    """Declare what `fleet apply` takes."""
    add_file(parser)
    parser.add_argument(
        "plan",
        nargs="?",
        metavar="PLAN",
        help="a plan saved by `fleet plan --out`: refuse, with the difference, where the plan of "
        "now is another",
    )
    parser.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="NAME",
        help="change only this pool; may be repeated. Guards still count the whole fleet",
    )
    parser.add_argument(
        "--jobs",
        type=_count,
        metavar="N",
        help="change at most N pools of the real engine at once (default: one per CPU, 2 to 8)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the outcome as JSON; with --every, that of each run on a line of its own",
    )
    parser.add_argument(
        "--every",
        metavar="DURATION",
        help="apply again and again, as in --every 60s; Ctrl-C or SIGTERM ends it",
    )
    parser.add_argument(
        "--for",
        dest="most",
        metavar="DURATION",
        help="with --every: begin no run later than this after the first, as in --for 14m",
    )
    parser.add_argument(
        "--until-quiet",
        action="store_true",
        help="with --every: end when nothing is to do and nothing is on the way",
    )
    parser.add_argument(
        "--trust-clock",
        action="store_true",
        help="apply once though the clock differs by much from the last run's or the server's",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, not {text}")
    return int(text)


def run(args: argparse.Namespace, console: "Console", signals: "Signals | None" = None) -> int:
    """Apply what a plan made under the lock says, and print the outcome."""
    # A loop waits for nobody: its helpers are started when they are needed.
    with nullcontext() if args.every is not None else early_process(args.file) as process:
        from fleet.apply.loop import run_as_told

        return run_as_told(args, console, signals, process)
