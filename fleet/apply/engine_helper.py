"""Run the operations of an engine in this process, for an apply in another process.

`fleet apply` starts it with `python -m fleet.apply.engine_helper DESCRIPTOR`.
"""

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from fleet.apply.wire import engines_of
from fleet.clock import SystemClock
from fleet.clouds.kinds import clouds_of
from fleet.engines.parallel import serve
from fleet.engines.pulumi_backends import known_cli
from fleet.errors import EngineAbsent
from fleet.ports import Engine
from fleet.schema.model import Fleet
from fleet.state.secrets import HostSecrets
from fleet.state.storage import find_storage


def engines_for(setting: tuple[Fleet, str]) -> Callable[[str], Engine]:
    """Return a function from provider to engine, wired as in the parent process."""
    fleet, file = setting
    clock, secrets = SystemClock(), HostSecrets.beside(file)
    clouds = clouds_of(fleet, file, clock)
    return engines_of(fleet, find_storage(fleet, file), clouds, secrets, clock.now())


def run(descriptor: int) -> None:
    """Serve the operations that the parent process requests through a pipe, then exit."""
    # The parent is still observing: import slow modules now.
    with suppress(EngineAbsent, ModuleNotFoundError):  # `engines_for` reports it
        for module in ("fleet.engines.pulumi_host", "fleet.engines.pulumi"):
            importlib.import_module(module)
        known_cli()
    serve(descriptor, engines_for)
    os._exit(0)  # no output is pending; the parent waits for this process to exit


if __name__ == "__main__":
    run(int(sys.argv[1]))
