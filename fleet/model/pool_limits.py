"""The size of a pool, the pace of its replacements, and the boot time of its machines.

Planner, guards, explanations, reports and runs read `workers`, `replace`, `boot` and
`ready.within` only here (tests/architecture/test_rules_of_life.py).
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.model.plan import Replaced
from fleet.schema.model import Boot, BootFailure, Pool


class PoolSize(NamedTuple):
    """The limits on the number of workers in a pool."""

    max: int = 0
    min: int = 0
    spare: int = 0
    max_starting: int | None = None

    @property
    def permanent(self) -> int:
        """Return the number of workers that are kept even if no request waits."""
        return max(self.min, self.spare)


def size_of(pool: object, *, on_demand: bool = False) -> PoolSize:
    """Return the limits of a pool: all 0 if removed; no `min` or `spare` if `on_demand`."""
    if not isinstance(pool, Pool):
        return PoolSize()
    workers = pool.workers
    kept = (0, 0) if on_demand else (workers.min, workers.spare)
    return PoolSize(workers.max, *kept, workers.max_starting)


class ReplacementPace(NamedTuple):
    """The share of a pool that may be replaced at the same time, and the time windows."""

    at_a_time: int
    """Maximum percentage of the pool that is replaced at the same time."""
    windows: tuple[str, ...]

    def turns(self, machines: int) -> int:
        """Return the number of machines that may be replaced at the same time, rounded up."""
        return -(-machines * self.at_a_time // 100)

    def replaced(self, pool: str, machines: int) -> Replaced:
        """Return a record that `machines` machines of a pool will be replaced at this pace."""
        return Replaced(
            pool=pool, machines=machines, at_a_time=self.at_a_time, windows=self.windows
        )


def pace_of(pool: Pool) -> ReplacementPace:
    """Return the pace at which machines of a pool are replaced."""
    return ReplacementPace(pool.replace.at_a_time, tuple(pool.replace.windows))


class BootTime(NamedTuple):
    """The usual boot time of a pool's machines, and the time after which a boot has failed."""

    expected: int
    """Usual boot time in seconds."""
    registration: int
    """Seconds within which a worker must register."""
    deadline: int
    """Seconds within which a machine must register, or accept connections at its port."""
    key: tuple[str, str]
    """Path of the key that sets the deadline, relative to the pool."""
    on_failure: BootFailure | None

    def ready_at(self, created_at: datetime) -> datetime:
        """Return the time when a machine created at this time is expected to be ready."""
        return created_at + timedelta(seconds=self.expected)

    def fails_at(self, created_at: datetime) -> datetime:
        """Return the time when the boot of a machine created at this time counts as failed."""
        return created_at + timedelta(seconds=self.deadline)


def boot_of(pool: object) -> BootTime:
    """Return the boot time of a pool; the defaults if the pool was removed."""
    boot, ready = (pool.boot, pool.ready) if isinstance(pool, Pool) else (Boot(), None)
    key = ("ready", "within") if ready else ("boot", "deadline")
    within = ready.within if ready else boot.deadline
    return BootTime(boot.expected, boot.deadline, within, key, boot.on_failure)
