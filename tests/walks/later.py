"""The program at the time of a story, which $WALK_CLOCK holds in seconds.

The clock of a forked process (`tests.rigs.warm`) is moved, so no other process sees that time.
Each run takes two seconds of the story, however busy the computer is.
"""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import time_machine

import fleet.__main__

A_RUN = 2.0


def main() -> None:
    """Run the program at its time."""
    clock = Path(os.environ["WALK_CLOCK"])
    now = float(clock.read_text(encoding="utf-8"))
    clock.write_text(str(now + A_RUN), encoding="utf-8")
    if "FLEET_PULUMI_PLUGINS" in os.environ:
        leave_grpc_here()
    time_machine.travel(now, tick=True).start()
    fleet.__main__.main()


def serve_simulated_machines() -> None:
    """Serve the real engine the simulated cloud, at the time of the run that started it."""
    # Few stories need it, and it is slow to load.
    from fleet.clouds.sim import plugin

    leave_grpc_here()
    now = float(Path(os.environ["WALK_CLOCK"]).read_text(encoding="utf-8")) - A_RUN
    time_machine.travel(now, tick=True).start()
    plugin.main()


def leave_grpc_here() -> None:
    """Have gRPC go by the computer's clock.

    Its core knows no other: told to wait until now, it would wait until the story's time is come.
    """
    # It is loaded by few runs, and ships no types.
    from grpc import _channel, _common, _server  # type: ignore[import-untyped]
    from grpc._cython import cygrpc  # type: ignore[import-untyped]

    clock = SimpleNamespace(**{**vars(time), "time": time_machine.escape_hatch.time.time})
    for module in (_channel, _common, _server, cygrpc):
        module.time = clock
