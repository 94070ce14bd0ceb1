"""Solve linear and mixed-integer programs with HiGHS, deterministically.

One thread, a fixed seed, and limits in nodes and gaps, never in seconds: equal programs have equal
solutions. The linear relaxation is solved by column generation, because a large component has a
million columns of which a solution uses a few thousand (R. Bixby and others, Very large-scale
linear programming, Operations Research 40, 1992).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import floor, inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import highspy

Array = Any
"""An array of numpy, which loads only if a program is solved."""
RowSum = tuple[int, int]
"""The number of a row, and the sum that it must have."""
GAP = 1e-4
"""Relative gap at which an exact search ends. HiGHS's own default; a plan prints it."""
MAX_NODES = 2000
"""Maximum branch-and-bound nodes of an exact search. The plan says so where it is reached."""
TOLERANCE = 1e-6
"""Feasibility tolerance of the solver, for rows and for integrality."""
ROW_MARGIN = 2e-6
"""Distance that exact searches keep from a limit that is not an integer: twice the tolerance."""
_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    "mip_rel_gap": GAP,
    "mip_abs_gap": 0.0,
    "mip_max_nodes": MAX_NODES,
    # It looks for a first solution; here a first solution is always known or trivial.
    "mip_heuristic_run_feasibility_jump": False,
}
_NEIGHBOURHOOD_GAP = 3e-3
"""Gap at which a neighbourhood is solved, as a part of the cost of its columns."""
_RANK_NODES = 100
"""Maximum nodes of a search that raises a rank: most end at the root node."""
_COUNT_GAP = 1 - 1e-4
"""Counts are integers: a bound less than one above a solution proves it."""
_EQUAL_COST = 1e-7
"""Relative and absolute difference below which two costs are equal."""
_MIN_GAIN = 1e-7
"""Least reduced cost, in units of the scaled cost, for which a column is generated."""
_COLUMNS_PER_BLOCK = 3
"""Columns generated per block and iteration: with one, three times as many iterations."""
_BOUND_GAP = 1e-7
"""Relative gap between the restricted and the full relaxation at which generation ends."""
_FEW_COLUMNS = 1_000
"""Up to this number all columns are active from the start."""
_MAX_COST = 40.0
"""Scaled cost of the most expensive column: HiGHS asks for moderate numbers."""
_GOLDEN_RATIO = 0.6180339887498949
"""The fractional parts of its multiples are evenly spread."""
_PRIMAL_SIMPLEX = 4
"""HiGHS's number for the primal simplex method: new columns keep the basis primal feasible."""
_idle_solvers: list["highspy.Highs"] = []
"""Empty solvers to use again: creating one takes as long as solving a small program."""


@cache
def can_solve() -> bool:
    """Return whether the solver is installed: it is an extra of fleet."""
    try:
        import highspy  # noqa: F401 - only the import is tried
    except ModuleNotFoundError:
        return False
    return True


@dataclass(frozen=True)
class Solution:
    """An integer solution, and a proven bound of its cost."""

    values: tuple[float, ...]
    bound: float
    sums: Sequence[RowSum]
    """The row sums that were required."""
    nodes: int


@dataclass(frozen=True)
class Relaxed:
    """An optimal solution of the linear relaxation; no integer solution costs less."""

    values: Array
    """Column to value: an array of numpy."""
    cost: float
    reduced_costs: Array
    """Column to reduced cost: an array of numpy."""


@dataclass
class Program:
    """Columns (variables from 0 to an upper bound) and rows (upper bounds of weighted sums)."""

    costs: list[float] = field(default_factory=list)
    uppers: list[float] = field(default_factory=list)
    block_starts: list[int] = field(default_factory=list)
    """The first column of each block: columns whose sum is at most the upper bound of each."""
    row_uppers: list[float] = field(default_factory=list)
    row_ends: list[int] = field(default_factory=list)
    """Row to its end in `index` and `factors`."""
    index: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    first_costs: dict[int, float] = field(default_factory=dict)
    """Column to a cost that is minimised before `costs`, in an exact search."""
    last_costs: dict[int, float] = field(default_factory=dict)
    """Column to a cost that is minimised after `costs`, in an exact search."""
    penalties: dict[int, float] = field(default_factory=dict)
    """Column to the cost that replaces both if a search is not exact."""

    def add_column(self, cost: float, upper: float) -> int:
        """Add a column and return its number."""
        return self.add_block([cost], upper)[0]

    def add_block(self, costs: Sequence[float], upper: float) -> range:
        """Add a column per cost and return their numbers; a row bounds their sum by `upper`."""
        first = len(self.costs)
        self.block_starts.append(first)
        self.costs += costs
        self.uppers += [upper] * len(costs)
        return range(first, len(self.costs))

    def add_row(self, columns: Sequence[int], factors: Sequence[float], upper: float = inf) -> int:
        """Add `sum(factor * column) <= upper` and return the number of the row."""
        self.index += columns
        self.factors += factors
        self.row_ends.append(len(self.index))
        self.row_uppers.append(upper)
        return len(self.row_ends) - 1

    def solve(self, sums: Sequence[RowSum]) -> Solution | None:
        """Return the cheapest integer solution with these row sums.

        None if the program is infeasible, or no solution was found within `MAX_NODES`.
        """
        solver = self._load(sums)
        _set_integer(solver, len(self.costs))
        if self.first_costs:
            first = self.dense(self.first_costs)
            _set_costs(solver, first)
            _bound_cost(solver, first, (run(solver) or 0.0) + 0.5)
            _set_costs(solver, self._costs)
        cost = run(solver)
        if cost is None:
            _release(solver)
            return None
        found = Solution(
            tuple(solver.getSolution().col_value),
            min(cost, float(solver.getInfo().mip_dual_bound)),
            sums,
            int(solver.getInfo().mip_node_count),
        )
        if self.last_costs:
            _bound_cost(solver, self._costs, cost * (1 + _EQUAL_COST) + _EQUAL_COST)
            _set_costs(solver, self.dense(self.last_costs))
            _set_start(solver, self._numpy.array(found.values))
            if run(solver) is not None:
                found = replace(found, values=tuple(solver.getSolution().col_value))
        _release(solver)
        return found

    def maximize_in_turn(self, rows: Sequence[int]) -> list[int]:
        """Return the maximum integer sum of each row, in turn: earlier rows keep theirs."""
        solver = self._load(())
        _set_integer(solver, len(self.costs))
        solver.setOptionValue("mip_abs_gap", _COUNT_GAP)
        solver.setOptionValue("mip_rel_gap", 0.0)
        sums: list[int] = []
        for row in rows:
            _set_costs(solver, -self.row_factors(row))
            sums.append(floor(-(run(solver) or 0.0) + GAP))
            solver.changeRowBounds(row, sums[-1] - TOLERANCE, inf)
        _release(solver)
        return sums

    def raise_sum(
        self,
        row: int,
        columns: Array,
        values: Array,
        kept: Sequence[RowSum],
    ) -> Array:
        """Return integer values of these columns with the largest sum of a row found.

        All other columns are 0; the rows of `kept` have at least these sums. The search starts
        from `values`.
        """
        np = self._numpy
        solver = self._load((), columns)
        for name, value in (("mip_max_nodes", _RANK_NODES), ("mip_abs_gap", _COUNT_GAP)):
            solver.setOptionValue(name, value)
        for each, least in kept:
            solver.changeRowBounds(each, least - TOLERANCE, inf)
        _set_costs(solver, -self.row_factors(row)[columns])
        _set_integer(solver, len(columns))
        _set_start(solver, values[columns])
        raised = values
        if run(solver) is not None:
            raised = np.zeros(len(values))
            raised[columns] = np.round(solver.getSolution().col_value)
        _release(solver)
        return raised

    def search(
        self,
        neighbourhoods: Iterable[Sequence[int]],
        values: Array,
        sums: Sequence[RowSum],
        *,
        nodes: int,
        toward: Array = None,
    ) -> Array:
        """Return integer values with the same row sums at no higher cost.

        The columns of each neighbourhood are free in turn, all others fixed. With `toward`, each
        free column stays between its value and the one that it has there. Each search ends after
        this number of nodes.
        """
        np, values = self._numpy, values.copy()
        used, (lower, upper) = self._row_sums(values), self._row_bounds(sums)
        lower, upper = lower - used, upper - ROW_MARGIN * (upper != np.floor(upper)) - used
        for neighbourhood in neighbourhoods:
            free = np.array(neighbourhood)
            rows, factors, starts = self.matrix.select(free)
            some, index = np.unique(rows, return_inverse=True)
            given, costs = values[free], self.penalized_costs[free]
            own = np.bincount(index, factors * np.repeat(given, np.diff(starts)), len(some))
            bounds = lower[some] + own, np.maximum(upper[some], 0.0) + own
            solver = _loaded(costs, self._uppers[free], bounds, (starts, index, factors))
            if toward is not None:
                low = np.minimum(given, np.maximum(0, np.floor(toward[free] + TOLERANCE)))
                high = np.minimum(
                    self._uppers[free], np.maximum(given, np.ceil(toward[free] - TOLERANCE))
                )
                solver.changeColsBounds(len(free), _numbers(len(free)), low, high)
            _set_integer(solver, len(free))
            cost = float((costs * given).sum())
            for name, value in (
                ("mip_max_nodes", nodes),
                ("mip_rel_gap", 0.0),
                ("mip_abs_gap", _NEIGHBOURHOOD_GAP * cost),
                ("mip_allow_restart", False),
                # A third of the time, for solutions that the other heuristics find as well.
                ("mip_heuristic_run_root_reduced_cost", False),
            ):
                solver.setOptionValue(name, value)
            _set_start(solver, given)
            found = run(solver)
            if found is not None and found < cost:
                values[free] = np.round(solver.getSolution().col_value)
                moved = np.repeat(values[free] - given, np.diff(starts))
                change = np.bincount(index, factors * moved, len(some))
                lower[some] -= change
                upper[some] -= change
            _release(solver)
        return values

    def row_factors(self, *rows: int) -> Array:
        """Return the factor of each column in these rows, added up."""
        found = self._numpy.zeros(len(self.costs))
        for row in rows:
            own = slice(self.row_ends[row - 1] if row else 0, self.row_ends[row])
            found[self._entries[1][own]] += self._entries[2][own]
        return found

    def slack(self, values: Array) -> Array:
        """Return the difference between the upper bound of each row and its sum."""
        return self.row_uppers - self._row_sums(values)

    @cached_property
    def relaxation(self) -> "Relaxation":
        """Return the linear relaxation; the program is complete from then on."""
        return Relaxation(self)

    @cached_property
    def matrix(self) -> "Matrix":
        """Return the entries by column; the program is complete from then on."""
        return Matrix(*self._entries, len(self.costs))

    @cached_property
    def penalized_costs(self) -> Array:
        """Return the cost of each column with its penalty."""
        return self._costs + self.dense(self.penalties)

    def _row_sums(self, values: Array) -> Array:
        rows, index, factors = self._entries
        return self._numpy.bincount(rows, factors * values[index], len(self.row_ends))

    def dense(self, sparse: Mapping[int, float]) -> Array:
        """Return an array of all columns; those that are not named are 0."""
        found = self._numpy.zeros(len(self.costs))
        found[[*sparse]] = [*sparse.values()]
        return found

    @cached_property
    def _numpy(self) -> Array:
        import numpy as np

        return np

    @cached_property
    def _entries(self) -> tuple[Array, Array, Array]:
        """Return the row, the column and the factor of each entry."""
        np = self._numpy
        rows = np.repeat(np.arange(len(self.row_ends)), np.diff([0, *self.row_ends]))
        return rows, np.array(self.index, dtype="int32"), np.array(self.factors, dtype=float)

    @cached_property
    def _costs(self) -> Array:
        return self._numpy.array(self.costs, dtype=float)

    @cached_property
    def _uppers(self) -> Array:
        return self._numpy.array(self.uppers, dtype=float)

    def _row_bounds(self, sums: Sequence[RowSum]) -> tuple[Array, Array]:
        """Return the lower and upper bound of each row; the rows of `sums` have both equal."""
        lower = self._numpy.full(len(self.row_ends), -inf)
        upper = self._numpy.array(self.row_uppers, dtype=float)
        fixed = [row for row, _ in sums]
        lower[fixed] = upper[fixed] = [number for _, number in sums]
        return lower, upper

    def _load(self, sums: Sequence[RowSum], columns: Array = None) -> "highspy.Highs":
        """Return a solver with these row sums, of all columns or of some."""
        np = self._numpy
        rows, index, factors = self._entries
        costs, uppers = self._costs, self._uppers
        if columns is not None:
            position = np.full(len(costs), -1, dtype="int32")
            position[columns] = np.arange(len(columns))
            known = position[index] >= 0
            rows, index, factors = rows[known], position[index[known]], factors[known]
            costs, uppers = costs[columns], uppers[columns]
        starts = np.searchsorted(rows, np.arange(len(self.row_ends) + 1))
        return _loaded(
            costs, uppers, self._row_bounds(sums), (starts, index, factors), by_row=True
        )


class Matrix:
    """The entries of a program by column."""

    def __init__(self, rows: Array, columns: Array, factors: Array, count: int) -> None:
        import numpy as np

        self._numpy = np
        order = np.argsort(columns, kind="stable")
        self._rows, self._factors = rows[order], factors[order]
        self._starts = np.searchsorted(columns[order], np.arange(count + 1))

    def column(self, column: int) -> tuple[Array, Array]:
        """Return the rows of a column and its factors there."""
        own = slice(self._starts[column], self._starts[column + 1])
        return self._rows[own], self._factors[own]

    def select(self, columns: Array) -> tuple[Array, Array, Array]:
        """Return the rows and factors of columns, and the start of each column in them."""
        at, starts = self._locate(columns)
        return self._rows[at], self._factors[at], self._numpy.append(starts, len(at))

    def that_fit(self, columns: Array, slack: Array) -> Array:
        """Return the columns that can be one larger within this slack of rows."""
        np, columns = self._numpy, self._numpy.array(columns, dtype=int)
        at, starts = self._locate(columns)
        exceeds = self._factors[at] > slack[self._rows[at]]
        return columns[~np.logical_or.reduceat(exceeds, starts)] if len(columns) else columns

    def _locate(self, columns: Array) -> tuple[Array, Array]:
        np, first = self._numpy, self._starts[columns]
        lengths = self._starts[columns + 1] - first
        starts = np.cumsum(lengths) - lengths
        return np.repeat(first - starts, lengths) + np.arange(lengths.sum()), starts


class Relaxation:
    """The linear relaxation of a program, solved by column generation.

    `start` comes first; then rows and columns are bounded, and one objective follows the other.
    Each continues from the basis of the one before.
    """

    def __init__(self, program: Program) -> None:
        import numpy as np

        self._numpy, self._program = np, program
        count = len(program.costs)
        self._block_starts = np.array(program.block_starts)
        self._sizes = np.diff([*self._block_starts, count])
        self._block = np.repeat(np.arange(len(self._sizes)), self._sizes)
        # Equal columns take turns: else all blocks get the same place first.
        self._turns = np.arange(count) * _GOLDEN_RATIO % 1
        self._uppers = np.array(program.uppers, dtype=float)
        self._by_block, self._by_column = self._split(*program._entries)  # noqa: SLF001 - one class in two parts

    def start(self, active: Iterable[int] = ()) -> None:
        """Forget all bounds and sums, and activate these columns."""
        np, count = self._numpy, len(self._uppers)
        self._lower, self._upper, self._costs = np.zeros(count), self._uppers, np.zeros(count)
        self.reduced_costs = np.zeros(count)
        self._is_active, self._active = np.zeros(count, dtype=bool), np.zeros(0, dtype=int)
        self.solver = self._program._load((), [])  # noqa: SLF001 - see above
        self.solver.setOptionValue("simplex_strategy", _PRIMAL_SIMPLEX)
        self.solver.setOptionValue("presolve", "off")
        # A maximum that was rounded down can be required then.
        self.solver.setOptionValue("primal_feasibility_tolerance", TOLERANCE)
        single = self._block_starts[self._sizes == 1]
        every = np.arange(count)
        self._activate(every if count <= _FEW_COLUMNS else np.union1d(single, [*active]))

    def bound_rows(
        self, rows: Sequence[int], lower: Sequence[float], upper: Sequence[float]
    ) -> None:
        """Bound the sum of each of these rows."""
        for bounds in zip(rows, lower, upper, strict=True):
            self.solver.changeRowBounds(*bounds)

    def bound_columns(self, lower: Array, upper: Array) -> None:
        """Bound every column."""
        self._lower, self._upper = lower, upper
        self._activate(self._numpy.flatnonzero((lower > 0) & ~self._is_active))
        bounds = lower[self._active], upper[self._active]
        self.solver.changeColsBounds(len(self._active), _numbers(len(self._active)), *bounds)

    def cheapest(
        self, sums: Sequence[RowSum], *, penalized: bool = True, reached: Iterable[int] = ()
    ) -> Relaxed | None:
        """Return the cheapest solution with these row sums; None if infeasible.

        `reached` are the columns of a solution that has these sums, where one is known.
        """
        rows, numbers = [row for row, _ in sums], [number for _, number in sums]
        active = [*reached]
        self.start(active)
        if not active:
            self.bound_rows(rows, [-inf] * len(rows), numbers)
            for _, bound in self.iterate(-self._program.row_factors(*rows)):
                if -bound < sum(numbers) - TOLERANCE:
                    return None
        self.bound_rows(rows, numbers, numbers)
        program = self._program
        costs = program.penalized_costs if penalized else program._costs  # noqa: SLF001 - see above
        scale = float(costs.max()) / _MAX_COST or 1.0
        lowest: float | None = None
        for cost, lowest in self.iterate(costs / scale):
            if cost - lowest <= _BOUND_GAP * cost:
                break
        if lowest is None:
            return None
        return Relaxed(self.values(), lowest * scale, self.reduced_costs * scale)

    def maximum(self, row: int) -> int:
        """Return the maximum sum of a row, rounded down."""
        found = 0
        for cost, bound in self.iterate(-self._program.row_factors(row)):
            found = floor(-cost + TOLERANCE)
            if found == floor(-bound + TOLERANCE):
                break
        return found

    def maxima_in_turn(
        self, rows: Sequence[int], kept: Sequence[int] | None = None, reached: Iterable[int] = ()
    ) -> list[int]:
        """Return the maximum of each row, in turn.

        Earlier rows keep their sums: their maxima, or those in `kept`, which the columns of
        `reached` have.
        """
        self.start(reached)
        found: list[int] = []
        for nth, row in enumerate(rows):
            found.append(self.maximum(row))
            self.bound_rows([row], [found[-1] if kept is None else kept[nth]], [inf])
        return found

    def values(self) -> Array:
        """Return the value of each column."""
        values = self._numpy.zeros(len(self._upper))
        values[self._active] = self.solver.getSolution().col_value
        return values

    def iterate(self, costs: Array) -> Iterator[tuple[float, float]]:
        """Yield the least cost by the active columns and a lower bound by all, each iteration.

        Nothing if there is no solution. After each iteration the columns with the most negative
        reduced costs become active, until no reduced cost is negative.
        """
        np, self._costs = self._numpy, costs
        _set_costs(self.solver, costs[self._active])
        while (cost := run(self.solver, relaxed=True)) is not None:
            self.reduced_costs = costs - self._weigh(np.array(self.solver.getSolution().row_dual))
            fixed = self._is_active | (self._upper == 0)
            gains = np.where(fixed, 0.0, -self.reduced_costs)
            best = np.maximum.reduceat(gains, self._block_starts)
            # No block can gain more than all of its upper bound at its best column.
            yield (
                cost,
                cost - float((np.maximum(best, 0.0) * self._uppers[self._block_starts]).sum()),
            )
            some = np.flatnonzero(gains > np.repeat(np.maximum(_MIN_GAIN, best / 2), self._sizes))
            if not len(some):
                return
            blocks = self._block[some]
            order = np.lexsort((self._turns[some], -gains[some], blocks))
            place_in_block = np.arange(len(some)) - np.searchsorted(blocks, blocks)
            self._activate(some[order[place_in_block < _COLUMNS_PER_BLOCK]])

    def _split(self, rows: Array, columns: Array, factors: Array) -> tuple[Array, Array]:
        """Return entries with one factor for a whole block, and all others by column."""
        np, blocks = self._numpy, self._block[columns]
        is_first = (np.diff(rows, prepend=-1) != 0) | (np.diff(blocks, prepend=-1) != 0)
        first = np.flatnonzero(is_first)
        lengths = np.diff(first, append=len(rows))
        equal = np.maximum.reduceat(factors, first) == np.minimum.reduceat(factors, first)
        equal &= lengths == self._sizes[blocks[first]]
        some, other = first[equal], np.flatnonzero(~np.repeat(equal, lengths))
        # Sorted by column they are added up in half the time.
        other = other[np.argsort(columns[other], kind="stable")]
        by_column = rows[other], columns[other].astype(int), factors[other]
        return (rows[some], blocks[some], factors[some]), by_column

    def _weigh(self, duals: Array) -> Array:
        """Return the sum of factor times dual for each column."""
        np, (rows, blocks, factors) = self._numpy, self._by_block
        found = np.repeat(
            np.bincount(blocks, factors * duals[rows], len(self._sizes)), self._sizes
        )
        rows, columns, factors = self._by_column
        return found + np.bincount(columns, factors * duals[rows], len(found))

    def _activate(self, columns: Array) -> None:
        columns = columns.astype(int)
        rows, factors, starts = self._program.matrix.select(columns)
        bounds = self._lower[columns], self._upper[columns]
        entries = starts[:-1].astype("int32"), rows.astype("int32"), factors
        self.solver.addCols(len(columns), self._costs[columns], *bounds, len(rows), *entries)
        self._active = self._numpy.append(self._active, columns)
        self._is_active[columns] = True


def run(solver: "highspy.Highs", *, relaxed: bool = False) -> float | None:
    """Run the solver and return the objective; None if no solution was found.

    A relaxed program proves something only by an optimal basis. HiGHS 1.15 ends some as unknown
    although both its solutions are feasible, which is proof enough.
    """
    import highspy

    solver.run()
    info, feasible = solver.getInfo(), highspy.SolutionStatus.kSolutionStatusFeasible
    proven = not relaxed or info.dual_solution_status == feasible
    found = proven and info.primal_solution_status == feasible
    return float(info.objective_function_value) if found else None


def _numbers(count: int) -> Array:
    import numpy as np

    return np.arange(count, dtype="int32")


def _set_integer(solver: "highspy.Highs", count: int) -> None:
    solver.changeColsIntegrality(count, _numbers(count), _numbers(count).astype("uint8") * 0 + 1)


def _set_costs(solver: "highspy.Highs", costs: Array) -> None:
    solver.changeColsCost(len(costs), _numbers(len(costs)), costs)


def _set_start(solver: "highspy.Highs", values: Array) -> None:
    solver.setSolution(len(values), _numbers(len(values)), values)


def _bound_cost(solver: "highspy.Highs", costs: Array, upper: float) -> None:
    columns = costs.nonzero()[0].astype("int32")
    solver.addRow(-inf, upper, len(columns), columns, costs[columns])


def _loaded(
    costs: Array,
    uppers: Array,
    row_bounds: tuple[Array, Array],
    entries: tuple[Array, Array, Array],
    *,
    by_row: bool = False,
) -> "highspy.Highs":
    """Return a solver of these columns and rows.

    Entries are the start of each column (or row), then the other's number and the factor of each.
    """
    import highspy
    import numpy as np

    solver = _idle_solvers.pop() if _idle_solvers else highspy.Highs()  # type: ignore[no-untyped-call]  # the library's own gap
    for name, value in _OPTIONS.items():
        solver.setOptionValue(name, value)
    lp, orders = highspy.HighsLp(), highspy.MatrixFormat
    lp.num_col_, lp.num_row_ = len(costs), len(row_bounds[0])
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = costs, np.zeros(len(costs)), uppers
    lp.row_lower_, lp.row_upper_ = row_bounds
    lp.a_matrix_.format_ = orders.kRowwise if by_row else orders.kColwise
    starts, index, lp.a_matrix_.value_ = entries
    lp.a_matrix_.start_, lp.a_matrix_.index_ = starts.astype("int32"), index.astype("int32")
    solver.passModel(lp)
    return solver


def _release(solver: "highspy.Highs") -> None:
    """Empty the solver and keep it for the next program."""
    solver.clear()
    _idle_solvers.append(solver)
