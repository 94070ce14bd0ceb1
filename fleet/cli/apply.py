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


def run(args: argparse.Namespace, console: "Console", signals: "Signals | None" = None) -> int:
    """Apply what a plan made under the lock says, and print the outcome."""
    # A loop waits for nobody: its helpers are started when they are needed.
    with nullcontext() if args.every is not None else early_process(args.file) as process:
        from fleet.apply.loop import run_as_told

        return run_as_told(args, console, signals, process)
