"""This module finds pools at a cloud whose machines nobody could ever be given."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import AwsProvider, Fleet, HcloudProvider, Pool, Ready, TicketQueue
from fleet.tagrules.offers import serves_queue, works_for_nobody

_SSH = 22
_ALL = "any"


def never_ready(fleet: Fleet) -> Iterator[Finding]:
    """Require that a pool's machines work for somebody, and that the port of `ready` is open."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool):
            continue
        if works_for_nobody(fleet, pool):
            yield _idle(name, pool)
        if pool.ready is not None:
            yield from _of_ready(fleet, name, pool, pool.ready)


def _idle(name: str, pool: Pool) -> Finding:
    return Finding(
        "never-ready",
        f"machines of pool '{name}' would never register: none of its queues gives workers a "
        "token, or gives machines to tickets; it makes none",
        ("pools", name, "serves" if pool.serves is not None else "provider"),
        severity="warning",
        hint="serve a queue of kind debusine or tickets",
    )


def _of_ready(fleet: Fleet, name: str, pool: Pool, ready: Ready) -> Iterator[Finding]:
    path = ("pools", name, "ready")
    provider = fleet.providers.get(pool.provider)
    if not isinstance(provider, HcloudProvider | AwsProvider):
        yield Finding(
            "never-ready",
            f"`ready` is for machines of hcloud and aws, and '{pool.provider}' is neither: "
            "nothing would look at the port",
            path,
            hint="remove it; a provider of kind hooks has `livecheck`",
        )
        return
    desks = [
        queue
        for queue, each in fleet.queues.items()
        if isinstance(each, TicketQueue) and serves_queue(pool, queue)
    ]
    if not desks:
        yield Finding(
            "never-ready",
            f"`ready` decides when a ticket gets a machine, and pool '{name}' serves no queue of "
            "kind tickets",
            path,
            hint="remove it, or serve a queue of kind tickets",
        )
    if not _lets_through(provider, ready.port):
        key = "firewall" if isinstance(provider, HcloudProvider) else "ssh_from"
        yield Finding(
            "never-ready",
            f"nothing reaches port {ready.port} at provider '{pool.provider}': "
            f"`{key}` lets nothing through to it, so that no machine becomes ready",
            (*path, "port") if "port" in ready.model_fields_set else path,
            hint=f"let this computer through in providers.{pool.provider}.{key}",
        )


def _lets_through(provider: HcloudProvider | AwsProvider, port: int) -> bool:
    """Say whether a firewall lets anybody through to a port."""
    if isinstance(provider, AwsProvider):
        return port == _SSH and bool(provider.ssh_from)
    if provider.firewall is None:
        return True
    return any(
        rule.direction == "in" and rule.protocol == "tcp" and _covers(rule.port or _ALL, port)
        for rule in provider.firewall
    )


def _covers(ports: str, port: int) -> bool:
    if ports == _ALL:
        return True
    first, _, last = ports.partition("-")
    return int(first) <= port <= int(last or first)
