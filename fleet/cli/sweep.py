"""Delete machines whose expiry has passed, and those left by image builds.

The latter have no pool and no worker: one that is older than any build or upload takes was left by
a dead run.
"""

import argparse
from datetime import datetime

from fleet.apply.config import load_config
from fleet.apply.sweep import Deletion, run_deletion, sweep
from fleet.apply.wire import wire
from fleet.cli.arguments import Parser, add_file, add_json, flag
from fleet.clock import SystemClock, utc_now
from fleet.clouds.kinds import clouds_of
from fleet.errors import FleetError
from fleet.model.images import LEFT_AFTER
from fleet.ports import Console
from fleet.schema.model import Fleet


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet sweep`."""
    add_file(parser)
    parser.add_argument(
        "--expired",
        action="store_true",
        required=True,
        help="delete machines whose expiry has passed; each apply extends it (`expire_after`)",
    )
    flag(parser, "--apply", "delete them (default: only show them)")
    add_json(parser)


def sweep_temporary(
    fleet: Fleet, file: str, now: datetime, console: Console, *, apply: bool
) -> bool:
    """Print temporary machines, and delete them if requested; False if some are unknown."""
    is_whole = True
    for name, cloud in clouds_of(fleet, file, SystemClock()).items():
        try:
            for each in cloud.temporary(now - LEFT_AFTER, delete=apply):
                done = "deleted" if apply else "would be deleted"
                console.note(f"{name}: {each}, left by an interrupted build or upload: {done}")
        except FleetError as error:
            console.note(f"{name}: temporary machines are unknown: {error}")
            is_whole = False
    return is_whole


_SWEEP = Deletion(sweep, "fleet sweep --expired --apply")


def run(args: argparse.Namespace, console: Console) -> int:
    """Show the machines to delete, or delete them; machines not known to be idle are kept."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    code = run_deletion(args, console, config, sources, _SWEEP)
    is_whole = sweep_temporary(config.fleet, args.file, utc_now(), console, apply=args.apply)
    return code if is_whole else code or 1
