"""This module solves mixed-integer programmes with HiGHS, in a way that always answers alike.

One thread, a fixed seed, and limits in nodes and gap, never in seconds: equal programmes give
equal answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import floor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import highspy

GAP = 1e-3
"""The search ends when the answer is proven to be this near the optimum, relatively."""
WIDE_GAP = 0.02
"""The same, for large programmes in which not everybody can be served."""
NODES = 2000
"""The search ends after so many nodes, and says so."""
NODES_NEAR = 20
"""The search for whole numbers near an answer ends after so many nodes."""
_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    "mip_rel_gap": GAP,
    "mip_abs_gap": 0.0,
    "mip_max_nodes": NODES,
    # It seeks a first answer, which is never far here: more machines.
    "mip_heuristic_run_feasibility_jump": False,
}


_SLACK = 1e-6
_TOLERANCE = 1e-4
Sum = tuple[Sequence[int], int]
"""Columns, and what they have to sum to."""


@dataclass(frozen=True)
class Solution:
    """An answer, and a bound that is proven."""

    values: tuple[float, ...]
    cost: float
    bound: float
    sums: Sequence[Sum]
    """What it had to reach."""
    nodes: int


@dataclass
class Programme:
    """Columns (numbers from 0 to `upper`) and rows (bounded sums of columns)."""

    costs: list[float] = field(default_factory=list)
    uppers: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    lowers_of_rows: list[float] = field(default_factory=list)
    uppers_of_rows: list[float] = field(default_factory=list)
    entries: list[list[tuple[int, float]]] = field(default_factory=list)

    def column(self, cost: float, upper: float, *, whole: bool) -> int:
        """Add a column, of whole numbers or not, and return its number."""
        self.costs.append(cost)
        self.uppers.append(upper)
        self.whole.append(whole)
        return len(self.costs) - 1

    def row(
        self, entries: Sequence[tuple[int, float]], *, least: float | None, most: float | None
    ) -> int:
        """Add `least <= sum(factor * column) <= most` and return its number; None is open."""
        self.entries.append(list(entries))
        self.lowers_of_rows.append(-self._infinity if least is None else least)
        self.uppers_of_rows.append(self._infinity if most is None else most)
        return len(self.entries) - 1

    def solve(self, sums: Sequence[Sum] = (), *, gap: float = GAP) -> Solution | None:
        """Return the cheapest answer in which each of these sets of columns sums to its number.

        None when there is none, or none was found within `NODES`.
        """
        solver = self._load(sums)
        solver.setOptionValue("mip_rel_gap", gap)
        cost = self._run_whole(solver)
        if cost is None:
            return None
        info = solver.getInfo()
        return Solution(
            values=tuple(solver.getSolution().col_value),
            cost=cost,
            bound=min(cost, float(info.mip_dual_bound)),
            sums=sums,
            nodes=int(info.mip_node_count),
        )

    def relax(self, sums: Sequence[Sum]) -> float:
        """Return what the cheapest answer costs if no number need be whole, where there is one."""
        relaxed = _run(self._load(sums))
        return 0.0 if relaxed is None else relaxed

    def solve_near(
        self, near: Mapping[int, tuple[float, float]], sums: Sequence[Sum] = ()
    ) -> tuple[float, ...] | None:
        """Return the cheapest answer in whole numbers within these bounds of columns.

        All other columns are 0. None when none was found within `NODES_NEAR`.
        """
        solver = self._load(sums)
        size = len(self.costs)
        bounds = [near.get(column, (0.0, 0.0)) for column in range(size)]
        lower, upper = self._numpy.array(bounds, dtype=float).T
        solver.changeColsBounds(size, self._all_columns, lower.copy(), upper.copy())
        solver.setOptionValue("mip_max_nodes", NODES_NEAR)
        whole = self._numpy.ones(size, dtype="uint8")
        solver.changeColsIntegrality(size, self._all_columns, whole)
        return tuple(solver.getSolution().col_value) if _run(solver) is not None else None

    def most_in_turn(self, parts: Sequence[Sequence[int]]) -> list[int]:
        """Return the most that each set of columns can sum to, the earlier ones having theirs."""
        solver = self._load(())
        size = len(self.costs)
        solver.changeColsCost(size, self._all_columns, 0 * self._ones(size))
        # Only whole numbers are asked for: what is less than one apart is the same.
        solver.setOptionValue("mip_abs_gap", 1 - _TOLERANCE)
        solver.setOptionValue("mip_rel_gap", 0.0)
        found: list[int] = []
        for part in parts:
            columns, ones = self._numpy.array(part, dtype="int32"), self._ones(len(part))
            solver.changeColsCost(len(part), columns, -ones)
            found.append(floor(-(self._run_whole(solver) or 0.0) + _TOLERANCE))
            solver.changeColsCost(len(part), columns, 0 * ones)
            solver.addRow(found[-1] - _SLACK, self._infinity, len(part), columns, ones)
        return found

    def most_of_rows(self, sizes: Sequence[Mapping[int, int]]) -> dict[int, int]:
        """Return how much these rows can sum to when what they may is raised in these turns.

        What a row had in one turn it keeps in the next. Columns need not be whole.
        """
        solver = self._load(())
        rows = sorted({row for turn in sizes for row in turn})
        columns = sorted({column for row in rows for column, _ in self.entries[row]})
        costs = self._numpy.zeros(len(self.costs))
        costs[columns] = -1.0
        solver.changeColsCost(len(self.costs), self._all_columns, costs)
        most = dict.fromkeys(rows, 0)
        for row in rows:
            solver.changeRowBounds(row, 0.0, 0.0)
        for turn in sizes:
            for row, more in turn.items():
                solver.changeRowBounds(row, float(most[row]), float(most[row] + more))
            _run(solver)
            sums = solver.getSolution().row_value
            for row in turn:
                most[row] = floor(sums[row] + _TOLERANCE)
                solver.changeRowBounds(row, float(most[row]), float(most[row]))
        return most

    def _run_whole(self, solver: "highspy.Highs") -> float | None:
        whole = self._numpy.array(self.whole, dtype="uint8")
        solver.changeColsIntegrality(len(self.costs), self._all_columns, whole)
        return _run(solver)

    def _ones(self, count: int) -> Any:  # noqa: ANN401 - an array of numpy
        return self._numpy.ones(count)

    @cached_property
    def _numpy(self) -> Any:  # noqa: ANN401 - a module, loaded only when there is something to solve
        import numpy as np

        return np

    @cached_property
    def _infinity(self) -> float:
        import highspy

        return float(highspy.kHighsInf)

    @property
    def _all_columns(self) -> Any:  # noqa: ANN401 - an array of numpy
        return self._numpy.arange(len(self.costs), dtype="int32")

    def _load(self, sums: Sequence[Sum]) -> "highspy.Highs":
        import highspy

        np = self._numpy
        entries = [*self.entries, *([(column, 1.0) for column in columns] for columns, _ in sums)]
        numbers = [float(number) for _, number in sums]
        solver = highspy.Highs()  # type: ignore[no-untyped-call]  # the library's own gap
        for name, value in _OPTIONS.items():
            solver.setOptionValue(name, value)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.costs), len(entries)
        model.col_cost_ = np.array(self.costs, dtype=float)
        model.col_lower_ = np.zeros(len(self.costs))
        model.col_upper_ = np.array(self.uppers, dtype=float)
        model.row_lower_ = np.array([*self.lowers_of_rows, *numbers], dtype=float)
        model.row_upper_ = np.array([*self.uppers_of_rows, *numbers], dtype=float)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lengths = np.cumsum([0, *map(len, entries)])
        model.a_matrix_.start_ = lengths.astype("int32")
        model.a_matrix_.index_ = np.array([c for row in entries for c, _ in row], dtype="int32")
        model.a_matrix_.value_ = np.array([f for row in entries for _, f in row], dtype=float)
        solver.passModel(model)
        return solver


def _run(solver: "highspy.Highs") -> float | None:
    """Run and return the objective; None where no answer was found."""
    import highspy

    solver.run()
    status = solver.getModelStatus()
    info = solver.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if status == highspy.HighsModelStatus.kOptimal or found:
        return float(info.objective_function_value)
    return None
