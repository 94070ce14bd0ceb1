"""This module finds pools whose workers' names would not fit where they are registered."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.machine_names import beginning_of, speaks_resalloc
from fleet.schema.model import Fleet, Pool

LONGEST = 50
"""What Debusine's table of workers holds; a host name may have 63."""


def name_too_long(fleet: Fleet) -> Iterator[Finding]:
    """Require workers' names, fleet-pool-number, of at most 50 characters."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool):
            continue
        if speaks_resalloc(fleet, name):
            continue  # no queue of workers registers them
        longest = f"{beginning_of(fleet, name)}{max(1, pool.workers.max):04}"
        if len(longest) > LONGEST:
            yield Finding(
                "name-too-long",
                f"its workers would be called {longest}, {len(longest)} characters; "
                f"{LONGEST} fit into a worker's name",
                ("pools", name),
                at="key",
                hint=f"shorten the pool's name by {len(longest) - LONGEST}",
            )
