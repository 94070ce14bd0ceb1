"""This module finds names of queues that nothing declares."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, did_you_mean
from fleet.schema.model import CoprQueue, Fleet, TicketQueue


def unknown_queue(fleet: Fleet) -> Iterator[Finding]:
    """Require that a queue that is named, by a pool or a Copr, is declared under `queues`."""
    for name, pool in fleet.pools.items():
        for number, queue in enumerate(pool.serves or ()):
            if queue not in fleet.queues:
                yield Finding(
                    "unknown-queue",
                    f"there is no queue '{queue}'",
                    ("pools", name, "serves", number),
                    hint=did_you_mean(queue, fleet.queues)
                    or f"declare it: queues: {{{queue}: …}}",
                )
    desks = [name for name, queue in fleet.queues.items() if isinstance(queue, TicketQueue)]
    for name, copr in fleet.queues.items():
        if isinstance(copr, CoprQueue) and copr.tickets is not None and copr.tickets not in desks:
            yield Finding(
                "unknown-queue",
                f"there is no queue '{copr.tickets}' of kind tickets",
                ("queues", name, "tickets"),
                hint=did_you_mean(copr.tickets, desks)
                or f"declare it: queues: {{{copr.tickets}: {{kind: tickets}}}}",
            )
