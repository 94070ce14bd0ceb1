"""Measure `fleet simulate`: recorded demand stepped through by the functions of `fleet plan`.

`day_20_pools_s`: a day of 2,000 requests in 300 signatures on 20 pools, a run each ten minutes,
from jobs in memory. `month_20_pools_s` is thirty times that: what each day takes does not depend
on those before it (`growth_second_day` is the second day over the first). `day_200_s` is a day of
200 requests on the same pools, `year_200_s` 365 times that.
`read_ms`: what it takes to read one recorded moment and to find jobs in it.
`peak_mib`: the most memory the process held.
"""

import gc
import random
import resource
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from time import process_time

from bench.report import Report
from bench.worlds import NOW, QUEUE, Size, scene_of
from fleet.__main__ import COLLECTION
from fleet.explain.simulation.demand import Job, events
from fleet.explain.simulation.replay import Replay, Task
from fleet.explain.simulation.scaling import ours
from fleet.model.facts import Demand, Listing, QueueReading, Request, World
from fleet.model.plan import Plan
from fleet.planner.inventory import PoolInventory
from fleet.schema.model import Fleet

POOLS, SIGNATURES = 20, 300
MANY, FEW = 2000, 200
MIB = 1024
CADENCE = 600


def measure() -> Report:
    """Return seconds of processor time, and memory."""
    gc.set_threshold(*COLLECTION)
    scene = scene_of(Size(SIGNATURES, SIGNATURES, POOLS, 1))
    fleet = scene.fleet.model_copy(update={"cadence": CADENCE})
    alike = scene.requests
    first, second = _days(fleet, [*_jobs(alike, MANY, days=2)])
    few, _ = _days(fleet, [*_jobs(alike, FEW, days=2)])
    worlds = _recorded(fleet, [*_jobs(alike, MANY, days=1)])
    texts = [world.model_dump_json() for world in worlds]
    begin = process_time()
    sum(1 for _ in events(World.model_validate_json(text) for text in texts))
    read = process_time() - begin
    return Report(
        "simulate",
        figures={
            "day_20_pools_s": second,
            "month_20_pools_s": 30 * second,
            "day_200_s": few,
            "year_200_s": 365 * few,
            "read_ms": 1000 * read / len(texts),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB,
        },
        ratios={"growth_second_day": second / first},
    )


def _jobs(alike: Sequence[Request], per_day: int, *, days: int) -> Iterator[Job]:
    """Yield jobs that come at any time, always the same."""
    chance = random.Random(24)  # noqa: S311 - the same jobs in every run
    seconds = sorted(chance.randrange(days * 86400) for _ in range(per_day * days))
    for number, second in enumerate(seconds, 1):
        at = NOW + timedelta(seconds=second)
        like = chance.choice(alike)
        request = like.model_copy(update={"id": str(number), "pending_since": at})
        yield Job(f"{QUEUE}/{number}", QUEUE, request, at, seconds=like.expected_seconds)


def _days(fleet: Fleet, jobs: Sequence[Job]) -> tuple[float, float]:
    """Return the seconds of processor time that the first and the second day take."""
    replay = Replay(Task(fleet), _first(fleet), lambda _, __: None)
    took = []
    for day in range(2):
        begin = process_time()
        for job in jobs:
            if (job.at - NOW).days == day:
                replay.feed(job)
        took.append(process_time() - begin)
    return took[0], took[1]


def _recorded(fleet: Fleet, jobs: Sequence[Job]) -> list[World]:
    """Return what each run of a day would have seen."""
    seen: list[World] = []

    def watched(fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]) -> Plan:
        seen.append(world)
        return ours(fleet, world, inventories)

    replay = Replay(Task(fleet), _first(fleet), lambda _, __: None, watched)
    for job in jobs:
        replay.feed(job)
    return seen


def _first(fleet: Fleet) -> World:
    """Return a world in which nothing exists."""
    nothing = QueueReading(demand=Demand(read_at=NOW), workers=None)
    return World(
        fleet=fleet.fleet,
        time=NOW,
        queues={QUEUE: nothing},
        providers={name: Listing(read_at=NOW, workers=()) for name in fleet.providers},
    )
