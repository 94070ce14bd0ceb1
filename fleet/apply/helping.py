"""This module does an engine's operations for an apply that runs in another process."""

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fleet.apply.clocks import SystemClock
from fleet.apply.wire import engines_of, find_clouds
from fleet.engines.parallel import serve
from fleet.engines.pulumi_cli import known_cli
from fleet.errors import EngineAbsent
from fleet.ports import Engine
from fleet.schema.model import Fleet
from fleet.state.places import find_places
from fleet.state.secrets import HostSecrets


def engines_for(setting: tuple[Fleet, str]) -> Callable[[str], Engine]:
    """Return the engines of a fleet, wired as in the process that asks, and nothing else."""
    fleet, file = setting
    base, places, clock = Path(file).resolve().parent, find_places(fleet, file), SystemClock()
    clouds = find_clouds(fleet, places, base, clock)
    return engines_of(fleet, places, clouds, HostSecrets(os.environ, base), clock.now())


def run(descriptor: int) -> None:
    """Do what is asked for through a pipe, and end."""
    # Whoever started it still looks and plans: this is the time to get ready.
    for module in ("fleet.engines.pulumi_automation", "fleet.engines.pulumi"):
        importlib.import_module(module)
    with suppress(EngineAbsent):
        known_cli()
    serve(descriptor, engines_for)
    # Nothing is left to be written; taking the interpreter down would only be waited for.
    os._exit(0)
