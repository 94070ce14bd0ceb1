"""This module finds waits that no new machine can keep to."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, Pool
from fleet.schema.units import write_duration


def target_wait_below_boot(fleet: Fleet) -> Iterator[Finding]:
    """Warn where `target_wait` is not longer than `boot.expected`."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool) or pool.target_wait is None:
            continue
        if pool.target_wait <= pool.boot.expected:
            boots = write_duration(pool.boot.expected)
            yield Finding(
                "target-wait-below-boot",
                f"target_wait is {write_duration(pool.target_wait)}, but a machine boots for "
                f"{boots}: none serves a second request within it",
                ("pools", name, "target_wait"),
                severity="warning",
                hint=f"make it longer than boot.expected ({boots}), or remove it: one machine "
                "per waiting request",
            )
