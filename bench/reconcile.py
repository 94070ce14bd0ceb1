"""Measure whole decisions on invented worlds, each in a process of its own: time, memory, money.

Fleet and world are built before the clock starts; `guard(reconcile(...))` is timed. The queue is
told as SQL tells it, groups of alike requests with their counts. `bench.worlds` says how a world
is drawn. Points:

* growth: the processor's time with 100,000 requests over that with 10,000 of the same signatures
* cost over the proven bound in worlds of at most 1,500 pairs: the optimum
* cost over the best known (best_known.json) in all others that have one, see `beside_best`
* lost: requests that wait and would fit if nobody of a later rank were served
"""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.one import decide
from bench.report import Report
from bench.worlds import Size

GREAT = Size(100_000, 8_000, 400, 2_000)
TENTH = replace(GREAT, requests=10_000)
GROWTH = (
    *(GREAT, TENTH, replace(GREAT, requests=50_000)),
    *(replace(GREAT, pools=50), replace(GREAT, pools=200)),
    *(replace(GREAT, signatures=500), replace(GREAT, signatures=2_000)),
)
BOTH = (
    Size(100, 40, 10, 10),
    *(Size(1_000, 300, 40, 100, seed=seed) for seed in (7, 8, 9)),
    Size(1_000, 800, 400, 200),
    Size(10_000, 2_000, 100, 1_000),
)
"""Worlds without and with limits."""
LIMITED = (Size(1_000, 40, 400, 2_000), Size(10_000, 40, 400, 2_000), TENTH, GREAT)
WORLDS = (
    *GROWTH,
    *(*BOTH, Size(10_000, 2_000, 400, 10_000)),
    *(replace(each, limited=True) for each in (*BOTH, *LIMITED)),
)
SMALLEST = (Size(100, 40, 10, 10), Size(100, 40, 10, 10, limited=True))
EXACT_PAIRS = 1_500
SMALL = 1_000
LATE = 1e9
"""Cost over anything of a decision that did not end."""
GROWN = "growth from 10,000 to 100,000 requests of the same signatures"
EXACT = f"cost over the proven bound, at most {EXACT_PAIRS:,} pairs"
NEAR = f"cost over the best known, {SMALL:,} requests"
FAR = "cost over the best known, more requests"
LOST = "requests that wait and would fit if only later ranks gave way"
TARGETS = {GROWN: 1.5, EXACT: 1.0005, NEAR: 1.01, FAR: 1.03, LOST: 0}
"""An exact search ends at a gap of 0.01 %."""
LIMIT = 300
"""Seconds of the processor that one decision and its checks have."""
Row = Mapping[str, Any]
BEST_KNOWN = Path(__file__).with_name("best_known.json")


def measure(*, smallest: bool = False) -> Report:
    """Return the figures of each world, and the points."""
    rows = [_decided(size) for size in (SMALLEST if smallest else WORLDS)]
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    over: defaultdict[str, list[float]] = defaultdict(list)
    best_known: dict[str, Any] = json.loads(BEST_KNOWN.read_text(encoding="utf-8"))
    for row in rows:
        name = str(Size(**{key: row[key] for key in asdict(GREAT)}))
        if name in best_known:
            row.update(beside_best(row, best_known[name]))
        figures[f"{name}: processor s"] = row.get("worked_s", LIMIT)
        bound = row.get("over_bound", LATE if "limit_s" in row else 1.0)
        ratios[f"{name}: cost over bound"] = bound
        if row["signatures"] * row["pools"] <= EXACT_PAIRS:
            over[EXACT].append(bound)
        elif "over_best" in row:
            ratios[f"{name}: cost over best known"] = row["over_best"]
            over[NEAR if row["requests"] <= SMALL else FAR].append(row["over_best"])
    ratios |= {name: max(each) for name, each in over.items()}
    figures[LOST] = sum(row.get("lost", row["requests"]) for row in rows)
    if f"{GREAT}: processor s" in figures:
        great, tenth = (figures[f"{size}: processor s"] for size in (GREAT, TENTH))
        ratios[GROWN] = great / tenth
    return Report("reconcile", figures, ratios, {} if smallest else TARGETS, rows=rows)


def beside_best(row: Row, known: Row) -> Row:
    """Return the cost of a decision over the best known, and by how much a rank is short of it.

    `short`: how many requests fewer the first rank serves in which the two differ. Where it serves
    more than the best known, the cost does not compare, and counts as equal.
    """
    if "limit_s" in row:
        return {"over_best": LATE}
    pairs = zip(row["unserved"], known["unserved"], strict=True)
    short = next((own - best for own, best in pairs if own != best), 0)
    return {"over_best": 1.0 if short < 0 else row["cost"] / known["cost"], "short": short}


def _decided(size: Size) -> dict[str, Any]:
    print(f"bench: decide {size}", file=sys.stderr)
    rounds = 1 if size.limited or size.requests > SMALL else 3
    return asdict(size) | decide(asdict(size) | {"rounds": rounds}, LIMIT)
