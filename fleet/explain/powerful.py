"""The cost of builds that run on powerful machines because of the allow-list, and alternatives.

A running build counts if its request required a tag that a rule of `powerful` adds. A cost is None
if the end of the build or a price is unknown.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from fleet.explain.options import OptionFinder, cheapest, request_of
from fleet.model.facts import PlaceFacts, WorkerFacts, World
from fleet.model.plan import Plan, WorkerVerdict
from fleet.model.prices import tariff_of_machine
from fleet.planner.durations import Durations, kind_at
from fleet.planner.forecast import registered_workers
from fleet.planner.ledger import cost_of_span
from fleet.schema.model import Fleet


class PowerfulBuild(NamedTuple):
    """A build that runs on a powerful machine, with its times and cost."""

    worker: WorkerVerdict
    package: str | None
    since: datetime | None
    ends: datetime | None
    """The expected end of the build; None if unknown."""
    cost: Decimal | None
    """The cost of the build so far; None if unknown."""
    expected: Decimal | None
    """The expected total cost of the build; None if unknown."""
    elsewhere: PlaceFacts | None
    """Cheapest other machine without allow-list tags; None if too late or not comparable."""


def powerful_builds(
    fleet: Fleet, world: World, plan: Plan, known: Mapping[str, WorkerFacts]
) -> tuple[PowerfulBuild, ...]:
    """Return the builds that run on powerful machines, with the highest cost so far first."""
    found = _find_builds(fleet, world, plan, known) if fleet.powerful else ()
    return tuple(sorted(found, key=lambda each: (-(each.cost or 0), each.worker.worker)))


def _find_builds(
    fleet: Fleet, world: World, plan: Plan, facts: Mapping[str, WorkerFacts]
) -> Iterator[PowerfulBuild]:
    given = {tag for rule in fleet.powerful for tag in rule.ask}
    workers, durations = registered_workers(fleet, world), Durations(fleet, world)
    finder = OptionFinder(fleet.model_copy(update={"powerful": []}), world)
    for verdict in plan.workers:
        worker, known = workers.get(verdict.worker), facts.get(verdict.worker)
        work = worker.work if worker and verdict.running else None
        if worker is None or work is None or given.isdisjoint(work.required):
            continue
        kind = kind_at(fleet, verdict.pool, verdict.type)
        left = durations.remaining(worker, world.time, kind)
        ends = None if left is None else world.time + timedelta(seconds=left)
        span = (work.started_at, ends) if work.started_at and ends else None
        expected = None
        if verdict.type and known and known.provider and known.created_at and span:
            market = known.market or "on-demand"
            tariff = tariff_of_machine(fleet, verdict.pool, known.provider, verdict.type, market)
            if tariff is not None:
                expected = cost_of_span(fleet, tariff, known.created_at, span, work=True)
        elsewhere = None
        if request := request_of(worker):
            kept = tuple(tag for tag in request.required if tag not in given)
            options = finder.options_for(verdict.registry or "", request.altered(required=kept))
            elsewhere = cheapest(tuple(each for each in options if each.pool != verdict.pool))
        yield PowerfulBuild(
            worker=verdict,
            package=work.package,
            since=work.started_at,
            ends=ends,
            cost=known.work_cost if known else None,
            expected=expected,
            elsewhere=elsewhere,
        )
