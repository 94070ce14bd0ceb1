"""This module finds pools that would hold machines although a tag of theirs is on demand."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.sources import pool_sources
from fleet.tagrules.vocabulary import Vocabulary


def on_demand_pool_with_warm_machines(fleet: Fleet) -> Iterator[Finding]:
    """Refuse `min` and `spare` in a pool that provides an on-demand tag."""
    if not any(rule.on_demand for rule in fleet.tags.values()):
        return
    vocabulary = Vocabulary(fleet)
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool):
            continue
        provided = dict.fromkeys(each.tag for each in pool_sources(fleet, name, ()))
        on_demand = [tag for tag in provided if vocabulary.is_on_demand(tag)]
        for key in ("min", "spare"):
            figure = getattr(pool.workers, key)
            if on_demand and figure:
                yield Finding(
                    "on-demand-pool-with-warm-machines",
                    f"{key} is {figure}, but the pool provides '{on_demand[0]}', "
                    "which is on demand: it holds nothing while nothing asks",
                    ("pools", name, "workers", key),
                    hint=f"remove {key}, or provide the tag in a pool of its own",
                )
