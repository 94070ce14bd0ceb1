"""This module finds pools that must hold more workers than they may, and guards like that."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, StaticPool


def min_above_max(fleet: Fleet) -> Iterator[Finding]:
    """Require that no figure is above the one that bounds it."""
    boots = fleet.guards.boot_failures
    if boots.stop_after > boots.of_last:
        yield Finding(
            "min-above-max",
            f"stop_after is {boots.stop_after}, but of_last is {boots.of_last}",
            ("guards", "boot_failures", "stop_after"),
            hint=f"lower stop_after to {boots.of_last} or raise of_last",
        )
    for name, pool in fleet.pools.items():
        workers = None if isinstance(pool, StaticPool) else pool.workers
        if workers is None:
            continue
        for key in ("min", "spare", "max_starting"):
            figure = getattr(workers, key)
            if figure is not None and figure > workers.max:
                yield Finding(
                    "min-above-max",
                    f"{key} is {figure}, but max is {workers.max}",
                    ("pools", name, "workers", key),
                    hint=f"lower {key} to {workers.max} or raise max",
                )
