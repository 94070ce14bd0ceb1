"""This module finds the Debusine server that `fleet image build --on QUEUE` means."""

import argparse
import os
from pathlib import Path

from fleet.errors import FleetError, WrongUsage
from fleet.images.requests import RequestBuilder
from fleet.schema.model import DebusineQueue, Fleet
from fleet.store.secrets import HostSecrets


def request_builder(
    fleet: Fleet, args: argparse.Namespace, images: Path, mirror: str | None
) -> RequestBuilder:
    """Return what builds at a queue's server, with the queue's token."""
    for option in ("snapshot", "raw", "check_reproducible"):
        if getattr(args, option):
            name = option.replace("_", "-")
            raise WrongUsage(f"--{name} is for builds on this computer; leave it out with --on")
    queue = fleet.queues.get(args.on)
    if not isinstance(queue, DebusineQueue):
        known = [name for name, each in fleet.queues.items() if isinstance(each, DebusineQueue)]
        raise FleetError(
            f"there is no Debusine queue {args.on}; there are: {', '.join(known) or 'none'}"
        )
    if queue.token is None:
        raise FleetError(
            f"queue {args.on} has no token; a work request is posted with one: give it the "
            "`token` of a user who is a contributor of the workspace"
        )
    scope, _, name = (args.workspace or "").rpartition("/")
    return RequestBuilder(
        images=images,
        url=queue.url,
        scope=scope or queue.scopes[0],
        token=HostSecrets(os.environ, Path(args.file).resolve().parent).read(queue.token),
        workspace=name or None,
        mirror=mirror,
    )
