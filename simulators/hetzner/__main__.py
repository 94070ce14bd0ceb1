"""Serve the simulated Hetzner API until Ctrl-C: `python -m simulators.hetzner`."""

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from fleet.errors import FleetError
from simulators.hetzner.server import SimulatedHetzner


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m simulators.hetzner",
        description="Serve Hetzner Cloud's API on this computer, for trials without an account.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="loopback port (default: a free one)"
    )
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="load resources from FILE and save them there"
    )
    args = parser.parse_args(arguments)
    try:
        api = SimulatedHetzner(port=args.port, state_file=args.state)
    except OSError as error:
        parser.exit(1, f"cannot listen on port {args.port} ({error.strerror}); choose another\n")
    except FleetError as error:
        parser.exit(1, f"{error}\n")
    with api:
        print(
            f"Simulated Hetzner Cloud at {api.endpoint}; Ctrl-C stops it.\n"
            "To use it, run in your shell:\n\n"
            f"  export HCLOUD_ENDPOINT={api.endpoint}\n"
            f"  export HCLOUD_TOKEN={api.token}",
            flush=True,
        )
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            kept = f"saved in {args.state}" if args.state else "discarded"
            print(f"stopped; {len(api.state.servers)} servers {kept}", file=sys.stderr)
    return 0


def _port(text: str) -> int:
    if text.isdecimal() and int(text) <= 65535:  # noqa: PLR2004 - the highest port
        return int(text)
    raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")


if __name__ == "__main__":
    sys.exit(main())
