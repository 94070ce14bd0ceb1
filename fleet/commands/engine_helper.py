"""This module is a helper: a process that does an engine's operations for an apply.

Run by fleet itself: python -m fleet.commands.engine_helper DESCRIPTOR.
"""

import sys
from collections.abc import Callable

from fleet.commands.wiring import wire
from fleet.engines.apart import serve
from fleet.ports import Engine
from fleet.schema.model import Fleet


def engines_for(setting: tuple[Fleet, str]) -> Callable[[str], Engine]:
    """Return the engines of a fleet, wired as in the process that asks."""
    fleet, file = setting
    return wire(fleet, file).engine_of


if __name__ == "__main__":
    serve(int(sys.argv[1]), engines_for)
