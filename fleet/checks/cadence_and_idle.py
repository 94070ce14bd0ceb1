"""This module finds times too short for how often somebody looks."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, Path
from fleet.schema.model import Fleet, Pool
from fleet.schema.units import write_duration

_RUNS = 3
"""So many runs may fail before machines expire."""


def cadence_and_idle(fleet: Fleet) -> Iterator[Finding]:
    """Warn where `retire.idle_after` or `boot.deadline` is shorter than `cadence`.

    And where `expire_after` is not a few times as long: a run may fail, and its machines live.
    """
    if fleet.expire_after < _RUNS * fleet.cadence:
        yield _hasty(fleet)
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool):
            continue
        for section, key in (("retire", "idle_after"), ("boot", "deadline")):
            written = getattr(pool, section)
            if getattr(written, key) < fleet.cadence:
                is_own = key in written.model_fields_set
                path: Path = ("pools", name, section, key) if is_own else ("cadence",)
                yield _warning(fleet, path, key, getattr(written, key))


def _hasty(fleet: Fleet) -> Finding:
    least = write_duration(_RUNS * fleet.cadence)
    return Finding(
        "cadence-and-idle",
        f"expire_after is {write_duration(fleet.expire_after)}, but fleet apply runs every "
        f"{write_duration(fleet.cadence)}: machines expire when {_RUNS} runs fail",
        ("expire_after",) if "expire_after" in fleet.model_fields_set else ("cadence",),
        severity="warning",
        hint=f"run more often, or make expire_after at least {least}",
    )


def _warning(fleet: Fleet, path: Path, key: str, seconds: int) -> Finding:
    return Finding(
        "cadence-and-idle",
        f"{key} is {write_duration(seconds)}, but fleet apply runs every "
        f"{write_duration(fleet.cadence)}: nothing is noticed sooner",
        path,
        severity="warning",
        hint=f"run more often, or make {key} at least {write_duration(fleet.cadence)}",
    )
