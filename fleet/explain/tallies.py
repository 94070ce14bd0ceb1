"""The counts and costs of a run that are added to the sums of the month, next to the ledger."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from heapq import nsmallest
from math import exp, log
from zoneinfo import ZoneInfo

from fleet.explain.builds import read_work
from fleet.model.facts import Demand, Work, Worker, World
from fleet.model.history import Tally, TallyKind
from fleet.model.plan import Plan
from fleet.model.prices import find_type
from fleet.planner.budgets import spending_limits
from fleet.planner.demand import limits_of
from fleet.schema.findings import Path
from fleet.schema.model import Fleet, Pool, TicketQueue
from fleet.tagrules.allow import AllowList
from fleet.tagrules.names import tasks_by_name
from fleet.words.limits import ROUNDING

POWERFUL, ORDINARY = "powerful", "ordinary"
FAR_BELOW = 4
"""A build needs no powerful machine if its peak is less than 1/4 of the machine's memory."""
_STEP = log(1.1)
_MOST_WAITING = 1000
_NANO = 10**9
_MAX_NAME_LENGTH = 200


def bucket_of(seconds: float) -> int:
    """Return the number of the histogram bucket for a wait. Bucket limits grow by 10%."""
    return int(log(max(0.0, seconds) + 1) / _STEP)


def most_of(bucket: int) -> int:
    """Return the longest wait in a histogram bucket, in seconds."""
    return int(exp((bucket + 1) * _STEP) - 1)


def _figure_name(path: Iterable[str | int]) -> str:
    """Return the path of a key of fleet.yaml joined with dots, such as "pools.arm.workers.max"."""
    return ".".join(map(str, path))


def limit_paths(fleet: Fleet) -> frozenset[str]:
    """Return the keys of fleet.yaml that limit the number or the cost of machines."""
    found: list[Path] = [("pools", name, "workers", "max") for name in fleet.dynamic_pools]
    found += [limit.path for limit in spending_limits(fleet)]
    tickets = {n: each for n, each in fleet.queues.items() if isinstance(each, TicketQueue)}
    limited = (("tags", fleet.tags), ("queues", tickets))
    found += [
        (section, name, "limits", *(() if of == "total" else ("per",)), of)
        for section, owners in limited
        for name, owner in owners.items()
        for of, _ in limits_of(owner.limits)
    ]
    return frozenset(map(_figure_name, found))


def tallies_of(
    fleet: Fleet, world: World, plan: Plan, waited: Mapping[str, datetime]
) -> tuple[Tally, ...]:
    """Return the counts of this run. `waited` maps requests to the start of their last wait."""
    month = f"{world.time.astimezone(ZoneInfo(fleet.money.time_zone)):%Y-%m}"

    def tally(kind: TallyKind, name: str = "", *, count: int = 1, nanos: int = 0) -> Tally:
        return Tally(
            month=month, kind=kind, name=name[:_MAX_NAME_LENGTH], count=count, nanos=nanos
        )

    given = {tag for rule in fleet.powerful for tag in rule.ask}
    found = [tally("run")]
    found += [tally("bound", path) for path in sorted(_binding_keys(plan) & limit_paths(fleet))]
    found += [tally("rule", match) for match in sorted(_matching_patterns(fleet, world))]
    running = _running(world)
    for key in sorted(waited.keys() & running.keys()):
        _, work = running[key]
        if work.started_at is None:
            found.append(tally("unseen"))
            continue
        kind = POWERFUL if given & set(work.required) else ORDINARY
        wait = bucket_of((work.started_at - waited[key]).total_seconds())
        found.append(tally("wait", f"{kind} {wait}"))
    gone = waited.keys() - running.keys() - waiting_of(world, waited).keys()
    found += [tally("unseen", count=len(gone))] if gone else []
    found += [tally(kind, package) for kind, package in _peaks(fleet, world, plan, given)]
    return (*found, *_optimum(plan, tally))


def waiting_of(world: World, waited: Mapping[str, datetime]) -> dict[str, datetime]:
    """Map each waiting request to the start of its wait. Requests of unread queues are kept.

    Only the longest waits are kept if there are too many.
    """
    running = _running(world)
    found: dict[str, datetime] = {}
    for queue, reading in world.queues.items():
        if isinstance(reading.demand, Demand):
            for request in reading.demand.requests:
                if request.pending_since is not None:
                    found[f"{queue}/{request.id}"] = request.pending_since
        else:
            ours = f"{queue}/"
            found |= {k: at for k, at in waited.items() if k.startswith(ours) and k not in running}
    return dict(nsmallest(_MOST_WAITING, found.items(), lambda each: (each[1], each[0])))


def _running(world: World) -> dict[str, tuple[Worker, Work]]:
    """Map each running request to its worker and work."""
    return {
        f"{queue}/{worker.running}": (worker, worker.work)
        for queue, reading in world.queues.items()
        for worker in (reading.workers if isinstance(reading.workers, tuple) else ())
        if worker.running and worker.work
    }


def _binding_keys(plan: Plan) -> set[str]:
    """Return the keys of fleet.yaml whose limits are exceeded or make requests wait."""
    paths = {path for each in plan.unserved for path in each.paths}
    paths |= {each.path for each in plan.budgets if each.exceeded and not each.coming}
    paths |= {e.path for e in plan.limits if e.waiting and e.in_use + e.given >= e.limit}
    return set(map(_figure_name, paths))


def _matching_patterns(fleet: Fleet, world: World) -> set[str]:
    """Return the patterns of `powerful` that match a waiting or running build."""
    builds = read_work(world) if fleet.powerful else ()
    named = [(name, request.task) for _, request, names, _ in builds for name in names]
    if not named:
        return set()
    rules = AllowList(fleet, world.time.date()).count_names(tasks_by_name(named))
    return {fleet.powerful[index].match for index, found in rules.items() if found}


def _peaks(
    fleet: Fleet, world: World, plan: Plan, given: set[str]
) -> Iterator[tuple[TallyKind, str]]:
    """Yield ("powerful", package) per build of known memory peak; if low, also "needless"."""
    types = {each.worker: (each.pool, each.type) for each in plan.workers}
    running = _running(world)
    for queue, demand in world.demands():
        peaks = {(each.task, each.package): each.memory_mib for each in demand.history}
        for key, (worker, work) in running.items() if peaks else ():
            if not work.package or not key.startswith(f"{queue}/"):
                continue
            peak = peaks.get((work.task, work.package))
            if not peak or not given & set(work.required):
                continue
            yield "powerful", work.package
            pool, name = types.get(worker.name, ("", None))
            declared = fleet.pools.get(pool)
            if isinstance(declared, Pool) and name:
                known = find_type(fleet, declared, name)
                if known and max(peak) * FAR_BELOW < known.memory:
                    yield "needless", work.package


def _optimum(plan: Plan, tally: Callable[..., Tally]) -> Iterator[Tally]:
    """Yield the cost of new machines, and the lower bound if it is about the same machines.

    If a guard withholds machines, the bound includes them and the cost does not.
    """
    best = plan.optimum
    if best is None or not best.machines:
        return
    if best.withheld or best.model is None:
        yield tally("optimum", "withheld", nanos=_nanos(best.cost))
        return
    yield tally("optimum", "planned", nanos=_nanos(best.model))
    yield tally("optimum", "bound", nanos=_nanos(best.bound))
    if best.model > best.bound:
        yield tally("gap", best.because or ROUNDING, nanos=_nanos(best.model - best.bound))


def _nanos(amount: Decimal) -> int:
    return int(amount * _NANO)
