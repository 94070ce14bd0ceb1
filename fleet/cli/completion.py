"""Print a shell completion script."""

import argparse

from fleet.cli.arguments import argument
from fleet.ports import Console

ARGUMENTS = (argument("shell", choices=["bash", "zsh", "tcsh"], help="the shell"),)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the completion script of a shell."""
    import shtab

    console.out(shtab.complete(args.build_parser(), args.shell))
    return 0
