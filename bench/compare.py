"""Compare policies on three invented weeks: what they cost, and how long requests wait.

`bound_eur` is what nobody can be below who serves the same requests, even if all had been known
before: each at the lowest price per second of a machine that can serve it, without boots, idle
time and the rest of paid hours.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from bench.plots import marks
from bench.policies import POLICIES
from bench.report import Report
from bench.scaling import view_of, waiting_of
from bench.workloads import DAYS, QUEUE, START, Workload, workloads
from fleet.model.facts import Demand, QueueReading, World
from fleet.planner.begin import begin_pool_plans
from fleet.planner.inventory import take_inventory
from fleet.schema.model import Fleet
from fleet.simulate.figures import Side
from fleet.simulate.recorded_demand import PastRequest
from fleet.simulate.replay import Decide, Replay, SimulationInputs


def measure() -> Report:
    """Return money, idle share and p95 of the waits of each policy on each workload."""
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    drawn: dict[str, str] = {}
    for workload in workloads():
        bound = bound_of(workload)
        figures[f"{workload.name}_bound_eur"] = float(bound)
        sides = {name: replay(workload, policy) for name, policy in POLICIES.items()}
        # Debusine's rule with an hour for the queue to clear, asked of fleet.
        sides["fleet_target_wait_1h"] = replay(patient(workload), POLICIES["fleet"])
        for name, side in sides.items():
            key = f"{workload.name}_{name}"
            figures[f"{key}_eur"] = float(side.money or 0)
            figures[f"{key}_p50_s"] = float(side.waits.half or 0)
            figures[f"{key}_p95_s"] = float(side.waits.most or 0)
            figures[f"{key}_idle_percent"] = side.idle_share or 0.0
            figures[f"{key}_never"] = side.waits.never
            ratios[f"{key}_over_bound"] = float((side.money or 0) / bound)
        drawn[f"policies-{workload.name}.svg"] = _plot(workload.name, bound, sides)
    return Report("compare", figures, ratios, plots=drawn)


def _plot(workload: str, bound: Decimal, sides: Mapping[str, Side]) -> str:
    """Return what each policy costs over how long requests wait, but for the fixed fleet."""
    points = {
        name.replace("_", " "): ((side.waits.most or 0) / 60, float((side.money or 0) / bound))
        for name, side in sides.items()
        if name != "fixed"
    }
    return marks(workload, ("p95 of the waits, minutes", "EUR over the bound"), points)


def replay(workload: Workload, policy: Decide) -> Side:
    """Return what a policy comes to on a workload, from an empty fleet to two days after."""
    empty = QueueReading(demand=Demand(read_at=START), workers=None)
    first = World(fleet=workload.fleet.fleet, time=START, queues={QUEUE: empty})
    replaying = Replay(SimulationInputs(workload.fleet), first, lambda _, __: None, policy)
    for job in workload.jobs:
        replaying.feed(job)
    return replaying.finish(START + timedelta(days=DAYS + 2))


def patient(workload: Workload) -> Workload:
    """Return the same where machines of the pool that all builds fit may be shared for an hour."""
    pools = dict(workload.fleet.pools)
    pools["builders"] = pools["builders"].model_copy(update={"target_wait": 3600})
    fleet = workload.fleet.model_copy(update={"pools": pools})
    return replace(workload, fleet=fleet)


def bound_of(workload: Workload) -> Decimal:
    """Return what no policy can be below."""
    rates: dict[tuple[str, ...], Decimal] = {}
    total = Decimal(0)
    for job in workload.jobs:
        asked = tuple(job.request.required)
        if asked not in rates:
            rates[asked] = _cheapest_rate(workload.fleet, job)
        total += rates[asked] * (job.seconds or 0) / 3600
    return total


def _cheapest_rate(fleet: Fleet, job: PastRequest) -> Decimal:
    """Return the lowest price per hour of a machine that can serve a request."""
    demand = Demand(read_at=job.at, requests=(job.request,))
    world = World(fleet=fleet.fleet, time=job.at, queues={job.queue: QueueReading(demand=demand)})
    pool_plans = begin_pool_plans(fleet, world, take_inventory(fleet, world))
    views = [view_of(each) for each in pool_plans.values() if each.pool and each.options]
    price = {view.pool: view.price for view in views}
    [waiting] = waiting_of(fleet, world, pool_plans, views)
    return min(price[pool] for pool in waiting.pools)
