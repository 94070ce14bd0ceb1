"""Search for a cheaper allocation of a world than fleet's, to fill bench/best_known.json.

`python -m bench.best_known SECONDS CASE ...`, each case a `bench.worlds.Size` as JSON. The mixed-
integer program of docs/explanation/allocation.md over groups, places and limits, which shares no
code with fleet's solver. It starts at fleet's own allocation. Up to `WHOLE` columns HiGHS searches
all of it; above, a random neighbourhood of places at a time (large neighbourhood search).
Each limit is kept at a distance of 1e-5, so that the result holds exactly.
"""

import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import process_time
from typing import Any

import highspy
import numpy as np

from bench.one import layout_of
from bench.worlds import Size, grouped, scene_of, world_of
from fleet.planner.allocation import allocate
from fleet.planner.demand import Rank

FILE = Path(__file__).with_name("best_known.json")
WHOLE = 6_000
"""Maximum columns of a search of the whole world: above, HiGHS finds little in minutes."""
PART = 1_500, 6_000
"""Minimum and maximum columns of a neighbourhood, drawn for each."""
PART_SECONDS = 60
"""Maximum seconds of one search of a neighbourhood, or of one rank."""
_MARGIN = 1e-5
Array = Any


class Program:
    """All pairs of group and place, and the machines of each place, as integer columns."""

    def __init__(self, size: Size) -> None:
        scene = grouped(scene_of(size))
        layout = layout_of(scene.fleet, world_of(scene))
        groups, places = layout.groups, layout.places
        pairs = [(g, p) for g in groups for p in g.fits if p in places]
        column_of = {(g.id, p): nth for nth, (g, p) in enumerate(pairs)}
        made = [key for key, place in places.items() if place.makes]
        machine_of = {key: len(pairs) + nth for nth, key in enumerate(made)}
        self.count = len(pairs) + len(made)
        self.costs = np.array(
            [float(g.fits[p].money) for g, p in pairs] + [float(places[p].setup) for p in made]
        )
        self.uppers = np.array([float(len(g.requests)) for g, _ in pairs] + [1e5] * len(made))
        self.place_of = np.array([*(places[p].key for _, p in pairs), *made])
        self.group_of = np.array([g.id for g, _ in pairs] + [""] * len(made))
        self.bounds: list[float] = []
        entries: list[tuple[int, int, float]] = []

        def add(row: Sequence[tuple[int, float]], upper: float) -> None:
            entries.extend((len(self.bounds), column, factor) for column, factor in row)
            self.bounds.append(upper)

        shares: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        ranks: defaultdict[Rank, list[int]] = defaultdict(list)
        for g in groups:
            own = [column_of[g.id, p] for p in g.fits if p in places]
            add([(column, 1.0) for column in own], len(g.requests))
            ranks[g.rank] += own
        for nth, (g, p) in enumerate(pairs):
            shares[p].append((nth, g.fits[p].share))
        for key, row in shares.items():
            new = places[key].makes
            add([*row, (machine_of[key], -1.0)] if new else row, 0 if new else places[key].room)
        for limit in layout.rows:
            used = [
                (machine_of[p], float(n)) for p, n in limit.machines.items() if p in machine_of
            ]
            used += [
                (column_of[at], float(n)) for at, n in limit.requests.items() if at in column_of
            ]
            is_integer = limit.room == limit.room.to_integral_value()
            add(used, float(limit.room) - (0 if is_integer else _MARGIN))
        self.ranks = [ranks[rank] for rank in sorted(ranks)]
        size_of = Counter(dict.fromkeys(ranks, 0))
        for g in groups:
            size_of[g.rank] += len(g.requests)
        self.sizes = [size_of[rank] for rank in sorted(size_of)]
        for columns in self.ranks:  # as -sum <= -served, once that is known
            add([(column, -1.0) for column in columns], 0)
        self.rows, self.columns, self.factors = map(np.array, zip(*entries, strict=True))
        found = allocate(groups, places, layout.rows)
        self.values = np.zeros(self.count)
        for at, n in found.counts.items():
            self.values[column_of[at]] = n
        for key, n in found.machines.items():
            self.values[machine_of[key]] = n

    def served(self) -> list[int]:
        """Return the number of served requests of each rank, the earliest first."""
        return [round(self.values[columns].sum()) for columns in self.ranks]

    def unserved(self) -> list[int]:
        """Return the number of requests of each rank that could be served, and are not."""
        return [size - n for size, n in zip(self.sizes, self.served(), strict=True)]

    def cost(self) -> float:
        """Return the money of machines and requests."""
        return float(self.costs @ self.values)

    def search(self, free: Array, seconds: float, rank: int | None = None) -> None:
        """Improve the values of some columns: of the cost, or of a rank while later ones yield."""
        where, is_free = np.flatnonzero(free), free[self.columns]
        bounds = np.array(self.bounds, dtype=float)
        served = self.served()
        bounds[-len(served) :] = -np.array(served)
        costs = self.costs[where]
        if rank is not None:
            bounds[len(bounds) - len(served) + rank + 1 :] = np.inf
            costs = -np.isin(where, self.ranks[rank]).astype(float)
        fixed = np.bincount(
            self.rows[~is_free],
            self.factors[~is_free] * self.values[self.columns[~is_free]],
            minlength=len(bounds),
        )
        rows = np.unique(self.rows[is_free])
        lp, solver = highspy.HighsLp(), highspy.Highs()  # type: ignore[no-untyped-call]  # the library's own gap
        lp.num_col_, lp.num_row_ = len(where), len(rows)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = costs, costs * 0, self.uppers[where]
        lp.row_lower_, lp.row_upper_ = np.full(len(rows), -np.inf), (bounds - fixed)[rows]
        lp.integrality_ = [highspy.HighsVarType.kInteger] * len(where)
        order = np.argsort(self.columns[is_free], kind="stable")
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.searchsorted(
            self.columns[is_free][order], np.append(where, self.count)
        )
        lp.a_matrix_.index_ = np.searchsorted(rows, self.rows[is_free][order])
        lp.a_matrix_.value_ = self.factors[is_free][order]
        for name, value in (
            *(("output_flag", False), ("threads", 1), ("time_limit", float(seconds))),
            *(("mip_rel_gap", 1e-6), ("mip_feasibility_tolerance", 1e-9)),
        ):
            solver.setOptionValue(name, value)
        solver.passModel(lp)
        start = highspy.HighsSolution()
        start.col_value = self.values[where].tolist()
        solver.setSolution(start)
        solver.run()
        found = np.round(np.array(solver.getSolution().col_value))
        if len(found) and costs @ found < costs @ self.values[where] - 1e-9:
            used = np.bincount(
                np.searchsorted(rows, self.rows[is_free]),
                self.factors[is_free] * found[np.searchsorted(where, self.columns[is_free])],
            )
            if (used <= (bounds - fixed)[rows] + 1e-6).all():
                self.values[where] = found

    def neighbourhood(self, dice: random.Random) -> Array:
        """Return the columns of some places that serve the same groups."""
        wanted = dice.randint(*PART)
        used = self.place_of[self.values > 0]
        at = {dice.choice(sorted(set(used.tolist())))}
        free = np.isin(self.place_of, [*at])
        while free.sum() < wanted and len(at) < len(set(self.place_of.tolist())):
            near = np.isin(self.group_of, self.group_of[free & (self.group_of != "")])
            others = sorted(set(self.place_of[near].tolist()) - at) or sorted(
                set(self.place_of.tolist()) - at
            )
            at.add(dice.choice(others))
            free = np.isin(self.place_of, [*at])
        return free


def search(size: Size, seconds: float) -> dict[str, object]:
    """Return what was found for a world."""
    program, dice = Program(size), random.Random(48)  # noqa: S311 - no secret
    began, own, whole = process_time(), program.cost(), np.ones(program.count, dtype=bool)
    start = program.unserved()
    while (left := seconds - (process_time() - began)) > 1:
        is_small = program.count <= WHOLE
        free = whole if is_small else program.neighbourhood(dice)
        first = 0 if is_small else dice.randrange(len(start))
        for rank in range(first, len(start)) if size.limited else ():
            before = program.served()
            program.search(free, PART_SECONDS, rank)
            if not is_small and program.served() <= before and rank == first:
                break  # else what later ranks yielded is theirs again
        program.search(free, left if is_small else min(left, PART_SECONDS))
        print(
            f"{process_time() - began:.0f} s: {program.cost()} {program.unserved()}",
            file=sys.stderr,
        )
        if is_small:
            break
    return {
        "unserved": program.unserved(),
        "cost": round(program.cost(), 6),
        "solver": f"HiGHS {metadata.version('highspy')}",
        "started_at": f"the allocation of fleet {metadata.version('fleet')}",
        "processor_s": round(process_time() - began),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "fleet": {"unserved": start, "cost": round(own, 6)},
    }


def main() -> None:
    """Print what is found for each case."""
    for case in sys.argv[2:]:
        print(case, json.dumps(search(Size(**json.loads(case)), float(sys.argv[1]))), flush=True)


if __name__ == "__main__":
    main()
