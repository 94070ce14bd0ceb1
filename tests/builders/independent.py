"""Check an allocation against a plain mixed-integer program, one variable per group and place.

The program is written from docs/explanation/allocation.md alone: *served(g, p)* and *machines(p)*,
their capacity and their limits. It shares no code with the planner's program, rounding or search.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from math import ceil, floor, inf
from typing import Any

import highspy
import numpy as np

from fleet.planner.allocation import Allocation
from fleet.planner.demand import Group, Place, Rank, Row

Array = Any
_ROUNDING = 1e-6
"""Tolerance of the solver and of shares of machines, which are floating-point numbers."""
_MARGIN = 1e-5
"""Distance from a limit that is no integer: a solution has to hold exactly."""
_NODES = 50
"""Maximum nodes for one rank: a rank is short only if a solution is found."""


def find_violations(
    groups: Sequence[Group], places: Mapping[str, Place], rows: Sequence[Row], found: Allocation
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


class Plain:
    """The mixed-integer program of a world."""

    def __init__(
        self, groups: Sequence[Group], places: Mapping[str, Place], rows: Sequence[Row]
    ) -> None:
        self._pairs = [(group, key) for group in groups for key in group.fits if key in places]
        made = [key for key, place in places.items() if place.makes]
        count = len(self._pairs) + len(made)
        column_of = {(group.id, key): nth for nth, (group, key) in enumerate(self._pairs)}
        machine_of = {key: len(self._pairs) + nth for nth, key in enumerate(made)}
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]  # the library's own gap
        for name, value in (("output_flag", False), ("threads", 1), ("mip_max_nodes", _NODES)):
            self._solver.setOptionValue(name, value)
        self._sizes = [float(len(group.requests)) for group, _ in self._pairs]
        self._solver.addVars(count, np.zeros(count), np.array(self._sizes + [inf] * len(made)))
        self._every = np.arange(count, dtype="int32")
        self._rank_rows: dict[Rank, int] = {}
        by_group: defaultdict[str, dict[int, float]] = defaultdict(dict)
        by_place: defaultdict[str, dict[int, float]] = defaultdict(dict)
        by_rank: defaultdict[Rank, dict[int, float]] = defaultdict(dict)
        self.sizes: Counter[Rank] = Counter()
        for nth, (group, key) in enumerate(self._pairs):
            by_group[group.id][nth] = by_rank[group.rank][nth] = 1.0
            by_place[key][nth] = group.fits[key].share
        for group in groups:
            self.sizes[group.rank] += len(group.requests)
            self._add(by_group[group.id], float(len(group.requests)))
        for key, entries in by_place.items():
            if places[key].makes:
                self._add(entries | {machine_of[key]: -1.0}, 0.0)
            else:
                self._add(entries, places[key].room)
        for row in rows:
            entries = {machine_of[p]: float(n) for p, n in row.machines.items() if p in machine_of}
            entries |= {
                column_of[at]: float(n) for at, n in row.requests.items() if at in column_of
            }
            is_integer = row.room == row.room.to_integral_value()
            self._add(entries, max(0.0, float(row.room) - (0 if is_integer else _MARGIN)))
        for rank in sorted(by_rank):
            self._rank_rows[rank] = self._add(by_rank[rank], inf)
        self._by_rank = by_rank

    def _add(self, entries: Mapping[int, float], upper: float) -> int:
        index = np.array([*entries], dtype="int32")
        factors = np.array([*entries.values()], dtype=float)
        self._solver.addRow(-inf, upper, len(index), index, factors)
        return int(self._solver.getNumRow()) - 1

    def first_short_rank(self, served: Mapping[Rank, int]) -> Rank | None:
        """Return the first rank that can serve one more request while earlier ranks keep theirs.

        The relaxation answers first: below one more request it proves that there is no such way.
        """
        last = [group.rank for group, _ in self._pairs]
        for rank, row in self._rank_rows.items():
            # A later rank may have to yield all that it has.
            uppers = [n if own <= rank else 0.0 for n, own in zip(self._sizes, last, strict=True)]
            self._solver.changeColsBounds(
                len(uppers), self._every[: len(uppers)], np.zeros(len(uppers)), np.array(uppers)
            )
            if served[rank] < self.sizes[rank]:
                costs = np.zeros(len(self._every))
                costs[[*self._by_rank[rank]]] = -1.0
                most = -(self._run(costs) or 0.0)
                if floor(most + _ROUNDING) > served[rank]:
                    self._solver.changeRowBounds(row, served[rank] + 1.0, inf)
                    if self._run(costs * 0.0, integer=True) is not None:
                        return rank
            self._solver.changeRowBounds(row, float(served[rank]), inf)
        return None

    def _run(self, costs: Array, *, integer: bool = False) -> float | None:
        """Return the least cost found; None if no solution was."""
        solver, count = self._solver, len(self._every)
        solver.changeColsCost(count, self._every, costs)
        solver.changeColsIntegrality(count, self._every, np.full(count, integer, dtype="uint8"))
        solver.run()
        info, feasible = solver.getInfo(), highspy.SolutionStatus.kSolutionStatusFeasible
        found = info.primal_solution_status == feasible
        return float(info.objective_function_value) if found else None


def count_served(groups: Sequence[Group], found: Allocation) -> Counter[Rank]:
    """Return the number of served requests of each rank."""
    served: Counter[Rank] = Counter()
    for group in groups:
        served[group.rank] += sum(found.counts.get((group.id, place), 0) for place in group.fits)
    return served


def machines_needed(
    groups: Sequence[Group], places: Mapping[str, Place], found: Allocation
) -> dict[str, int]:
    """Return the least machines of each place for the requests that are served there."""
    shares: defaultdict[str, float] = defaultdict(float)
    for group in groups:
        for place, fit in group.fits.items():
            shares[place] += fit.share * found.counts.get((group.id, place), 0)
    return {p: ceil(share - _ROUNDING) for p, share in shares.items() if places[p].makes and share}
