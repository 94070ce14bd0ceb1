"""This module reads a fleet.yaml by the names that a changed one gives to its pools.

One observation tells of a renamed pool under its new name only; by its old one it would seem to
have lost all its machines.
"""

from collections.abc import Mapping

from fleet.census.renames import heirs_of
from fleet.schema.model import Fleet, Pool


def find_renames(base: Fleet, head: Fleet) -> dict[str, str]:
    """Return what the pools that a change renames were called, and what they are called now."""
    return {
        old: new
        for old, new in heirs_of(head).items()
        if isinstance(base.pools.get(old), Pool) and new not in base.pools
    }


def rename_pools(base: Fleet, renames: Mapping[str, str]) -> Fleet:
    """Return a fleet.yaml with these pools called so; their machines are found as before."""
    pools = {
        renames.get(name, name): pool.model_copy(update={"previously": name})
        if name in renames
        else pool
        for name, pool in base.pools.items()
    }
    approvals = [
        each.model_copy(update={"pool": renames.get(each.pool, each.pool)})
        for each in base.approvals
    ]
    return base.model_copy(update={"pools": pools, "approvals": approvals})
