"""The mixed-integer program of docs/explanation/allocation.md, one column per group and place.

`bench.best_known` searches it for a cheaper allocation, and tests/builders/independent.py for one
more request of a rank. It shares no code with fleet's solver.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

import highspy
import numpy as np

from fleet.planner.demand import LimitRow, Place, Rank, RequestGroup

Array = Any
MARGIN = 1e-5
"""Distance from a limit that is no integer: ten times the solver's tolerance, so that a solution
holds exactly."""
_MAX_MACHINES = 1e5
"""Upper bound of machines at one place: above the requests of any world."""


class Plain:
    """All pairs of group and place, and the machines of each place, as integer columns."""

    def __init__(
        self, groups: Sequence[RequestGroup], places: Mapping[str, Place], rows: Sequence[LimitRow]
    ) -> None:
        pairs = [(group, key) for group in groups for key in group.fits if key in places]
        made = [key for key, place in places.items() if place.makes]
        self.count = len(pairs) + len(made)
        self.column_of = {(group.id, key): nth for nth, (group, key) in enumerate(pairs)}
        self.machine_of = {key: len(pairs) + nth for nth, key in enumerate(made)}
        self.group_of = np.array([group.id for group, _ in pairs] + [""] * len(made))
        self.place_of = np.array([*(key for _, key in pairs), *made])
        money = [float(group.fits[key].money) for group, key in pairs]
        self.costs = np.array(money + [float(places[key].setup) for key in made])
        sizes = [float(len(group.requests)) for group, _ in pairs]
        self.uppers = np.array(sizes + [_MAX_MACHINES] * len(made))
        self.row_uppers: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        shares: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        columns: defaultdict[Rank, list[int]] = defaultdict(list)
        self.sizes: Counter[Rank] = Counter()
        """Rank to the number of its requests."""
        for group in groups:
            own = [self.column_of[group.id, key] for key in group.fits if key in places]
            self._add([(column, 1.0) for column in own], len(group.requests))
            columns[group.rank] += own
            self.sizes[group.rank] += len(group.requests)
        for nth, (group, key) in enumerate(pairs):
            shares[key].append((nth, group.fits[key].share))
        for key, row in shares.items():
            if places[key].makes:
                self._add([*row, (self.machine_of[key], -1.0)], 0.0)
            else:
                self._add(row, places[key].room)
        for limit in rows:
            used = [(self.machine_of.get(key), n) for key, n in limit.machines.items()]
            used += [(self.column_of.get(at), n) for at, n in limit.requests.items()]
            is_integer = limit.room == limit.room.to_integral_value()
            self._add(
                [(column, float(n)) for column, n in used if column is not None],
                max(0.0, float(limit.room) - (0 if is_integer else MARGIN)),
            )
        self.ranks = {rank: columns[rank] for rank in sorted(columns)}
        """Rank to the columns of its requests."""
        self.rank_rows = {
            rank: self._add([(column, 1.0) for column in own], inf)
            for rank, own in self.ranks.items()
        }
        self.rows, self.columns, self.factors = map(np.array, zip(*self._entries, strict=True))
        self._by_column = np.argsort(self.columns, kind="stable")

    def _add(self, entries: Iterable[tuple[int, float]], upper: float) -> int:
        row = len(self.row_uppers)
        self._entries.extend((row, column, factor) for column, factor in entries)
        self.row_uppers.append(upper)
        return row

    def row_sums(self, values: Array) -> Array:
        """Return the sum of each row."""
        return np.bincount(
            self.rows, self.factors * values[self.columns], minlength=len(self.row_uppers)
        )

    def load(self, free: Array, values: Array, lower: Array) -> highspy.Highs:
        """Return a solver of some columns while all others keep their values.

        `lower`: the lower bound of each row.
        """
        where = np.flatnonzero(free)
        fixed = self.row_sums(np.where(free, 0.0, values))
        order = self._by_column[free[self.columns[self._by_column]]]
        lp, solver = highspy.HighsLp(), highspy.Highs()  # type: ignore[no-untyped-call]  # the library's own gap
        lp.num_col_, lp.num_row_ = len(where), len(lower)
        lp.col_cost_, lp.col_lower_ = self.costs[where], np.zeros(len(where))
        lp.col_upper_ = self.uppers[where]
        lp.row_lower_, lp.row_upper_ = lower - fixed, np.array(self.row_uppers) - fixed
        lp.integrality_ = [highspy.HighsVarType.kInteger] * len(where)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        starts = np.searchsorted(self.columns[order], np.append(where, self.count))
        lp.a_matrix_.start_, lp.a_matrix_.index_ = starts, self.rows[order]
        lp.a_matrix_.value_ = self.factors[order]
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.passModel(lp)
        return solver
