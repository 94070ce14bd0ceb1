"""Measure `fleet simulate`: recorded demand stepped through by the functions of `fleet plan`.

`month_20_pools_s`: thirty days of 2,000 requests each in 300 signatures on 20 pools, a run each
ten minutes, from jobs in memory. What nothing can serve waits to the end, so that a day takes
longer than those before it: `growth` is the last ten days over the first ten.
`year_200_s`: a year of 200 requests a day on the same pools; `month_200_s`: its first thirty days.
`read_ms`: what it takes to read one recorded moment of the first day and to find jobs in it;
`read_late_ms`: one of the last day of the thirty, when about 1,000 requests wait.
`peak_mib`: the most memory the process held while it replayed both.
"""

import gc
import random
import resource
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from time import process_time

from bench.report import Report
from bench.worlds import NOW, QUEUE, Size, scene_of
from fleet.__main__ import COLLECTION
from fleet.model.facts import Demand, Listing, QueueReading, Request, World
from fleet.model.plan import Plan
from fleet.planner.inventory import PoolInventory
from fleet.queues.recorded import world_of
from fleet.schema.model import Fleet
from fleet.simulate.recorded_demand import KnownHistory, PastRequest
from fleet.simulate.replay import Replay, SimulationInputs, decide

POOLS, SIGNATURES = 20, 300
MANY, FEW = 2000, 200
MONTH, YEAR = 30, 365
MIB = 1024
CADENCE = 600


def measure() -> Report:
    """Return seconds of processor time, and memory."""
    gc.set_threshold(*COLLECTION)
    scene = scene_of(Size(SIGNATURES, SIGNATURES, POOLS, 1))
    fleet = scene.fleet.model_copy(update={"cadence": CADENCE})
    many, late = _days(fleet, _jobs(scene.requests, MANY, days=MONTH), MONTH)
    few, _ = _days(fleet, _jobs(scene.requests, FEW, days=YEAR), YEAR)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
    _, early = _days(fleet, _jobs(scene.requests, MANY, days=1), 1)
    return Report(
        "simulate",
        figures={
            "month_20_pools_s": sum(many),
            "month_200_s": sum(few[:MONTH]),
            "year_200_s": sum(few),
            "read_ms": _read_ms(early),
            "read_late_ms": _read_ms(late),
            "peak_mib": peak,
        },
        ratios={"growth": sum(many[-10:]) / sum(many[:10])},
    )


def _jobs(alike: Sequence[Request], per_day: int, *, days: int) -> Iterator[PastRequest]:
    """Yield jobs that come at any time, always the same."""
    chance = random.Random(24)  # noqa: S311 - the same jobs in every run
    seconds = sorted(chance.randrange(days * 86400) for _ in range(per_day * days))
    for number, second in enumerate(seconds, 1):
        at = NOW + timedelta(seconds=second)
        like = chance.choice(alike)
        request = like.model_copy(update={"id": str(number), "pending_since": at})
        yield PastRequest(f"{QUEUE}/{number}", QUEUE, request, at, seconds=like.expected_seconds)


def _days(
    fleet: Fleet, jobs: Iterable[PastRequest], days: int
) -> tuple[list[float], Sequence[World]]:
    """Return the seconds of processor time of each day, and what the runs of the last one saw."""
    seen: deque[World] = deque(maxlen=86400 // CADENCE)

    def watched(fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]) -> Plan:
        seen.append(world)
        return decide(fleet, world, inventories)

    replay = Replay(SimulationInputs(fleet), _first(fleet), lambda _, __: None, watched)
    took = [0.0] * days
    for job in jobs:
        begin = process_time()
        replay.feed(job)
        took[(job.at - NOW).days] += process_time() - begin
    return took, seen


def _read_ms(worlds: Sequence[World]) -> float:
    """Return the milliseconds that reading each of some moments in a row takes."""
    texts = [world.model_dump_json().encode() for world in worlds]
    begin = process_time()
    sum(1 for _ in KnownHistory().events(world_of("history", text) for text in texts))
    return 1000 * (process_time() - begin) / len(texts)


def _first(fleet: Fleet) -> World:
    """Return a world in which nothing exists."""
    nothing = QueueReading(demand=Demand(read_at=NOW), workers=None)
    return World(
        fleet=fleet.fleet,
        time=NOW,
        queues={QUEUE: nothing},
        providers={name: Listing(read_at=NOW, workers=()) for name in fleet.providers},
    )
