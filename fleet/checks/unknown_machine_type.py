"""This module finds machine types whose cores and memory nothing says."""

import re
from collections.abc import Iterator, Mapping

from fleet.catalogue import find_types, known_types, shipped_types, type_names
from fleet.catalogue.tables import MachineType
from fleet.schema.findings import Finding, Path, nearest
from fleet.schema.model import Fleet, HcloudProvider, Pool


def unknown_machine_type(fleet: Fleet) -> Iterator[Finding]:
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
            yield Finding("unknown-machine-type", said, path, hint=hint)
        for number, each in enumerate(wanted):
            if each not in known:
                yield _finding(fleet, pool, each, (*path, *_place(pool, number)))
    yield from _measured(fleet)


def _measured(fleet: Fleet) -> Iterator[Finding]:
    """Yield the machine types of `durations` that nobody sells and that no cores are stated of."""
    sold = sorted({each for name in fleet.providers for each in known_types(fleet, name)})
    for task, stated in fleet.durations.items():
        for number, each in enumerate(stated if isinstance(stated, list) else ()):
            if each.machine is not None and each.machine not in sold and each.cores is None:
                close = nearest(each.machine, sold)
                yield Finding(
                    "unknown-machine-type",
                    f"no provider sells a machine type '{each.machine}': how much faster others "
                    "are is not known",
                    ("durations", task, number, "machine"),
                    hint=f"did you mean '{close}'?" if close else "state its cores",
                )


def _place(pool: Pool, number: int) -> Path:
    """Return where in `machine` a type is written."""
    if isinstance(pool.machine, str):
        return ()
    return ("type", number) if isinstance(pool.machine.type, list) else ("type",)


def _finding(fleet: Fleet, pool: Pool, wanted: str, path: Path) -> Finding:
    sold = known_types(fleet, pool.provider)
    close = _alike(wanted, shipped_types(fleet, pool.provider)) or nearest(wanted, sold)
    known = f"known: {', '.join(sold)}; or state" if sold else "state"
    said = f"the catalogue has no machine type '{wanted}' for the provider '{pool.provider}'"
    # Hetzner is asked what it sells; there a newer type is known.
    may_be_new = isinstance(
        fleet.providers[pool.provider], HcloudProvider
    ) and _HETZNERS.fullmatch(wanted)
    return Finding(
        "unknown-machine-type",
        f"{said}: the pool makes none unless Hetzner's own price list has it"
        if may_be_new
        else said,
        path,
        severity="warning" if may_be_new else "error",
        hint=f"did you mean '{close}'?" if close else f"{known} cores, memory, disk and price",
    )


_HETZNERS = re.compile(r"c[a-z]{1,3}\d{2}")
"""What Hetzner's names of machine types look like, those to come too."""
_NAME = re.compile(r"(?P<line>[a-z]+)(?P<number>\d+)(?P<kind>[a-z-]*)(?:\.(?P<size>[a-z0-9]+))?")


def _alike(wanted: str, types: Mapping[str, MachineType]) -> str:
    """Return the type nearest to one that is sold no more, or not yet; "" for no such name.

    It is one of the same line, as cx and ccx are lines of Hetzner and c and m of EC2, which has
    the same kind of cores; of the same architecture; then of the same size, then the next number.
    """
    asked = _NAME.fullmatch(wanted.lower())
    if asked is None:
        return ""
    near = []
    for name, known in types.items():
        other = _NAME.fullmatch(name)
        # EC2 marks machines of its ARM processors with a g behind the number.
        arm = "g" in asked["kind"] if asked["size"] else known.architecture == "arm64"
        if other is None or other["line"] != asked["line"]:
            continue
        if (known.architecture == "arm64") == arm:
            apart = abs(int(other["number"]) - int(asked["number"]))
            unlike = (
                other["size"] != asked["size"],
                known.price is None,
                other["kind"] != asked["kind"],
            )
            near.append((*unlike, apart, name))
    return min(near)[-1] if near else ""
