"""This module finds machine types whose cores and memory nothing says."""

from collections.abc import Iterator

from fleet.catalogue import find_type, known_types
from fleet.schema.findings import Finding, Path, nearest
from fleet.schema.model import Fleet, HooksProvider, LocalProvider, Pool

RULE = "unknown-machine-type"


def check(fleet: Fleet) -> Iterator[Finding]:
    """Require a machine type of the catalogue, or its cores and memory."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool):
            continue
        provider = fleet.providers.get(pool.provider)
        if provider is None or isinstance(provider, HooksProvider | LocalProvider):
            continue
        if find_type(fleet, pool) is None:
            yield _finding(fleet, pool, ("pools", name, "machine"))


def _finding(fleet: Fleet, pool: Pool, path: Path) -> Finding:
    known = known_types(fleet, pool.provider)
    is_text = isinstance(pool.machine, str)
    wanted = pool.machine if isinstance(pool.machine, str) else pool.machine.type
    if wanted is None:
        return Finding(
            RULE,
            "neither a machine type nor cores and memory are given",
            path,
            hint=f"add type: one of {', '.join(known)}",
        )
    close = nearest(wanted, known)
    return Finding(
        RULE,
        f"the catalogue has no machine type '{wanted}' for the provider '{pool.provider}'",
        path if is_text else (*path, "type"),
        hint=f"did you mean '{close}'?"
        if close
        else f"known: {', '.join(known)}; or state cores, memory, disk and price",
    )
