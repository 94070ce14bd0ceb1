"""This module gives waiting requests to workers that exist or to machines to be made.

Requests come in the order in which they are served. Each takes a free worker that fits,
else room in the cheapest pool that fits, else it stays unserved with the limit that stopped it.
Deterministic: ties are broken by name.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal


@dataclass(frozen=True)
class Want:
    """One waiting request and the pools that may serve it."""

    id: str
    workers_of: tuple[str, ...]
    """Pools whose existing workers fit."""
    machines_of: tuple[str, ...]
    """Pools that may make a machine for it: fewer where a pool is on demand."""


@dataclass(frozen=True)
class Room:
    """What a pool can still take on, and the key of fleet.yaml that ends it."""

    price: Decimal
    max: int
    starting: int | None = None
    closed: str = ""
    """Why it makes no machine at all; empty when it may."""


@dataclass
class Allocation:
    """Who is served by what: request id to worker, request id to pool, request id to limits."""

    by_worker: dict[str, str] = field(default_factory=dict)
    by_pool: dict[str, str] = field(default_factory=dict)
    unserved: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Request id to the (pool, limit) pairs that stopped it; none when no pool fits."""


def allocate(
    wants: Sequence[Want], free: Mapping[str, Sequence[str]], rooms: Mapping[str, Room]
) -> Allocation:
    """Return who is served by what; `free` maps a pool to its free workers' names."""
    allocation = Allocation()
    left = {pool: list(reversed(workers)) for pool, workers in free.items()}
    popularity = _count_suitors(wants)
    made: Counter[str] = Counter()
    for want in wants:
        worker_pool = min(
            (pool for pool in want.workers_of if left.get(pool)),
            key=lambda pool: (popularity[pool], pool),
            default=None,
        )
        if worker_pool is not None:
            allocation.by_worker[want.id] = left[worker_pool].pop()
            continue
        limits = {pool: _limit(rooms[pool], made[pool]) for pool in want.machines_of}
        open_pools = [pool for pool, limit in limits.items() if not limit]
        if open_pools:
            cheapest = min(open_pools, key=lambda pool: (rooms[pool].price, pool))
            made[cheapest] += 1
            allocation.by_pool[want.id] = cheapest
        else:
            allocation.unserved[want.id] = tuple(sorted(limits.items()))
    return allocation


def _count_suitors(wants: Sequence[Want]) -> dict[str, int]:
    """Count how many wants could use each pool, so that scarce workers go to who needs them."""
    suitors: defaultdict[str, int] = defaultdict(int)
    shapes = Counter(want.workers_of for want in wants)
    for pools, count in shapes.items():
        for pool in pools:
            suitors[pool] += count
    return suitors


def _limit(room: Room, made: int) -> str:
    if room.closed:
        return room.closed
    if made >= room.max:
        return "max"
    if room.starting is not None and made >= room.starting:
        return "max_starting"
    return ""
