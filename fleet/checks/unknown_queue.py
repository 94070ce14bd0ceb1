"""This module finds names of queues that nothing declares."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, did_you_mean
from fleet.schema.model import Fleet

RULE = "unknown-queue"


def check(fleet: Fleet) -> Iterator[Finding]:
    """Require that a queue served by a pool is declared under `queues`."""
    for name, pool in fleet.pools.items():
        for number, queue in enumerate(pool.serves or ()):
            if queue not in fleet.queues:
                yield Finding(
                    RULE,
                    f"there is no queue '{queue}'",
                    ("pools", name, "serves", number),
                    hint=did_you_mean(queue, fleet.queues)
                    or f"declare it: queues: {{{queue}: …}}",
                )
