"""The size of a pool, the pace of its replacements, and its boot time.

No other module of the planner, guards, explanations, reports or runs reads `workers`, `replace`,
`boot` or `ready.within` (tests/architecture/test_rules_of_life.py).
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.model.plan import Replaced
from fleet.schema.model import Boot, Pool
from fleet.schema.pools import BootFailure


class PoolSize(NamedTuple):
    """The limits on the number of workers of a pool."""

    max: int = 0
    min: int = 0
    spare: int = 0
    max_starting: int | None = None

    @property
    def permanent(self) -> int:
        """Return the number of workers that are kept without demand."""
        return max(self.min, self.spare)


def size_of(pool: object, *, on_demand: bool = False) -> PoolSize:
    """Return the limits of a pool: zeros if it was removed, and no min or spare if `on_demand`."""
    if not isinstance(pool, Pool):
        return PoolSize()
    workers = pool.workers
    kept = (0, 0) if on_demand else (workers.min, workers.spare)
    return PoolSize(workers.max, *kept, workers.max_starting)


class ReplacementPace(NamedTuple):
    """The share of a pool that may be in replacement, and the times when it may."""

    at_a_time: int
    """Percent of the pool."""
    windows: tuple[str, ...]

    def turns(self, machines: int) -> int:
        """Return the number of machines that may be in replacement at the same time."""
        return -(-machines * self.at_a_time // 100)

    def replaced(self, pool: str, machines: int) -> Replaced:
        """Return the machines of a pool that are to be replaced at this pace."""
        return Replaced(
            pool=pool, machines=machines, at_a_time=self.at_a_time, windows=self.windows
        )


def pace_of(pool: Pool) -> ReplacementPace:
    """Return the pace of replacements of a pool."""
    return ReplacementPace(pool.replace.at_a_time, tuple(pool.replace.windows))


class BootTime(NamedTuple):
    """The usual boot time of a pool's machines, and the time after which a boot has failed."""

    expected: int
    """Seconds."""
    registration: int
    """Seconds until a worker has to register."""
    deadline: int
    """Seconds until a machine has to register, or to answer at its port."""
    key: tuple[str, str]
    """The key of the deadline below the pool."""
    on_failure: BootFailure | None

    def ready_at(self, created_at: datetime) -> datetime:
        """Return when a machine is expected to work."""
        return created_at + timedelta(seconds=self.expected)

    def fails_at(self, created_at: datetime) -> datetime:
        """Return when the boot of a machine has failed."""
        return created_at + timedelta(seconds=self.deadline)


def boot_of(pool: object) -> BootTime:
    """Return the boot time of a pool; of a removed one, the defaults."""
    boot, ready = (pool.boot, pool.ready) if isinstance(pool, Pool) else (Boot(), None)
    key = ("ready", "within") if ready else ("boot", "deadline")
    within = ready.within if ready else boot.deadline
    return BootTime(boot.expected, boot.deadline, within, key, boot.on_failure)
