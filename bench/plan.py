"""Measure whole `fleet plan` commands, from files on 400 pools, in K.

K is the time of Karpenter's generic case in the same run (`bench.karpenter`). Of the command the
processor's time counts, user and system, of the process and its children: other programs that run
at the same time lengthen it less than the time of the clock. Limited worlds are those of
`bench.worlds`: a maximum for each pool, budgets of three pools in ten, and limits of a tag.
"""

import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from bench.karpenter import NotHere, time_of_k
from bench.one import Answer, decide, run_alone
from bench.report import Report
from bench.worlds import Size

ROWS = {
    "1,000 requests": (Size(1_000, 800, 400, 2_000), 0.25, 0.3),
    "10,000 requests nearly all different": (Size(10_000, 8_000, 400, 2_000), 0.8, 1.3),
    "100,000 requests in 8,000 signatures": (Size(100_000, 8_000, 400, 2_000), 0.75, 2.4),
}
"""World, and the most in K that it may take without and with limits."""
MIB, MIB_LIMITED = 400, 900
LIMIT = 300
"""Seconds of the processor that one command has."""
ROUNDS = 2


def measure(*, smallest: bool = False) -> Report:
    """Return processor seconds and MiB of each command, and the seconds in K."""
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    targets: dict[str, float] = {}
    try:
        k = 0.0 if smallest else time_of_k()
    except NotHere as reason:
        print(f"bench: nothing is measured in K: {reason}", file=sys.stderr)
        k = 0.0
    for limited in (False, True):
        for row, (size, *most) in ROWS.items():
            name = f"{row}, limited" if limited else row
            world = replace(size, limited=limited)
            if smallest:
                world = Size(world.requests // 100, 8, 10, 2, limited=limited)
            print(f"bench: fleet plan, {world}", file=sys.stderr)
            with tempfile.TemporaryDirectory() as folder:
                write_world(folder, world)
                took = [run_fleet(folder, "plan", "--json") for _ in range(ROUNDS)]
            best = min(took, key=lambda each: each.get("worked_s", LIMIT))
            figures[f"{name}, s"] = best.get("worked_s", LIMIT)
            figures[f"{name}, MiB"] = best.get("peak_mib", 0)
            targets[f"{name}, MiB"] = MIB_LIMITED if limited else MIB
            if k:
                figures["K, s"] = k
                ratios[f"{name}, K"] = figures[f"{name}, s"] / k
                targets[f"{name}, K"] = most[limited]
    return Report("plan", figures, ratios, {} if smallest else targets)


def write_world(folder: str, size: Size) -> None:
    """Write fleet.yaml and the world of a size, in a process of its own.

    A process that a large one starts is said to have been as large.
    """
    decide({"folder": folder} | asdict(size), LIMIT)


def run_fleet(folder: str, *words: str) -> Answer:
    """Run a command of fleet on the files of a folder."""
    files = ["-f", str(Path(folder, "fleet.yaml")), "--world", str(Path(folder, "world.json"))]
    return run_alone([sys.executable, "-m", "fleet", *words, *files], LIMIT)
