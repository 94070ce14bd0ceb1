"""This module says how the machines of a pool are called, before their number."""

from fleet.schema.model import Fleet, HooksProvider, Pool


def beginning_of(fleet: Fleet, pool: str) -> str:
    """Return how the names of a pool's machines begin, before their number.

    Commands that were written for Resalloc look for machines that begin with their pool's name;
    the `f` keeps them apart from Resalloc's own, as in POOL_00010001_20261122_181715.
    """
    return f"{pool}_f" if speaks_resalloc(fleet, pool) else f"{fleet.fleet}-{pool}-"


def is_named_by_fleet(fleet: str, pool: str, name: str) -> bool:
    """Say whether a machine is called as fleet calls, or once called, those of its pool."""
    begins = (each for each in (f"{fleet}-{pool}-", f"{pool}_f") if name.startswith(each))
    return any(name.removeprefix(each).isdecimal() for each in begins)


def speaks_resalloc(fleet: Fleet, pool: str) -> bool:
    """Say whether a pool's machines are made by commands that were written for Resalloc."""
    declared = fleet.pools.get(pool)
    provider = fleet.providers.get(declared.provider) if isinstance(declared, Pool) else None
    return isinstance(provider, HooksProvider) and provider.interface == "resalloc"
