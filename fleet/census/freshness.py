"""This module says whether what was read of a queue is recent enough to be relied on."""

from fleet.facts import Unknown, World
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration

_CLOCK_SKEW = 60
"""Seconds that clocks may differ; demand from further ahead is not fresh but of unknown age."""


def stale_demand(fleet: Fleet, world: World, queues: list[str]) -> tuple[str, ...]:
    """Return why the demand of some of these queues may not be relied on."""
    reasons = []
    for queue in queues:
        trouble = demand_trouble(fleet, world, queue)
        if trouble:
            reasons.append(f"demand of queue {queue} is unknown: {trouble}")
    return tuple(reasons)


def demand_trouble(fleet: Fleet, world: World, queue: str) -> str:
    """Return why a queue's demand may not be relied on; empty when it may."""
    demand = world.queues[queue].demand
    if isinstance(demand, Unknown):
        return demand.unknown
    age = (world.time - demand.read_at).total_seconds()
    if age < -_CLOCK_SKEW:
        return (
            f"it claims to be read {write_duration(int(-age))} later than everything else; "
            "compare the clocks of the computers that recorded it"
        )
    if age > fleet.guards.demand_max_age:
        return (
            f"it was read {write_duration(int(age))} before, more than "
            f"guards.demand_max_age ({write_duration(fleet.guards.demand_max_age)})"
        )
    return ""
