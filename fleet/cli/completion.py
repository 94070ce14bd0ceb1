"""This module prints a shell completion script."""

import argparse

from fleet.ports import Console


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the script for the shell named."""
    import shtab

    console.out(shtab.complete(args.parser, args.shell))
    return 0
