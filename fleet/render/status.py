"""This module takes from a plan what a status page shows: pools, workers, waiting work, money.

Workers that are inactive (machine gone, token disabled) are only counted. What could not be
read is null here, never zero.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from fleet.explain.worker_facts import WorkerFacts
from fleet.facts.bases import BaseChange
from fleet.facts.values import Moment, Value
from fleet.facts.versions import WaitingVersion
from fleet.plan import (
    Estimate,
    NotKnown,
    Plan,
    PoolVerdict,
    Promotion,
    WorkerVerdict,
)
from fleet.plan.guard_results import ApprovalVerdict, GuardResult
from fleet.plan.money import BudgetVerdict, PeriodName, Rate
from fleet.verdicts import heartbeats

_NOTHING = WorkerFacts()
_FIGURES: dict[NotKnown, tuple[str, ...]] = {
    "machines": ("machines", "other", "unwanted"),
    "workers": ("busy", "idle", "starting", "draining"),
    "cost": ("cost_before", "cost_after"),
    "price": ("price",),
}


class Waiting(Value):
    """Requests that are treated alike, and how many of them get a machine."""

    signature: str
    queue: str
    required: tuple[str, ...]
    priority: int
    requests: tuple[str, ...]
    count: int
    served: int = Field(description="How many of them have a worker, or one being created.")
    refused: tuple[str, ...] = Field(description="Why tags that were asked for do not count.")
    pools: tuple[str, ...] = Field(description="Pools that may serve them.")
    because: tuple[str, ...] = Field(description="Why the others get none in this run.")


class PoolStatus(Value):
    """A pool and what it holds; null stands for a figure that nobody knows."""

    pool: str
    mode: str
    because: str
    machines: int | None = Field(description="How many there are.")
    busy: int | None
    idle: int | None
    starting: int | None
    other: int | None
    create: int
    drain: int
    delete: int
    served: int = Field(description="Waiting requests that get a worker here.")
    max: int
    price: Rate | None
    cost_before: Rate | None
    cost_after: Rate | None
    provider: str | None
    type: str | None
    image: str | None
    provides: tuple[str, ...]
    stack: str | None
    serial: int | None
    unwanted: int | None = Field(description="How many of them config no longer wants.")
    draining: int | None = Field(description="How many of them get no new work.")
    not_known: tuple[NotKnown, ...]


class BudgetStatus(Value):
    """How far one budget is used up in one of its periods, this plan counted."""

    budget: str
    path: tuple[str | int, ...]
    period: PeriodName
    coming: bool = Field(description="It is about the next hour, day or month.")
    unit: str
    limit: Rate
    spent: Rate | None
    reserved: Rate
    planned: Rate
    left: Rate | None
    exceeded: bool


class WorkerStatus(WorkerVerdict, WorkerFacts):
    """A worker: what it is, what it does, and what becomes of it."""


class Status(Value):
    """What exists and what waits, as of one plan; null stands for what nobody knows."""

    format: Literal["fleet-status-1"] = "fleet-status-1"
    fleet: str
    time: Moment
    currency: str
    cost_per_hour: Rate | None
    cost_per_hour_after: Rate | None
    cost_per_hour_at_least: Rate = Field(description="What is known of it.")
    pools: tuple[PoolStatus, ...]
    workers: tuple[WorkerStatus, ...]
    unlisted: tuple[str, ...] = Field(description="Pools whose machines are not known.")
    budgets: tuple[BudgetStatus, ...] = Field(description="Each in its current and next period.")
    hidden: int = Field(description="Inactive workers that are left out.")
    waiting: tuple[Waiting, ...]
    unread: tuple[str, ...] = Field(description="Queues of which nobody knows what waits.")
    estimates: tuple[Estimate, ...] = Field(description="Queues that were only sampled.")
    unknown: tuple[str, ...]
    attention: tuple[str, ...]
    cadence: str | None = Field(
        description="Where runs come much further apart than fleet.yaml says."
    )
    bases: tuple[BaseChange, ...] = Field(description="What would change of what machines share.")
    promotions: tuple[Promotion, ...] = Field(description="Versions that the next run moves.")
    waiting_versions: tuple[WaitingVersion, ...] = Field(
        description="Newer versions of images that not every machine boots yet."
    )
    guards: tuple[GuardResult, ...] = Field(description="What guards keep back, and let pass.")
    approvals: tuple[ApprovalVerdict, ...]


def status_of(plan: Plan, facts: Mapping[str, WorkerFacts] = MappingProxyType({})) -> Status:
    """Return the status that a plan tells of: workers sorted by pool and name.

    `facts` holds by name what is known of workers beside what becomes of them.
    """
    exists = [verdict for verdict in plan.workers if verdict.verdict != "create"]
    active = [verdict for verdict in exists if not verdict.inactive]
    pools = tuple(pool_status(pool) for pool in sorted(plan.pools, key=lambda pool: pool.pool))
    return Status(
        fleet=plan.fleet,
        time=plan.time,
        currency=plan.currency,
        cost_per_hour=plan.cost_before if plan.is_cost_known else None,
        cost_per_hour_after=plan.cost_after if plan.is_cost_known else None,
        cost_per_hour_at_least=plan.cost_before,
        pools=pools,
        workers=tuple(
            WorkerStatus(**dict(facts.get(each.worker, _NOTHING)), **dict(each))
            for each in sorted(active, key=lambda worker: (worker.pool, worker.worker))
        ),
        unlisted=tuple(pool.pool for pool in pools if pool.machines is None),
        budgets=tuple(map(_budget, plan.budgets)),
        hidden=len(exists) - len(active),
        waiting=_waiting(plan),
        unread=plan.unread,
        estimates=plan.estimates,
        unknown=plan.unknown,
        attention=plan.attention,
        cadence=next(
            (each.message for each in plan.warnings if each.rule == heartbeats.RULE), None
        ),
        bases=plan.bases,
        promotions=plan.promotions,
        waiting_versions=plan.waiting_versions,
        guards=plan.guards,
        approvals=plan.approvals,
    )


def pool_status(verdict: PoolVerdict) -> PoolStatus:
    """Return a pool's verdict with nothing in the place of what is not known."""
    figures = verdict.model_dump()
    figures["machines"] = verdict.busy + verdict.idle + verdict.starting + verdict.other
    for missing in verdict.not_known:
        figures |= dict.fromkeys(_FIGURES[missing])
    return PoolStatus.model_validate(figures)


def _budget(verdict: BudgetVerdict) -> BudgetStatus:
    figures = verdict.model_dump(exclude={"known"})
    figures["spent"] = verdict.spent if verdict.known else None
    return BudgetStatus(**figures, left=verdict.left)


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
            refused=tuple(tag.because for tag in signature.refused),
            pools=signature.pools,
            because=tuple(unserved.get(signature.id, ())),
        )
        for signature in sorted(plan.signatures, key=lambda entry: -entry.priority)
    )
