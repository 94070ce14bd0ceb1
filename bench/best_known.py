"""Search for a cheaper allocation of a world than fleet's, to fill bench/best_known.json.

`python -m bench.best_known SECONDS CASE ...`, each case a `bench.worlds.Size` as JSON. The search
starts at fleet's own allocation. Up to `WHOLE` columns HiGHS searches all of the program of
`bench.plain`; above, a random neighbourhood of places at a time (large neighbourhood search).
"""

import json
import random
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import process_time

import highspy
import numpy as np

from bench.one import layout_of
from bench.plain import Array, Plain
from bench.worlds import Size, grouped, scene_of, world_of
from fleet.planner.allocation import allocate

FILE = Path(__file__).with_name("best_known.json")
WHOLE = 6_000
"""Maximum columns of a search of the whole world: above, HiGHS finds little in minutes."""
PART = 1_500, 6_000
"""Minimum and maximum columns of a neighbourhood, drawn for each."""
PART_SECONDS = 60
"""Maximum seconds of one search of a neighbourhood, or of one rank."""


class Program:
    """The program of a world, and the best values found."""

    def __init__(self, size: Size) -> None:
        scene = grouped(scene_of(size))
        layout = layout_of(scene.fleet, world_of(scene))
        self.plain = Plain(layout.groups, layout.places, layout.rows)
        found = allocate(layout.groups, layout.places, layout.rows)
        self.values = np.zeros(self.plain.count)
        for at, n in found.counts.items():
            self.values[self.plain.column_of[at]] = n
        for key, n in found.machines.items():
            self.values[self.plain.machine_of[key]] = n

    def served(self) -> list[int]:
        """Return the number of served requests of each rank, the earliest first."""
        return [round(self.values[columns].sum()) for columns in self.plain.ranks.values()]

    def unserved(self) -> list[int]:
        """Return the number of requests of each rank that could be served, and are not."""
        sizes = [self.plain.sizes[rank] for rank in self.plain.ranks]
        return [size - n for size, n in zip(sizes, self.served(), strict=True)]

    def cost(self) -> float:
        """Return the money of machines and requests."""
        return float(self.plain.costs @ self.values)

    def search(self, free: Array, seconds: float, rank: int | None = None) -> None:
        """Improve the values of some columns: of the cost, or of a rank while later ones yield."""
        plain, where = self.plain, np.flatnonzero(free)
        lower, costs = np.full(len(plain.row_uppers), -np.inf), plain.costs[where]
        rows = [*plain.rank_rows.values()]
        lower[rows] = self.served()
        if rank is not None:
            lower[rows[rank + 1 :]] = -np.inf
            costs = -np.isin(where, [*plain.ranks.values()][rank]).astype(float)
        solver = plain.load(free, self.values, lower)
        for name, value in (
            *(("time_limit", float(seconds)), ("mip_rel_gap", 1e-6)),
            ("mip_feasibility_tolerance", 1e-9),
        ):
            solver.setOptionValue(name, value)
        solver.changeColsCost(len(where), np.arange(len(where), dtype="int32"), costs)
        start = highspy.HighsSolution()
        start.col_value = self.values[where].tolist()
        solver.setSolution(start)
        solver.run()
        found = np.round(np.array(solver.getSolution().col_value))
        if len(found) and costs @ found < costs @ self.values[where] - 1e-9:
            values = self.values.copy()
            values[where] = found
            if (plain.row_sums(values) <= np.array(plain.row_uppers) + 1e-6).all():
                self.values = values

    def neighbourhood(self, dice: random.Random) -> Array:
        """Return the columns of some places that serve the same groups."""
        place_of, group_of = self.plain.place_of, self.plain.group_of
        wanted = dice.randint(*PART)
        used = place_of[self.values > 0]
        at = {dice.choice(sorted(set(used.tolist())))}
        free = np.isin(place_of, [*at])
        while free.sum() < wanted and len(at) < len(set(place_of.tolist())):
            near = np.isin(group_of, group_of[free & (group_of != "")])
            others = sorted(set(place_of[near].tolist()) - at) or sorted(
                set(place_of.tolist()) - at
            )
            at.add(dice.choice(others))
            free = np.isin(place_of, [*at])
        return free


def search(size: Size, seconds: float) -> dict[str, object]:
    """Return what was found for a world."""
    program, dice = Program(size), random.Random(48)  # noqa: S311 - no secret
    began, own, whole = process_time(), program.cost(), np.ones(program.plain.count, dtype=bool)
    start = program.unserved()
    while (left := seconds - (process_time() - began)) > 1:
        is_small = program.plain.count <= WHOLE
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
        "started_at": f"the allocation of fleet {metadata.version('fleet-reconciler')}",
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
