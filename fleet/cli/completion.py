"""Print a shell completion script."""

import argparse

from fleet.cli.arguments import Parser
from fleet.ports import Console


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet completion`."""
    parser.add_argument("shell", choices=["bash", "zsh", "tcsh"], help="the shell")


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the completion script of a shell."""
    import shtab

    console.out(shtab.complete(args.build_parser(), args.shell))
    return 0
