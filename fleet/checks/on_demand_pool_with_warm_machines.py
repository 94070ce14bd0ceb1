"""This module finds pools that would hold machines although a tag of theirs is on demand."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, Pool

RULE = "on-demand-pool-with-warm-machines"


def check(fleet: Fleet) -> Iterator[Finding]:
    """Refuse `min` and `spare` in a pool that provides an on-demand tag."""
    patterns = [tag for tag, rule in fleet.tags.items() if rule.on_demand]
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool):
            continue
        image = fleet.images.get(pool.image)
        provided = [*pool.provides, *(image.provides if image else ())]
        on_demand = [t for t in provided if any(fnmatchcase(t, pattern) for pattern in patterns)]
        for key in ("min", "spare"):
            figure = getattr(pool.workers, key)
            if on_demand and figure:
                yield Finding(
                    RULE,
                    f"{key} is {figure}, but the pool provides '{on_demand[0]}', "
                    "which is on demand: it holds nothing while nothing asks",
                    ("pools", name, "workers", key),
                    hint=f"remove {key}, or provide the tag in a pool of its own",
                )
