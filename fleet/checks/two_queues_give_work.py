"""This module finds pools whose machines two queues would give work to at once."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import DebusineQueue, Fleet, TicketQueue
from fleet.tagrules import serves_queue


def two_queues_give_work(fleet: Fleet) -> Iterator[Finding]:
    """Refuse pools that serve tickets and a Debusine: neither asks the other what it gave out."""
    kinds = {name: type(queue) for name, queue in fleet.queues.items()}
    for name, pool in fleet.pools.items():
        served = sorted(queue for queue in kinds if serves_queue(pool, queue))
        desks = [queue for queue in served if kinds[queue] is TicketQueue]
        servers = [queue for queue in served if kinds[queue] is DebusineQueue]
        if desks and servers:
            yield Finding(
                "two-queues-give-work",
                f"pool {name} serves the tickets of {desks[0]} and the workers of {servers[0]}: "
                "each would give work to a machine that is busy for the other",
                ("pools", name, "serves") if pool.serves is not None else ("pools", name),
                at="value" if pool.serves is not None else "key",
                hint=f"write serves: [{desks[0]}] or serves: [{servers[0]}]",
            )
