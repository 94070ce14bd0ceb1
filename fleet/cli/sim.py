"""This module simulates a cloud that is asked over the network, until Ctrl-C."""

import argparse
import threading
from pathlib import Path

from fleet.errors import FleetError
from fleet.ports import Console
from simulators.hetzner.server import SimulatedHetzner


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve the simulated Hetzner API, and say how to ask it."""
    state = Path(args.state) if args.state else None
    try:
        api = SimulatedHetzner(port=args.port, state_file=state)
    except OSError as error:
        raise FleetError(
            f"port {args.port} of this computer cannot be listened at ({error.strerror}); name "
            "another, or none for a free one"
        ) from error
    with api:
        console.out(
            f"A simulated Hetzner Cloud listens at {api.endpoint}; Ctrl-C ends it.\n"
            "In the shell that is to use it:\n\n"
            f"  export HCLOUD_ENDPOINT={api.endpoint}\n"
            f"  export HCLOUD_TOKEN={api.token}"
        )
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            console.note(f"ended; {len(api.state.servers)} servers {_kept(state)}")
    return 0


def _kept(state: Path | None) -> str:
    return f"are kept in {state}" if state else "are forgotten"
