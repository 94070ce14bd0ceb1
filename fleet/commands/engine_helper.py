"""This module is a helper: a process that does an engine's operations for an apply.

Run by fleet itself: python -m fleet.commands.engine_helper DESCRIPTOR.
"""

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fleet.commands.clock import SystemClock
from fleet.commands.clouds import engines_of, find_clouds
from fleet.engines.apart import serve
from fleet.engines.pulumi_cli import known_cli
from fleet.errors import EngineAbsent
from fleet.ports import Engine
from fleet.schema.model import Fleet
from fleet.store.places import find_places
from fleet.store.secrets import HostSecrets


def engines_for(setting: tuple[Fleet, str]) -> Callable[[str], Engine]:
    """Return the engines of a fleet, wired as in the process that asks, and nothing else."""
    fleet, file = setting
    base, places, clock = Path(file).resolve().parent, find_places(fleet, file), SystemClock()
    clouds = find_clouds(fleet, places, base, clock)
    # Whoever started it still looks and plans: this is the time to get ready.
    importlib.import_module("fleet.engines.pulumi_stack")
    with suppress(EngineAbsent):
        known_cli()
    return engines_of(fleet, places, clouds, HostSecrets(os.environ, base), clock.now())


if __name__ == "__main__":
    serve(int(sys.argv[1]), engines_for)
    # Nothing is left to be written; taking the interpreter down would only be waited for.
    os._exit(0)
