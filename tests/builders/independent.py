"""Check an allocation against a plain mixed-integer program, one variable per group and place.

The program of `bench.plain` is written from docs/explanation/allocation.md alone: *served(g, p)*
and *machines(p)*, their capacity and their limits. It shares no code with the planner's program,
rounding or search.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from math import ceil, floor, inf

import highspy
import numpy as np

from bench.plain import Array, Plain
from fleet.planner.allocation import Allocation
from fleet.planner.demand import LimitRow, Place, Rank, RequestGroup

_ROUNDING = 1e-6
"""Tolerance of the solver and of shares of machines, which are floating-point numbers."""
_NODES = 50
"""Maximum nodes for one rank: a rank is short only if a solution is found."""


def find_violations(
    groups: Sequence[RequestGroup],
    places: Mapping[str, Place],
    rows: Sequence[LimitRow],
    found: Allocation,
) -> Iterator[str]:
    """Yield each constraint that an allocation violates, with its figures."""
    shares: defaultdict[str, float] = defaultdict(float)
    for group in groups:
        served = sum(found.counts.get((group.id, place), 0) for place in group.fits)
        unserved = sum(request.key in found.unserved for request in group.requests)
        if served + unserved != len(group.requests):
            yield f"group {group.id}: {served} + {unserved} of {len(group.requests)}"
        for place, fit in group.fits.items():
            shares[place] += fit.share * found.counts.get((group.id, place), 0)
    for key, share in shares.items():
        capacity = found.machines.get(key, 0) if places[key].makes else places[key].room
        if share > capacity + _ROUNDING:
            yield f"place {key}: {share} of {capacity}"
    for row in rows:
        used = sum((n * found.machines.get(p, 0) for p, n in row.machines.items()), Decimal(0))
        used += sum((n * found.counts.get(at, 0) for at, n in row.requests.items()), Decimal(0))
        if used > row.room and used:
            yield f"limit {row.path}: {used} of {row.room}"


def first_short_rank(
    groups: Sequence[RequestGroup],
    places: Mapping[str, Place],
    rows: Sequence[LimitRow],
    found: Allocation,
) -> Rank | None:
    """Return the first rank that can serve an additional request while earlier ranks keep theirs.

    The relaxation answers first: below an additional request it proves that there is no such way.
    """
    plain, served = Plain(groups, places, rows), count_served(groups, found)
    solver = plain.load(
        np.ones(plain.count, dtype=bool),
        np.zeros(plain.count),
        np.full(len(plain.row_uppers), -inf),
    )
    solver.setOptionValue("mip_max_nodes", _NODES)
    every = np.arange(plain.count, dtype="int32")
    uppers = np.where(every < len(plain.column_of), 0.0, plain.uppers)
    for rank, row in plain.rank_rows.items():
        # A later rank may have to yield all that it has.
        uppers[plain.ranks[rank]] = plain.uppers[plain.ranks[rank]]
        solver.changeColsBounds(plain.count, every, np.zeros(plain.count), uppers)
        if served[rank] < plain.sizes[rank]:
            costs = np.zeros(plain.count)
            costs[plain.ranks[rank]] = -1.0
            most = -(_run(solver, every, costs) or 0.0)
            if floor(most + _ROUNDING) > served[rank]:
                solver.changeRowBounds(row, served[rank] + 1.0, inf)
                if _run(solver, every, costs * 0.0, integer=True) is not None:
                    return rank
        solver.changeRowBounds(row, float(served[rank]), inf)
    return None


def _run(
    solver: highspy.Highs, every: Array, costs: Array, *, integer: bool = False
) -> float | None:
    """Return the least cost found; None if no solution was."""
    solver.changeColsCost(len(every), every, costs)
    kinds = np.full(len(every), integer, dtype="uint8")
    solver.changeColsIntegrality(len(every), every, kinds)
    solver.run()
    info, feasible = solver.getInfo(), highspy.SolutionStatus.kSolutionStatusFeasible
    is_found = info.primal_solution_status == feasible
    return float(info.objective_function_value) if is_found else None


def count_served(groups: Sequence[RequestGroup], found: Allocation) -> Counter[Rank]:
    """Return the number of served requests of each rank."""
    served: Counter[Rank] = Counter()
    for group in groups:
        served[group.rank] += sum(found.counts.get((group.id, place), 0) for place in group.fits)
    return served


def machines_needed(
    groups: Sequence[RequestGroup], places: Mapping[str, Place], found: Allocation
) -> dict[str, int]:
    """Return the least machines of each place for the requests that are served there."""
    shares: defaultdict[str, float] = defaultdict(float)
    for group in groups:
        for place, fit in group.fits.items():
            shares[place] += fit.share * found.counts.get((group.id, place), 0)
    return {p: ceil(share - _ROUNDING) for p, share in shares.items() if places[p].makes and share}
