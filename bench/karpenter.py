"""Run Karpenter's own scheduler on the pods and machine types of its benchmark.

`K` of other measurements is the time of one Solve of its 20,000 generic pods among 400 instance
types, in the same run: what a point allows is told in K, for seconds differ between machines.

Its module is fetched by Go, and its test program built into the user's cache folder once; none of
its code is here. `karpenter_test.go` is laid into a copy of its package when that is built.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.one import Answer, decide, run_alone
from bench.report import Report

MODULE, VERSION = "sigs.k8s.io/karpenter", "v1.13.0"
PACKAGE = "pkg/controllers/provisioning/scheduling"
_OURS = Path(__file__).parent / "karpenter_test.go"
PODS = (1_000, 5_000, 20_000)
APART = 1_000
"""Pods that are each alone on a node: what they cost compares."""
LIMIT = 300
"""Seconds of the processor that one Solve, or one decision, has."""
ROUNDS = 3
IDLE = 0.62
"""Seconds of a Solve for each of its process' processor seconds on two idle cores: 6.36 of 10.31.

Of busy cores the clock tells nothing: beside twenty other programs a Solve took 73 s and 16 s of
the processor.
"""
_EPSILON = 1e-9


class NotHere(SystemExit):
    """It cannot be measured on this machine; the text says why."""


def measure(*, smallest: bool = False) -> Report:
    """Solve its pods, and decide about the same as requests; then each pod on its own node."""
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    pods = [(count // 10 if smallest else count, False) for count in PODS]
    for count, alone in (*pods, (APART // 10 if smallest else APART, True)):
        theirs: dict[str, Any] = solve(count, LIMIT, alone=alone)
        ours = decide({"asks": theirs.pop("asks"), "rounds": ROUNDS}, LIMIT)
        rows.append({"requests": count, "alone": alone, "ours": ours, "theirs": theirs})
        work = f"{count:,} pods, each alone" if alone else f"{count:,} pods"
        figures |= {f"{work}, fleet s": ours["seconds"], f"{work}, Karpenter s": theirs["seconds"]}
        ratios[f"{work}, times faster"] = theirs["seconds"] / ours["seconds"]
        ratios[f"{work}, cost"] = ours["hourly"] / theirs["hourly"]
    return Report(
        "karpenter",
        figures,
        ratios,
        targets={f"{APART:,} pods, each alone, cost": 1 + _EPSILON},
        floors={f"{PODS[-1]:,} pods, times faster": 10},
        rows=rows,
    )


def time_of_k() -> float:
    """Return the seconds of K, the least of a few; raises NotHere."""
    took = [solve(PODS[-1], LIMIT, alone=False) for _ in range(ROUNDS)]
    return float(min(min(each["seconds"], IDLE * each["worked_s"]) for each in took))


def built() -> Path:
    """Return the test program, built where it is not there yet; takes minutes, and the network."""
    key = hashlib.sha256(VERSION.encode() + _OURS.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache / "fleet" / f"karpenter-{key}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise NotHere("there is no go")
    told = _go(["mod", "download", "-json", f"{MODULE}@{VERSION}"], Path.home())
    module = Path(json.loads(told)["Dir"])
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "karpenter"
        shutil.copytree(module, copy, copy_function=shutil.copyfile)
        for each in (copy, copy / PACKAGE):
            each.chmod(0o755)
        shutil.copyfile(_OURS, copy / PACKAGE / "beside_fleet_test.go")
        made = Path(folder) / program.name
        _go(["test", "-c", "-tags=test_performance", "-o", str(made), f"./{PACKAGE}"], copy)
        shutil.copy(made, f"{program}.new")
    Path(f"{program}.new").rename(program)
    return program


def solve(pods: int, limit: int, *, alone: bool) -> Answer:
    """Return what its scheduler takes for so many pods; `alone`: each on a node of its own."""
    command = [str(built()), "-test.run=^TestBesideFleet$", "-test.timeout=0"]
    asked = {"FLEET_BENCH_PODS": str(pods), "FLEET_BENCH_ALONE": "yes" if alone else ""}
    return run_alone(command, limit, environment=asked)


def _go(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        ["go", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotHere(f"go {arguments[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout
