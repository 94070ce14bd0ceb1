"""This module finds renamed pools whose old name still stands for a pool."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, Pool


def previously_still_there(fleet: Fleet) -> Iterator[Finding]:
    """Require that the name in `previously` is no pool's any more, and has one heir at most."""
    heirs: dict[str, str] = {}
    for name, pool in fleet.pools.items():
        old = pool.previously if isinstance(pool, Pool) else None
        if old is None:
            continue
        path = ("pools", name, "previously")
        if old in fleet.pools:
            yield Finding(
                "previously-still-there",
                f"a pool '{old}' still exists, so this pool cannot be what it became",
                path,
                hint=f"remove the pool '{old}', or this key",
            )
        elif old in heirs:
            yield Finding(
                "previously-still-there",
                f"the pool '{heirs[old]}' already continues '{old}'",
                path,
                hint="only one pool can take over the old one's machines",
            )
        heirs.setdefault(old, name)
