"""The cost of builds that run on powerful machines because of the allow-list, and alternatives.

A running build counts if its request required a tag that a rule of `powerful` adds. A cost is None
if the end of the build or a price is unknown.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from fleet.explain.options import OptionFinder, cheapest, request_of
from fleet.model.facts import PlaceFacts, Worker, WorkerFacts, World
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
    given = {tag for rule in fleet.powerful for tag in rule.ask}
    if not given:
        return ()
    search = _PlaceSearch(fleet, world, given)
    workers = registered_workers(fleet, world)
    found = [
        _build(search, verdict, worker, known.get(verdict.worker))
        for verdict in plan.workers
        if verdict.running
        and (worker := workers.get(verdict.worker))
        and worker.work
        and given & set(worker.work.required)
    ]
    return tuple(sorted(found, key=lambda each: (-(each.cost or 0), each.worker.worker)))


def _build(
    search: "_PlaceSearch", verdict: WorkerVerdict, worker: Worker, known: WorkerFacts | None
) -> PowerfulBuild:
    fleet, now = search.fleet, search.world.time
    work = worker.work
    since = work.started_at if work else None
    kind = kind_at(fleet, verdict.pool, verdict.type)
    left = search.durations.remaining(worker, now, kind)
    ends = None if left is None else now + timedelta(seconds=left)
    expected = None
    if verdict.type and known and known.provider and known.created_at and since and ends:
        market = known.market or "on-demand"
        tariff = tariff_of_machine(fleet, verdict.pool, known.provider, verdict.type, market)
        if tariff is not None:
            expected = cost_of_span(fleet, tariff, known.created_at, (since, ends), work=True)
    return PowerfulBuild(
        worker=verdict,
        package=work.package if work else None,
        since=since,
        ends=ends,
        cost=known.work_cost if known else None,
        expected=expected,
        elsewhere=search.elsewhere(verdict, worker),
    )


class _PlaceSearch:
    """Finder of the machines that builds could use if the allow-list were empty."""

    def __init__(self, fleet: Fleet, world: World, given: set[str]) -> None:
        self.fleet = fleet
        self.world = world
        self.durations = Durations(fleet, world)
        self._given = given
        self._finder = OptionFinder(fleet.model_copy(update={"powerful": []}), world)

    def elsewhere(self, verdict: WorkerVerdict, worker: Worker) -> PlaceFacts | None:
        """Return the cheapest machine option in another pool, without the allow-list's tags."""
        request = request_of(worker)
        if request is None:
            return None
        kept = tuple(tag for tag in request.required if tag not in self._given)
        plain = request.altered(required=kept)
        options = self._finder.options_for(verdict.registry or "", plain)
        return cheapest(tuple(each for each in options if each.pool != verdict.pool))
