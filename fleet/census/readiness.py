"""This module decides when a machine is ready for a ticket, and when it failed to become so.

At a cloud nothing registers: a machine is ready when its provider says that it runs and has an
address and, where `ready` asks for it, its port has answered. What nobody looked at is not ready,
and has not failed either.
"""

from datetime import datetime, timedelta

from fleet.facts import Machine, MachineState
from fleet.schema.model import AwsProvider, Boot, Fleet, HcloudProvider, Pool, Ready
from fleet.schema.units import write_duration

MOST_MISSES = 3
"""Looks in a row at which a port that answered before is silent; then its machine is broken."""


def is_up(fleet: Fleet, name: str, machine: Machine) -> bool:
    """Say whether a machine of a pool can be given to a ticket, or could once."""
    if machine.state is not MachineState.RUNNING:
        # What livechecks found to be broken was up: it is drained, and not waited for.
        return machine.state is MachineState.FAILED
    pool = fleet.pools.get(name)
    if not isinstance(pool, Pool) or not is_at_cloud(fleet, pool):
        return True
    answered = pool.ready is None or machine.misses == 0 or machine.was_ready
    return machine.address is not None and answered


def is_at_cloud(fleet: Fleet, pool: Pool) -> bool:
    """Say whether a pool's machines are servers of a cloud, which tickets reach by address."""
    return isinstance(fleet.providers.get(pool.provider), HcloudProvider | AwsProvider)


def is_overdue(pool: object, machine: Machine, now: datetime) -> bool:
    """Say whether a machine that is not ready had the time to become so.

    Where nobody remembers looks from its boot, its port has that time from the first look on.
    """
    within = timedelta(seconds=_deadline(pool))
    ends = machine.created_at + within
    if _ready(pool) and machine.state is MachineState.RUNNING and machine.address is not None:
        if machine.misses is None:
            return False
        if machine.looked_since is not None and machine.looked_since > ends:
            ends = machine.looked_since + within
    return now > ends


def has_failed(machine: Machine | None) -> bool:
    """Say whether a machine that worked was looked at several times, and did not."""
    if machine is None:
        return False
    is_silent = machine.was_ready and (machine.misses or 0) >= MOST_MISSES
    return is_silent or machine.state is MachineState.FAILED


def why_late(pool: object) -> str:
    """Return what a machine did not do in time."""
    ready, within = _ready(pool), write_duration(_deadline(pool))
    if ready:
        return f"its port {ready.port} did not answer within ready.within ({within})"
    return f"its worker did not register within boot.deadline ({within})"


def why_lost(pool: object) -> str:
    """Return that a machine was ready and is not; empty where workers register."""
    ready = _ready(pool)
    return f"its port {ready.port} answered before, and does not answer now" if ready else ""


def _deadline(pool: object) -> int:
    ready = _ready(pool)
    return ready.within if ready else (pool.boot if isinstance(pool, Pool) else Boot()).deadline


def _ready(pool: object) -> Ready | None:
    return pool.ready if isinstance(pool, Pool) else None
