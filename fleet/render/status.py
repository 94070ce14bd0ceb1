"""This module takes from a plan what a status page shows: pools, workers, waiting work, money.

Workers that are inactive (machine gone, token disabled) are only counted.
"""

from typing import Literal

from pydantic import Field

from fleet.facts import Moment, Value
from fleet.plan import Plan, PoolVerdict, Rate, WorkerVerdict


class Waiting(Value):
    """Requests that are treated alike, and how many of them get a machine."""

    signature: str
    queue: str
    required: tuple[str, ...]
    priority: int
    requests: tuple[str, ...]
    count: int
    served: int = Field(description="How many of them have a worker, or one being created.")
    pools: tuple[str, ...] = Field(description="Pools that may serve them.")
    because: tuple[str, ...] = Field(description="Why the others get none in this run.")


class Status(Value):
    """What exists and what waits, as of one plan."""

    format: Literal["fleet-status-1"] = "fleet-status-1"
    fleet: str
    time: Moment
    currency: str
    cost_per_hour: Rate
    cost_per_hour_after: Rate
    pools: tuple[PoolVerdict, ...]
    workers: tuple[WorkerVerdict, ...]
    hidden: int = Field(description="Inactive workers that are left out.")
    waiting: tuple[Waiting, ...]
    unknown: tuple[str, ...]


def status_of(plan: Plan) -> Status:
    """Return the status that a plan tells of: workers sorted by pool and name."""
    exists = [verdict for verdict in plan.workers if verdict.verdict != "create"]
    active = [verdict for verdict in exists if not verdict.inactive]
    return Status(
        fleet=plan.fleet,
        time=plan.time,
        currency=plan.currency,
        cost_per_hour=plan.cost_before,
        cost_per_hour_after=plan.cost_after,
        pools=tuple(sorted(plan.pools, key=lambda pool: pool.pool)),
        workers=tuple(sorted(active, key=lambda worker: (worker.pool, worker.worker))),
        hidden=len(exists) - len(active),
        waiting=_waiting(plan),
        unknown=plan.unknown,
    )


def _waiting(plan: Plan) -> tuple[Waiting, ...]:
    unserved: dict[str, list[str]] = {}
    left: dict[str, int] = {}
    for entry in plan.unserved:
        unserved.setdefault(entry.signature, []).append(entry.because)
        left[entry.signature] = left.get(entry.signature, 0) + entry.count
    return tuple(
        Waiting(
            signature=signature.id,
            queue=signature.queue,
            required=signature.required,
            priority=signature.priority,
            requests=signature.requests,
            count=signature.count,
            served=max(0, signature.count - left.get(signature.id, 0)),
            pools=signature.pools,
            because=tuple(unserved.get(signature.id, ())),
        )
        for signature in sorted(plan.signatures, key=lambda entry: -entry.priority)
    )
