"""This module says what a machine offers by its figures: architectures, size classes, numbers.

Sizes are nominal: a machine reaches a figure also where it falls short of it by up to `TOLERANCE`,
because what a kernel reports of 64 GiB is a little less.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType

from fleet.catalogue import find_types
from fleet.catalogue.tables import MachineType
from fleet.schema.model import Fleet, Machine, Pool, Size

TOLERANCE = Decimal("0.05")
CLASS = "worker:class:"
BUILD_ARCH = "worker:build-arch:"
EXTERNAL_WORKER = "worker:type:external"
"""A worker outside of the server, for worker tasks: what every machine of a pool is."""
INTERNAL_WORKER = "worker:type:celery"
"""A worker inside the server, for server tasks: no machine of a pool is one."""

_NATIVE: Mapping[str, tuple[str, ...]] = MappingProxyType({"amd64": ("amd64", "i386")})
"""Debian architectures that every machine of an architecture runs without emulation.

Source: what real workers of Debusine 0.16.2 report as `system:architectures` on such machines.
"""
_ARMHF_TOO = ("cax", "c7g.")
"""Types of arm64 machines that run armhf as well: processors with AArch32 at EL0.

Source: Arm's technical reference manuals of Neoverse N1 (Hetzner's cax) and V1 (AWS's c7g).
It is no rule of arm64: Neoverse V2 and others have AArch64 alone.
"""

_MIB_PER_GIB = 1024
_PLACES = Decimal("0.000001")


def native_architectures(types: Iterable[MachineType]) -> tuple[str, ...]:
    """Return the architectures that each of these types runs without emulation, in order."""
    natives = [_native(each) for each in types]
    return tuple(a for a in natives[0] if all(a in each for each in natives)) if natives else ()


def _native(machine: MachineType) -> tuple[str, ...]:
    if machine.architecture == "arm64" and machine.name.startswith(_ARMHF_TOO):
        return ("arm64", "armhf")
    return _NATIVE.get(machine.architecture, (machine.architecture,))


def names_of(types: Iterable[MachineType]) -> str:
    """Return the names of a pool's machine types as text."""
    return " or ".join(each.name for each in types)


def figures_of(fleet: Fleet, pool: Pool) -> dict[str, Decimal]:
    """Return a machine's figures by the names of numeric tags; those not stated are left out.

    Of several types any may be made, so the least figure of them counts.
    """
    types = find_types(fleet, pool)
    if not types:
        return {}
    swap = pool.machine.swap if isinstance(pool.machine, Machine) else None
    cores = min(each.cores for each in types)
    figures = {"cores": Decimal(cores)} if cores else {}
    memory, disk = min(each.memory for each in types), min(each.disk for each in types)
    for name, mebibytes in (("memory", memory), ("disk", disk), ("swap", swap)):
        if mebibytes:
            gib = (Decimal(mebibytes) / _MIB_PER_GIB).quantize(_PLACES).normalize()
            figures[f"{name}_gib"] = gib
    return figures


def classes_of(fleet: Fleet, figures: Mapping[str, Decimal]) -> tuple[str, ...]:
    """Return the tags of every size class that these figures reach, sorted."""
    return tuple(
        sorted(CLASS + name for name, size in fleet.sizes.items() if _reaches(size, figures))
    )


def is_about(number: Decimal, nominal: Decimal) -> bool:
    """Say whether two statements of one figure agree, tolerance included."""
    return abs(number - nominal) <= TOLERANCE * max(number, nominal)


def _reaches(size: Size, figures: Mapping[str, Decimal]) -> bool:
    return all(
        figures.get(name, Decimal(-1)) >= least * (1 - TOLERANCE) for name, least in _least(size)
    )


def _least(size: Size) -> Iterator[tuple[str, Decimal]]:
    yield "cores", Decimal(size.cores)
    for name, mebibytes in (("memory", size.memory), ("disk", size.disk), ("swap", size.swap)):
        if mebibytes is not None:
            yield f"{name}_gib", Decimal(mebibytes) / _MIB_PER_GIB
