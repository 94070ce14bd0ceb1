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
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from threading import Timer
from time import perf_counter, process_time

import yaml

from bench.reconcile import MIB, grouped, plan_of
from bench.report import held_mib
from bench.worlds import NOW, QUEUE, Size, document_of, scene_of, world_of
from fleet.__main__ import COLLECTION
from fleet.model.facts import Demand, Ledger, Listing, QueueReading, Request, World
from fleet.model.plan import Plan
from fleet.planner.allocation import allocate
from fleet.planner.demand import sign_demand
from fleet.planner.inventory import take_inventory
from fleet.planner.layout import lay_out
from fleet.planner.lifecycle.begin import begin_pool_plans
from fleet.planner.staffing import find_supplies
from fleet.schema.model import Fleet
from tests.builders.choosing import lost

Answer = dict[str, float]
"""Figures; without `seconds`: it did not end in the time it had, which is `limit_s`."""
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
        plan = plan_of(fleet, world)
        took.append(perf_counter() - began)
        worked.append(process_time() - begun)
        if left:
            del plan  # to let go of it is no part of the next decision
    figures = {"seconds": min(took), "worked_s": min(worked)} | told(fleet, plan)
    print("bench:" + json.dumps(figures | {"lost": lost_in(fleet, world)}))


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


def lost_in(fleet: Fleet, world: World) -> int:
    """Return how many requests a decision lets wait in favour of a later rank, as is checked."""
    pool_plans = begin_pool_plans(fleet, world, take_inventory(fleet, world))
    supplies = find_supplies(fleet, world, pool_plans)
    demand = sign_demand(fleet, world, supplies)
    layout = lay_out(fleet, world, pool_plans, supplies, demand)
    found = allocate(layout.groups, layout.places, layout.rows)
    return lost(layout.groups, layout.places, layout.rows, found)


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


def decide(case: Mapping[str, object], limit: float) -> Answer:
    """Return what a process of its own says about a case."""
    return run_alone([sys.executable, "-m", "bench.one", json.dumps(case)], limit)


def run_alone(
    command: Sequence[str], limit: float, environment: Mapping[str, str] | None = None
) -> Answer:
    """Return what a program says after `bench:`, how long it ran, and the most that it held."""
    began, own = perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | (environment or {}),
        start_new_session=True,
    )
    timer = Timer(limit, _kill, (process.pid,))
    timer.start()
    try:
        with process.stdout or nullcontext() as told:
            printed = told.read() if told else ""
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    took = perf_counter() - began
    if process.returncode == -signal.SIGKILL and took >= limit:
        return {"limit_s": limit}
    if process.returncode:
        raise SystemExit(f"bench: {command[0]} ended with {process.returncode}: {printed[-500:]}")
    worked = usage.ru_utime + usage.ru_stime
    figures: Answer = {"whole_s": took, "worked_s": worked}
    if usage.ru_maxrss > own:  # else it is what this program held when it started the other
        figures["peak_mib"] = usage.ru_maxrss / MIB
    _, found, answer = printed.rpartition("bench:")
    return figures | (json.loads(answer.splitlines()[0]) if found else {})


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
