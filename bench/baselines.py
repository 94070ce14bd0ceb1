"""Decide as others do, so that what they buy can be set beside ours.

Each rule is given more than its original has: machines that take any fitting request, boots that
count as capacity, and the cheapest fitting pool as the one that a request names.

`cost_vs_NAME`: a queue runs on the machines that a rule buys, and on those that we buy with a
target_wait at which 95 of 100 requests wait no longer than there. The ratio is their cost over
ours, summed over `QUEUES`; a queue in which ours is more expensive, or slower, is printed.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from bench.evaluate import Outcome, Policy, Site, evaluate, queue_order
from bench.report import Report
from bench.worlds import POWERFUL, Box, Scene, Size, pool_of, scene_of, with_target_wait, world_of
from fleet.model.facts import Request
from fleet.reconcile import reconcile
from fleet.tagrules.offers import ask_of_tags

SCALING_RATIO = 0.5
PREALLOCATED = 2
"""Resalloc's own default of `max_prealloc`."""
QUEUES = (
    Size(200, 60, 12, 10, seed=1),
    Size(400, 100, 20, 20, seed=2),
    Size(800, 200, 30, 40, seed=3),
)
TIMES_THEIR_WAIT = (0, 0.5, 1, 1.5, 2, 3)
"""Our target_wait is tried at so many times what the baseline's requests waited; 0 is without."""


def ours(_: Site, scene: Scene) -> Mapping[str, int]:
    """Decide as `reconcile` does."""
    plan = reconcile(scene.fleet, world_of(scene))
    return Counter(action.pool for action in plan.actions if action.action == "create")


def one_per_request(site: Site, scene: Scene) -> Mapping[str, int]:
    """Make one machine for each waiting request, less those that are free already."""
    pending = _named(site, scene.requests)
    free = Counter(box.pool for box in _free(scene))
    return {
        name: min(count - free[name], _room(scene, name))
        for name, count in pending.items()
        if count > free[name]
    }


def pending_ratio(site: Site, scene: Scene) -> Mapping[str, int]:
    """Hold max(min, min((pending - idle) * ratio + existing, max)), as Taskcluster documents."""
    pending = _named(site, scene.requests)
    free = Counter(box.pool for box in _free(scene))
    existing = Counter(box.pool for box in scene.boxes)
    wanted = {}
    for name in sorted(scene.fleet.pools):
        workers = pool_of(scene.fleet, name).workers
        more = (pending[name] - free[name]) * SCALING_RATIO
        desired = max(workers.min, min(int(-(-more // 1)) + existing[name], workers.max))
        wanted[name] = max(0, desired - existing[name])
    return wanted


def preallocation(site: Site, scene: Scene) -> Mapping[str, int]:
    """Keep a number of free machines in every pool, whatever waits, as Resalloc does.

    Pools with an on-demand tag hold none; each request for one has one started.
    """
    free = Counter(box.pool for box in _free(scene))
    asking = [request for request in scene.requests if POWERFUL in request.required]
    on_demand = _named(site, asking)
    wanted = {}
    for name in sorted(scene.fleet.pools):
        powerful = POWERFUL in pool_of(scene.fleet, name).provides
        least = on_demand[name] if powerful else PREALLOCATED
        wanted[name] = min(max(0, least - free[name]), _room(scene, name))
    return wanted


def largest_first(site: Site, scene: Scene) -> Mapping[str, int]:
    """Place the largest first on what is free, else on a new machine of the cheapest pool.

    Karpenter's documented order, with the minimum of memory for the size: a worker runs one
    request at a time, so that a machine in the making holds one.
    """
    free: defaultdict[str, int] = defaultdict(int)
    for box in _free(scene):
        free[box.pool] += 1
    room = {name: _room(scene, name) for name in scene.fleet.pools}
    wanted: Counter[str] = Counter()
    size = partial(_size, scene)
    for request in sorted(scene.requests, key=lambda r: (-size(r), queue_order(r)[1:])):
        able = site.fits[request.id]
        taken = next((name for name in able if free[name]), None)
        if taken is not None:
            free[taken] -= 1
            continue
        name = next((name for name in able if room[name] > 0), None)
        if name is not None:
            room[name] -= 1
            wanted[name] += 1
    return wanted


BASELINES: Mapping[str, Policy] = {
    "one_per_request": one_per_request,
    "pending_ratio": pending_ratio,
    "preallocation": preallocation,
    "largest_first": largest_first,
}


def measure() -> Report:
    """Return what each baseline and ours come to, and their cost over ours at their wait."""
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for name, policy in BASELINES.items():
        pairs = []
        for size in QUEUES:
            scene = scene_of(size)
            theirs = evaluate(scene, policy)
            own = ours_within(scene, theirs)
            pairs.append((theirs, own))
            if own.cost > theirs.cost or own.p95_wait > theirs.p95_wait:
                print(
                    f"bench: {name}, {size}: theirs {theirs.cost:.2f} EUR at "
                    f"{theirs.p95_wait:.0f} s, ours {own.cost:.2f} EUR at {own.p95_wait:.0f} s",
                    file=sys.stderr,
                )
        for who, outcomes in zip((name, f"ours_at_{name}"), zip(*pairs, strict=True), strict=True):
            figures |= {
                f"{who}_cost": sum(outcome.cost for outcome in outcomes),
                f"{who}_p95_wait_s": max(outcome.p95_wait for outcome in outcomes),
                f"{who}_decide_s": max(outcome.slowest for outcome in outcomes),
            }
        ratios[f"cost_vs_{name}"] = figures[f"{name}_cost"] / figures[f"ours_at_{name}_cost"]
    floors = {f"cost_vs_{name}": 1.0 for name in BASELINES}
    return Report("baselines", figures, ratios, floors=floors)


def ours_within(scene: Scene, theirs: Outcome) -> Outcome:
    """Return the cheapest of ours that keeps the wait of theirs; the fastest where none does."""
    targets = [int(theirs.p95_wait * times) for times in TIMES_THEIR_WAIT]
    found = [evaluate(with_target_wait(scene, target or None), ours) for target in targets]
    within = [each for each in found if each.p95_wait <= theirs.p95_wait]
    if not within:
        return min(found, key=lambda each: each.p95_wait)
    return min(within, key=lambda each: each.cost)


def _named(site: Site, requests: Sequence[Request]) -> Counter[str]:
    """Count requests by the one pool that each names: the cheapest that fits."""
    return Counter(site.fits[r.id][0] for r in requests if site.fits[r.id])


def _free(scene: Scene) -> list[Box]:
    """Return the machines that are idle or boot."""
    return [box for box in scene.boxes if box.until <= scene.time or box.ready > scene.time]


def _room(scene: Scene, name: str) -> int:
    held = sum(box.pool == name for box in scene.boxes)
    return max(0, pool_of(scene.fleet, name).workers.max - held)


def _size(scene: Scene, request: Request) -> float:
    minimums = ask_of_tags(scene.fleet, request.required).minimums
    return float(minimums[0][1]) if minimums else 0.0
