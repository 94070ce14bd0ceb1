"""This module finds pools whose names do not fit into the names of their machines."""

import re
from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.machine_names import speaks_resalloc
from fleet.schema.model import Fleet
from fleet.schema.units import NAME_PATTERN


def pool_name(fleet: Fleet) -> Iterator[Finding]:
    """Require a host's name of each pool whose commands were not written for Resalloc."""
    for name in fleet.pools:
        if not (re.fullmatch(NAME_PATTERN, name) or speaks_resalloc(fleet, name)):
            yield Finding(
                "pool-name",
                f"pool {name}: its machines are called after it, and hosts have names of "
                "lower-case letters, digits and hyphens, 31 characters of a pool's at most",
                ("pools", name),
                at="key",
                hint="only machines of commands that were written for Resalloc (interface: "
                "resalloc) can have another",
            )
