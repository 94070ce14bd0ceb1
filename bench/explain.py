"""Measure `fleet explain request` beside `fleet plan` on the same files, both in processor time.

In limited worlds, about waiting requests of the first, the middle and the last group that waits:
the most that one of them takes counts.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.plan import LIMIT, run_fleet, write_world
from bench.report import Report
from bench.worlds import Size

WORLDS = {
    1.5: Size(140, 60, 10, 10, limited=True),
    2: Size(2_600, 800, 26, 100, limited=True),
    3: Size(10_000, 2_000, 100, 1_000, limited=True),
}
"""The most times the plan's time, and the world."""
SMALLEST = Size(30, 12, 3, 2, limited=True)


def measure(*, smallest: bool = False) -> Report:
    """Return the processor seconds of both, and their ratio."""
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    targets: dict[str, float] = {}
    for most, size in ({1.5: SMALLEST} if smallest else WORLDS).items():
        name = f"{size.requests:,} requests"
        print(f"bench: fleet explain request, {size}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            write_world(folder, size)
            plan = run_fleet(folder, "plan", "--json")["worked_s"]
            each = [
                run_fleet(folder, "explain", "request", request).get("worked_s", LIMIT)
                for request in _waiting(folder)
            ]
        figures |= {f"{name}, plan s": plan, f"{name}, explain s": max(each)}
        ratios[f"{name}, explain over plan"] = max(each) / plan
        targets[f"{name}, explain over plan"] = most
    return Report("explain", figures, ratios, {} if smallest else targets)


def _waiting(folder: str) -> list[str]:
    """Return a request of the first, the middle and the last group that waits."""
    files = ["-f", "fleet.yaml", "--world", "world.json", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "fleet", "plan", *files],
        cwd=Path(folder), check=True, capture_output=True,
    )  # fmt: skip
    groups = [each["requests"] for each in json.loads(done.stdout)["unserved"]]
    return [groups[nth][0] for nth in sorted({0, len(groups) // 2, len(groups) - 1})]
