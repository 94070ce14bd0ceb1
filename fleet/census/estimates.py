"""This module says what nobody knows of a queue that was only sampled.

What was not listed is not zero: machines are made for what was, and none is let go for want of
work.
"""

from fleet.facts import Demand, World
from fleet.plan import Estimate
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration


def estimate_of(fleet: Fleet, world: World, queue: str) -> Estimate | None:
    """Return what is known of a queue's length; None where all that waits was listed."""
    demand = world.queues[queue].demand
    if not isinstance(demand, Demand) or not demand.estimate:
        return None
    sample = demand.sample
    if sample is None:
        listed = sum(request.count for request in demand.requests)
        return Estimate(queue=queue, listed=listed, because="it was only sampled")
    unlisted = sum(sample.unlisted.values())
    return Estimate(
        queue=queue,
        listed=sample.listed,
        unlisted=unlisted,
        longest=sample.longest,
        because=(
            f"{sample.listed:,} of about {sample.listed + unlisted:,} pending requests could be "
            f"listed in time, the newest of each scope (not listed: {_by_scope(sample.unlisted)})."
            f" Longer than about {sample.longest:,}, it has to be read over SQL "
            f"(queues.{queue}.read), for guards.demand_max_age is "
            f"{write_duration(fleet.guards.demand_max_age)}"
        ),
    )


def _by_scope(unlisted: dict[str, int]) -> str:
    return ", ".join(f"{count:,} in {scope}" for scope, count in sorted(unlisted.items()))
