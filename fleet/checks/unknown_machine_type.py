"""This module finds machine types whose cores and memory nothing says."""

from collections.abc import Iterator

from fleet.catalogue import find_types, known_types, type_names
from fleet.schema.findings import Finding, Path, nearest
from fleet.schema.model import Fleet, Pool

RULE = "unknown-machine-type"


def check(fleet: Fleet) -> Iterator[Finding]:
    """Require a machine type of the catalogue, or its cores and memory."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool):
            continue
        provider = fleet.providers.get(pool.provider)
        if provider is None:
            continue
        known = {each.name for each in find_types(fleet, pool)}
        path: Path = ("pools", name, "machine")
        wanted = type_names(pool)
        if not wanted and not known:
            sold = ", ".join(known_types(fleet, pool.provider))
            hint = f"add type: one of {sold}" if sold else "state cores and memory"
            said = "neither a machine type nor cores and memory are given"
            yield Finding(RULE, said, path, hint=hint)
        for number, each in enumerate(wanted):
            if each not in known:
                yield _finding(fleet, pool, each, (*path, *_place(pool, number)))


def _place(pool: Pool, number: int) -> Path:
    """Return where in `machine` a type is written."""
    if isinstance(pool.machine, str):
        return ()
    return ("type", number) if isinstance(pool.machine.type, list) else ("type",)


def _finding(fleet: Fleet, pool: Pool, wanted: str, path: Path) -> Finding:
    sold = known_types(fleet, pool.provider)
    close = nearest(wanted, sold)
    known = f"known: {', '.join(sold)}; or state" if sold else "state"
    return Finding(
        RULE,
        f"the catalogue has no machine type '{wanted}' for the provider '{pool.provider}'",
        path,
        hint=f"did you mean '{close}'?" if close else f"{known} cores, memory, disk and price",
    )
