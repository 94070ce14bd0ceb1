"""This module finds pools that ask for more disk than a machine type of Hetzner has."""

from collections.abc import Iterator

from fleet.catalogue import listed_type, type_names
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, HcloudProvider, Machine, Pool


def disk_above_type(fleet: Fleet) -> Iterator[Finding]:
    """Require that the disk of each type a pool names holds what the pool needs of it."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool) or not isinstance(pool.machine, Machine):
            continue
        machine, provider = pool.machine, fleet.providers.get(pool.provider)
        needed = (machine.disk or 0) + (machine.swap or 0)
        if not isinstance(provider, HcloudProvider) or not needed:
            continue
        sold = [listed_type(fleet, pool.provider, each) for each in type_names(pool)]
        small = [each for each in sold if each is not None and each.disk < needed]
        if small:
            said = ", ".join(f"{each.name} has {_gib(each.disk)}" for each in small)
            key = "disk" if machine.disk else "swap"
            yield Finding(
                "disk-above-type",
                f"disk and swap need {_gib(needed)}, but {said}; Hetzner sells no disk above that "
                "of the type",
                ("pools", name, "machine", key),
                hint="name a larger type, or ask for less",
            )


def _gib(mebibytes: int) -> str:
    return f"{mebibytes / 1024:g}GiB"
