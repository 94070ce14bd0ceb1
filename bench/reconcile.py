"""Measure whole decisions: values in, a guarded plan out; and what they cost.

`decide_*_s`: fleet and world are built before the clock starts; `guard(reconcile(...))` is timed,
the best of a few. The queue is told as SQL tells it, 8,000 groups of alike requests with their
counts; `decide_100k_x_400_one_by_one_s` has each request by itself, as REST tells it (which takes
more than an hour to tell so many). `decide_peak_mib` is the most memory that a process of its own
held, the interpreter and the world included, each request by itself.
`growth_10k_to_100k_requests` compares the same 8,000 signatures.

`cost_over_bound_worst*`: what machines made for requests cost, over the bound that the plan
proves, in the worst of the worlds below. `bench.worlds` says how they are drawn:

    requests  signatures  pools  workers   each once without and once with limits
         100          40     10       10
       1,000         300     40      100
      10,000       2,000    100    1,000
      10,000       2,000    400   10,000   (without limits only)
     100,000       8,000    400    2,000   (without limits only)

The two largest are not measured under limits: a budget on each of 400 pools joins everything, and
one decision takes minutes.

`cost_vs_NAME`: a queue runs on what `bench.baselines` buys, and on what we buy with a target_wait
at which 95 of 100 requests wait no longer than there: their cost over ours, summed over the queues
of `QUEUES`; a queue in which ours is dearer, or slower whatever the target, is named on stderr.
"""

import gc
import resource
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

from bench.baselines import BASELINES, ours
from bench.evaluate import Outcome, evaluate
from bench.report import Report
from bench.worlds import NOW, Scene, Size, scene_of, with_target_wait, world_of
from fleet.__main__ import COLLECTION
from fleet.guard import guard
from fleet.model.facts import Request, World
from fleet.model.plan import Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet

ROUNDS = 3
GREAT = Size(100_000, 8_000, 400, 2_000)
TENTH = Size(10_000, 8_000, 400, 2_000)
SIZES = (
    (100, 40, 10, 10),
    (1_000, 300, 40, 100),
    (10_000, 2_000, 100, 1_000),
    (10_000, 2_000, 400, 10_000),
    (100_000, 8_000, 400, 2_000),
)
QUEUES = (
    Size(200, 60, 12, 10, seed=1),
    Size(400, 100, 20, 20, seed=2),
    Size(800, 200, 30, 40, seed=3),
)
TIMES_THEIR_WAIT = (0, 0.5, 1, 1.5, 2, 3)
"""Our target_wait is tried at so many times what the baseline's requests waited; 0 is without."""
MIB = 1024


def measure() -> Report:
    """Return seconds, memory and money, beside the bound and beside what others would buy."""
    gc.set_threshold(*COLLECTION)
    scene = scene_of(GREAT)
    figures: dict[str, float] = {"decide_100k_x_400_s": decide(grouped(scene))}
    tenth = decide(grouped(scene_of(TENTH)))
    figures |= {
        "decide_100k_x_400_one_by_one_s": decide(scene),
        "decide_10k_x_400_s": tenth,
        "decide_peak_mib": peak_mib(),
    }
    ratios = {"growth_10k_to_100k_requests": figures["decide_100k_x_400_s"] / tenth}
    for name, limited in (("unlimited", False), ("limited", True)):
        worst = max(over_bound(limited=limited))
        ratios["cost_over_bound_worst" + ("" if limited else "_unlimited")] = worst
        print(f"bench: {name} worlds are at most {worst:.4f} over their bound", file=sys.stderr)
    more_figures, more_ratios = beside_baselines()
    return Report(
        name="reconcile",
        figures=figures | more_figures,
        ratios=ratios | more_ratios,
        targets={
            "decide_100k_x_400_s": 3,
            "decide_peak_mib": 1024,
            "growth_10k_to_100k_requests": 1.5,
        },
        floors={f"cost_vs_{name}": 1 for name in BASELINES},
    )


def decide(scene: Scene) -> float:
    """Return the seconds of the fastest whole decision of several."""
    world = world_of(scene)
    took = []
    for _ in range(ROUNDS):
        began = perf_counter()
        plan = plan_of(scene.fleet, world)
        took.append(perf_counter() - began)
        del plan  # to let go of it is no part of the decision
    return min(took)


def grouped(scene: Scene) -> Scene:
    """Return the same scene as SQL tells it: alike requests as one, with their count."""
    alike: defaultdict[tuple[object, ...], list[Request]] = defaultdict(list)
    for request in scene.requests:
        key = (request.task, request.required, request.provided, request.priority)
        alike[*key, request.expected_seconds, request.requester, request.scope].append(request)
    requests = (
        min(each, key=lambda r: (r.pending_since or NOW, r.id)).model_copy(
            update={"count": len(each)}
        )
        for each in alike.values()
    )
    return replace(scene, requests=tuple(requests))


def plan_of(fleet: Fleet, world: World) -> Plan:
    """Return the whole decision."""
    return guard(fleet, reconcile(fleet, world))


def peak_mib() -> float:
    """Return the most memory that one decision of a process of its own held."""
    command = "from bench.reconcile import GREAT, peak_of_this, plan_of, scene_of, world_of\n"
    command += f"import gc; gc.set_threshold(*{COLLECTION})\n"
    command += "scene = scene_of(GREAT); plan_of(scene.fleet, world_of(scene)); peak_of_this()"
    done = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True)
    return float(done.stdout)


def peak_of_this() -> None:
    """Print the most memory that this process held, in MiB."""
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB)


def over_bound(*, limited: bool) -> Iterator[float]:
    """Yield the cost of each world's plan over the bound that it proves."""
    for sizes in SIZES[:3] if limited else SIZES:
        scene = scene_of(Size(*sizes, limited=limited))
        optimum = reconcile(scene.fleet, world_of(scene)).optimum
        if optimum is not None:
            cost = optimum.cost if optimum.model is None else optimum.model
            yield float(cost / optimum.model_bound) if optimum.model_bound else float("inf")


def beside_baselines() -> tuple[dict[str, float], dict[str, float]]:
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
    return figures, ratios


def ours_within(scene: Scene, theirs: Outcome) -> Outcome:
    """Return the cheapest of ours that keeps the wait of theirs; the fastest where none does."""
    targets = [int(theirs.p95_wait * times) for times in TIMES_THEIR_WAIT]
    found = [evaluate(with_target_wait(scene, target or None), ours) for target in targets]
    within = [each for each in found if each.p95_wait <= theirs.p95_wait]
    if not within:
        return min(found, key=lambda each: each.p95_wait)
    return min(within, key=lambda each: each.cost)
