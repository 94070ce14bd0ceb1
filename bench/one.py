"""Take one decision in a process of its own: `python -m bench.one CASE`, a case as JSON.

A case is a `bench.worlds.Size` as its fields, or `asks` of `bench.karpenter`: cores (thousandths),
memory (MiB) and how many. The answer is a line of JSON. With a `folder` nothing is decided: the
files of `fleet plan` are written there.
"""

import gc
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import yaml

from bench.report import held_mib
from bench.worlds import NOW, QUEUE, Size, document_of, grouped, scene_of, world_of
from fleet.__main__ import COLLECTION
from fleet.guard import guard
from fleet.model.facts import Demand, Ledger, Listing, QueueReading, Request, World
from fleet.model.plan import Plan
from fleet.planner.allocation import allocate
from fleet.planner.begin import begin_pool_plans
from fleet.planner.demand import Rank, sign_demand
from fleet.planner.inventory import take_inventory
from fleet.planner.layout import Layout, lay_out
from fleet.planner.staffing import find_supplies
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders.choosing import lost

Answer = dict[str, Any]
"""Figures; without `seconds`: it took `limit_s` of the processor and was ended."""
_COUNT = re.compile(r"[^0-9]")
TYPES = 400
"""As in Karpenter's benchmark, and so is what they are and cost."""
_GIB = 1.073741824
_OWN_CPU, _OWN_MEMORY = 100, 10
"""What Karpenter keeps for the system of each: thousandths of a core, MiB."""


def main() -> None:
    """Print what the case in the arguments takes."""
    gc.set_threshold(*COLLECTION)
    case = json.loads(sys.argv[1])
    rounds = case.pop("rounds", 1)
    if "folder" in case:
        write_files(Path(case.pop("folder")), Size(**case))
        return
    if "asks" in case:
        fleet, world = of_asks(case["asks"])
    else:
        scene = grouped(scene_of(Size(**case)))
        fleet, world = scene.fleet, world_of(scene)
    took, worked = [], []
    for left in reversed(range(rounds)):
        began, begun = perf_counter(), process_time()
        plan = guard(fleet, reconcile(fleet, world))
        took.append(perf_counter() - began)
        worked.append(process_time() - begun)
        if left:
            del plan  # to let go of it is no part of the next decision
    figures = {"seconds": min(took), "worked_s": min(worked)} | told(fleet, plan)
    print("bench:" + json.dumps(figures | checked(fleet, world)))


def write_files(folder: Path, size: Size) -> None:
    """Write a fleet.yaml and what is seen of its world."""
    document = yaml.safe_dump(document_of(size))
    (folder / "fleet.yaml").write_text(document, encoding="utf-8")
    seen = world_of(grouped(scene_of(size)))
    (folder / "world.json").write_text(seen.model_dump_json(), encoding="utf-8")


def told(fleet: Fleet, plan: Plan) -> Answer:
    """Return what a plan comes to."""
    created = [action for action in plan.actions if action.action == "create"]
    figures = {
        "machines": len(created),
        "may_lack": sum(
            int(_COUNT.sub("", each.message.partition(" request")[0]))
            for each in plan.warnings
            if each.rule == "longer-than-necessary"
        ),
        "peak_mib": held_mib(),
    }
    if plan.optimum is not None and plan.optimum.model_bound:
        cost = plan.optimum.cost if plan.optimum.model is None else plan.optimum.model
        figures["over_bound"] = float(cost / plan.optimum.model_bound)
    if all(name.startswith("it-") for name in fleet.pools):
        figures["hourly"] = sum(_price(int(each.pool[3:])) for each in created)
    return figures


def checked(fleet: Fleet, world: World) -> dict[str, float | list[int]]:
    """Return what an allocation costs, and of whom it lets wait, each rank and as is checked."""
    layout = layout_of(fleet, world)
    found = allocate(layout.groups, layout.places, layout.rows)
    unserved: Counter[Rank] = Counter()
    for group in layout.groups:
        unserved[group.rank] += sum(request.key in found.unserved for request in group.requests)
    return {
        "lost": lost(layout.groups, layout.places, layout.rows, found),
        "unserved": [unserved[rank] for rank in sorted(unserved)],
        "cost": found.proof.cost,
    }


def layout_of(fleet: Fleet, world: World) -> Layout:
    """Return what a decision allocates."""
    pool_plans = begin_pool_plans(fleet, world, take_inventory(fleet, world))
    supplies = find_supplies(fleet, world, pool_plans)
    demand = sign_demand(fleet, world, supplies)
    return lay_out(fleet, world, pool_plans, supplies, demand)


def of_asks(asks: Sequence[tuple[int, int, int]]) -> tuple[Fleet, World]:
    """Return Karpenter's machine types as pools, and its pods as requests, one by one."""
    types: dict[str, object] = {}
    pools: dict[str, object] = {}
    for n in range(1, TYPES + 1):
        size = {"cores": n, "memory": f"{2 * n}GiB", "disk": "20GiB", "architecture": "amd64"}
        types[f"it-{n}"] = size | {"price": f"{_price(n):.6f} EUR/h"}
        pools[f"it-{n}"] = {
            "provider": "cloud",
            "machine": f"it-{n}",
            "image": "amd64",
            "provides": [f"cpu={1000 * n - _OWN_CPU}", f"memory={2048 * n - _OWN_MEMORY}"],
            "workers": {"max": 100_000},
        }
    numbers = {name: {"kind": "number"} for name in ("cpu", "memory")}
    throttle = {"create": {"share": "100%", "free_below": 100_000, "count": 100_000}}
    fleet = Fleet.model_validate(
        {
            "fleet": "bench",
            "providers": {"cloud": {"kind": "sim", "types": types}},
            "queues": {QUEUE: {"kind": "world", "path": "world.json"}},
            "images": {"amd64": {"suite": "trixie", "architecture": "amd64"}},
            "tags": numbers,
            "pools": pools,
            "guards": {"throttle": throttle},
        }
    )
    wanted = [(cpu, memory) for cpu, memory, count in asks for _ in range(count)]
    requests = tuple(
        Request(
            id=str(number),
            task="pod",
            required=(f"cpu>={cpu}", f"memory>={memory}"),
            pending_since=NOW - timedelta(minutes=5),
        )
        for number, (cpu, memory) in enumerate(wanted, 1)
    )
    reading = QueueReading(demand=Demand(read_at=NOW, requests=requests), workers=())
    world = World(
        fleet="bench",
        time=NOW,
        queues={QUEUE: reading},
        providers={"cloud": Listing(read_at=NOW)},
        ledger=Ledger(charged_until=NOW),
    )
    return fleet, world


def _price(n: int) -> float:
    return 0.1 * n + 0.1 * 2 * n * _GIB


_LAST_LINES = 100


def decide(case: Mapping[str, object], limit: int) -> Answer:
    """Return what a process of its own says about a case."""
    return run_alone([sys.executable, "-m", "bench.one", json.dumps(case)], limit)


def run_alone(
    command: Sequence[str], limit: int, environment: Mapping[str, str] | None = None
) -> Answer:
    """Return what a program says after `bench:` at its end, how long it ran, and its memory."""
    began, own = perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | (environment or {})
    )
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (limit, limit))
    with process.stdout or nullcontext() as told:
        # A whole plan would stay in this program: see `own`.
        printed = "".join(deque(told or (), maxlen=_LAST_LINES))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    took = perf_counter() - began
    if process.returncode == -signal.SIGKILL and usage.ru_utime + usage.ru_stime >= limit - 1:
        return {"limit_s": limit}
    if process.returncode:
        raise SystemExit(f"bench: {command[0]} ended with {process.returncode}: {printed[-500:]}")
    worked = usage.ru_utime + usage.ru_stime
    figures: Answer = {"whole_s": took, "worked_s": worked}
    if usage.ru_maxrss > own:  # else it is what this program held when it started the other
        figures["peak_mib"] = usage.ru_maxrss / 1024
    _, found, answer = printed.rpartition("bench:")
    return figures | (json.loads(answer.splitlines()[0]) if found else {})


if __name__ == "__main__":
    main()
