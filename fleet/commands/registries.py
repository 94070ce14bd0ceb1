"""This module wires the registries of queues whose workers fleet makes."""

from functools import cache, partial

from fleet.queues.debusine.channels import Channel, CommandChannel, SqlChannel
from fleet.queues.debusine.registry import DebusineRegistry
from fleet.schema.model import DebusineQueue, Fleet
from fleet.store.secrets import HostSecrets


def registries_of(fleet: Fleet, secrets: HostSecrets) -> dict[str, DebusineRegistry]:
    """Return queue name to its registry, where `admin` says how it is told anything."""
    return {
        name: DebusineRegistry(name, fleet.fleet, _channel(queue, secrets))
        for name, queue in fleet.queues.items()
        if isinstance(queue, DebusineQueue) and queue.admin
    }


def _channel(queue: DebusineQueue, secrets: HostSecrets) -> Channel:
    if isinstance(queue.admin, list):
        return CommandChannel(queue.admin)
    # Asked for only when something is written: read commands need no such secret.
    dsn = queue.admin.dsn if queue.admin else None
    return SqlChannel(cache(partial(secrets.read, dsn)))
