"""This module finds pools that must hold more workers than they may."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, StaticPool

RULE = "min-above-max"


def check(fleet: Fleet) -> Iterator[Finding]:
    """Require that `min`, `spare` and `max_starting` are not above `max`."""
    for name, pool in fleet.pools.items():
        workers = None if isinstance(pool, StaticPool) else pool.workers
        if workers is None:
            continue
        for key in ("min", "spare", "max_starting"):
            figure = getattr(workers, key)
            if figure is not None and figure > workers.max:
                yield Finding(
                    RULE,
                    f"{key} is {figure}, but max is {workers.max}",
                    ("pools", name, "workers", key),
                    hint=f"lower {key} to {workers.max} or raise max",
                )
