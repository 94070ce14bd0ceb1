"""This module does to images what the action says, by the module of that action alone."""

import argparse
import importlib

from fleet.ports import Console


def run(args: argparse.Namespace, console: Console) -> int:
    """Carry out one action; what it needs is loaded for it only."""
    action = importlib.import_module(f"fleet.cli.image_{args.action}")
    code: int = action.run(args, console)
    return code
