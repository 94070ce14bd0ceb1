"""What the builds cost that the allow-list gives powerful machines, and what they would elsewhere.

A build is one of these while it runs, and its request required a tag that a rule of `powerful`
asks for. What is not known of its end, or of a price, is None.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from fleet.explain.forecast import registered_workers
from fleet.explain.values import WorkerFacts
from fleet.explain.worker import cost_of_span
from fleet.model.facts import Worker, World
from fleet.model.images import ImageVersion
from fleet.model.plan import Plan, WorkerVerdict
from fleet.model.prices import find_types, markets_of, price_per_hour, tariff_of
from fleet.planner.durations import Durations, Kind, kind_at
from fleet.planner.images import images_by_pool
from fleet.schema.model import Fleet, Pool, serves_queue
from fleet.tagrules.offers import ask_of_tags, offer_of_pool, satisfies

_HOUR = 3600


class Place(NamedTuple):
    """The cheapest machines that fit a build without the tags of the allow-list."""

    pool: str
    type: str
    seconds: int
    """How long the whole build is expected to take there."""
    cost: Decimal
    """What that costs, by the machine's price per hour."""


class PowerfulBuild(NamedTuple):
    """A build that runs on a powerful machine, its time and its cost."""

    worker: WorkerVerdict
    package: str | None
    since: datetime | None
    ends: datetime | None
    """When it is expected to end."""
    cost: Decimal | None
    """What it has cost so far."""
    expected: Decimal | None
    """What all of it is expected to cost."""
    elsewhere: Place | None
    """None: no other pool fits, or how long it takes is unknown."""


def powerful_builds(
    fleet: Fleet, world: World, plan: Plan, known: Mapping[str, WorkerFacts]
) -> tuple[PowerfulBuild, ...]:
    """Return the builds that run on powerful machines, what costs most so far first."""
    given = {tag for rule in fleet.powerful for tag in rule.ask}
    if not given:
        return ()
    search = _Search(fleet, world)
    workers = registered_workers(world)
    found = [
        _build(search, verdict, worker, known.get(verdict.worker), given)
        for verdict in plan.workers
        if verdict.running
        and (worker := workers.get(verdict.worker))
        and worker.work
        and given & set(worker.work.required)
    ]
    return tuple(sorted(found, key=lambda each: (-(each.cost or 0), each.worker.worker)))


def _build(
    search: "_Search",
    verdict: WorkerVerdict,
    worker: Worker,
    known: WorkerFacts | None,
    given: set[str],
) -> PowerfulBuild:
    fleet, now = search.fleet, search.world.time
    pool, work = fleet.pools.get(verdict.pool), worker.work
    since = work.started_at if work else None
    kind = kind_at(fleet, verdict.pool, verdict.type)
    left = search.durations.remaining(worker, now, kind)
    ends = None if left is None else now + timedelta(seconds=left)
    expected = None
    if isinstance(pool, Pool) and verdict.type and known and known.created_at and since and ends:
        tariff = tariff_of(fleet, pool, verdict.type, known.market or "on-demand")
        expected = cost_of_span(fleet, tariff, known.created_at, (since, ends), work=True)
    return PowerfulBuild(
        worker=verdict,
        package=work.package if work else None,
        since=since,
        ends=ends,
        cost=known.work_cost if known else None,
        expected=expected,
        elsewhere=min(
            search.places(verdict, worker, given),
            key=lambda place: (place.cost, place.pool),
            default=None,
        ),
    )


class _Search:
    """Finds where builds would run without the tags of the allow-list."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        self.fleet = fleet
        self.world = world
        self.durations = Durations(fleet, world)
        self._images: Mapping[str, tuple[ImageVersion, ...]] = images_by_pool(fleet, world)

    def places(self, verdict: WorkerVerdict, worker: Worker, given: set[str]) -> Iterator[Place]:
        """Yield each machine type that fits, with a known price and time."""
        work = worker.work
        if work is None:
            return
        ask = ask_of_tags(self.fleet, (tag for tag in work.required if tag not in given))
        begun_now = worker.altered(work=work.altered(started_at=self.world.time))
        for name, pool in sorted(self.fleet.dynamic_pools.items()):
            if name == verdict.pool:
                continue
            if verdict.registry in self.fleet.queues and not serves_queue(pool, verdict.registry):
                continue
            if not satisfies(ask, offer_of_pool(self.fleet, name, self._images[name])):
                continue
            for known in find_types(self.fleet, pool):
                kind = Kind(known.name, known.cores, known.speed)
                takes = self.durations.remaining(begun_now, self.world.time, kind)
                prices = (price_per_hour(self.fleet, known, m) for m in markets_of(pool))
                price = min((each for each in prices if each is not None), default=None)
                if takes is not None and price is not None:
                    yield Place(name, known.name, takes, price * takes / _HOUR)
