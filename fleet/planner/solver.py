"""Solve linear and mixed-integer programs with HiGHS, deterministically.

The solver uses one thread, a fixed seed, and limits on nodes and gaps instead of seconds, so that
equal programs have equal solutions. Column generation solves the linear relaxation: a large
component has a million columns, and a solution uses a few thousand (R. Bixby and others, Very
large-scale linear programming, Operations Research 40, 1992).
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import LazyLoader, find_spec, module_from_spec
from math import inf
from types import ModuleType
from typing import Any, NamedTuple


def _import_at_first_use(name: str) -> ModuleType | None:
    """Return a module that is imported when first used; None if it is not installed.

    Programs that solve no model then start a tenth of a second sooner.
    """
    if name not in sys.modules:
        if (spec := find_spec(name)) is None or spec.loader is None:
            return None
        spec.loader = LazyLoader(spec.loader)
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


np: Any = _import_at_first_use("numpy")
highspy: Any = _import_at_first_use("highspy")
Solver = Any
"""A HiGHS solver (`highspy.Highs`)."""
Array = Any
"""A numpy array."""
Bounds = tuple[Array, Array]
"""The lower and upper bounds of rows."""
GAP = 1e-4
"""Relative gap at which an exact search ends: the default of HiGHS. A plan prints it."""
MAX_NODES = 2000
"""Maximum branch-and-bound nodes of an exact search. A plan reports a search that reached it."""
TOLERANCE = 1e-6
"""Feasibility tolerance of the solver, for constraints and for integrality."""
ROW_MARGIN = 2e-6
"""Margin that searches keep below a limit that is not an integer: twice the tolerance."""
COUNT_GAP = 1 - 1e-4
"""Absolute gap for integer objectives: a bound less than 1 from the solution proves optimality."""
_EQUAL_COST = 1e-7
"""Difference below which scaled costs count as equal: the dual feasibility tolerance of HiGHS."""
_COLUMNS_PER_BLOCK = 6
"""Columns per block at the start and per iteration. With 3 or with 12, the solution for 10,000
requests in 400 limited pools takes longer. With 4, it takes 8 % less, but a world of
tests/laws/test_independent_check.py serves one request of a middle rank fewer."""
_FEW_COLUMNS = 5_000
"""Up to this number, all columns are active from the start, because generation is slower."""
_MAX_COST = 40.0
"""Scaled cost of the most expensive column; HiGHS recommends moderate numbers."""
_OPTIONS: Mapping[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    # Costs and shares have similar sizes: with scaling, a relaxation takes 15 % longer.
    "simplex_scale_strategy": 0,
    "mip_abs_gap": 0.0,
    # Feasibility jump searches for a first solution, which is always known or trivial here.
    "mip_heuristic_run_feasibility_jump": False,
}
_PRIMAL_SIMPLEX = 4
_DUAL_SIMPLEX = 1
"""HiGHS's numbers of simplex methods. New columns keep a basis primal feasible, but the dual
simplex method is five times as fast after many new columns."""
_MANY_COLUMNS = 2_000
"""Number of new columns above which the dual simplex method solves the relaxation."""


def can_solve() -> bool:
    """Import the solver, an optional dependency of fleet; return True if it is installed."""
    return np is not None and hasattr(highspy, "Highs")


class Objective(NamedTuple):
    """An objective to minimize; a program has several in lexicographic order."""

    costs: Array
    is_count: bool = True
    """True if the objective has integer values."""


class Solution(NamedTuple):
    """An integer solution, a lower bound of its cost, and the number of branch-and-bound nodes."""

    values: Array
    bound: float
    nodes: int


class Relaxed(NamedTuple):
    """A solution of the linear relaxation. `bound` is a lower bound of every integer solution."""

    values: Array
    bound: float
    reduced_costs: Array


class Raised(NamedTuple):
    """An integer solution, and an upper bound of the requests that it maximizes."""

    values: Array
    bound: float
    pivots: int
    """Number of simplex iterations."""


@dataclass(frozen=True)
class Program:
    """A mixed-integer program with integer columns from 0 to an upper bound.

    The first columns, one per element of `block`, count the requests of a block at a place.
    """

    costs: Array
    penalties: Array
    """Costs added to `costs` in a search with a single objective."""
    first_costs: Array
    """Costs that an exact search minimizes before `costs`."""
    last_costs: Array
    """Costs that an exact search minimizes after `costs`."""
    uppers: Array
    row_uppers: Array
    """Upper bound of each row. The first rows, one per block, are equalities."""
    entries: tuple[Array, Array, Array]
    """Row, column and factor of each matrix entry. Entries of requests come first: those in the
    row of their block, then those in the row of their place."""
    block: Array
    place: Array
    machines: Array
    """Place to the column that counts its new machines; -1 for a place of existing workers."""
    totals: Array
    """Block to the column that counts its served requests."""
    rank: Array
    """Block to the number of its rank."""
    rank_rows: Sequence[int]
    """Rank to the row that counts its served requests."""
    steps: Mapping[str, int]
    """Place to the column that counts the further billing steps of its machines."""

    @cached_property
    def by_column(self) -> tuple[Array, Array, Array]:
        """Return the matrix by column: start of each column, then row and factor of each entry."""
        rows, columns, factors = self.entries
        order = np.argsort(columns, kind="stable")
        starts = np.searchsorted(columns[order], np.arange(len(self.costs) + 1))
        return starts, rows[order].astype("int32"), factors[order]

    def select(self, columns: Array) -> tuple[Array, Array, Array]:
        """Return columns of the matrix in CSC form: starts, row indices and coefficients."""
        starts, rows, factors = self.by_column
        lengths = starts[columns + 1] - starts[columns]
        ends = np.cumsum(lengths)
        at = np.repeat(starts[columns] - ends + lengths, lengths) + np.arange(lengths.sum())
        return np.append(0, ends), rows[at], factors[at]

    def row_sums(self, values: Array) -> Array:
        """Return the weighted sum of each row for these column values."""
        rows, columns, factors = self.entries
        return np.bincount(rows, factors * values[columns], len(self.row_uppers))

    def served(self, values: Array) -> Array:
        """Return the number of served requests per rank for these column values."""
        return np.bincount(self.rank, values[self.totals], len(self.rank_rows))

    def row_bounds(self) -> Bounds:
        """Return the arrays of lower and of upper bounds of the rows."""
        lower = np.full(len(self.row_uppers), -inf)
        lower[: len(self.totals)] = 0.0
        return lower, self.row_uppers.copy()

    def is_until(self, rank: int) -> Array:
        """Return, per column, True if the column has no rank, this rank or an earlier rank."""
        found = np.ones(len(self.costs), dtype=bool)
        found[: len(self.block)] = self.rank[self.block] <= rank
        found[self.totals] = self.rank <= rank
        return found

    def count_costs(self, blocks: Sequence[int]) -> Array:
        """Return a cost vector whose minimum serves the most requests of these blocks."""
        costs = np.zeros(len(self.costs))
        costs[self.totals[blocks]] = -1.0
        return costs

    def solve(self, objectives: Iterable[Objective], *, serve_all: bool) -> Solution | None:
        """Return the best solution for several objectives in lexicographic order.

        None if the program is infeasible, or no solution was found within `MAX_NODES`. `bound` and
        `nodes` come from the last cost objective other than `last_costs`.
        """
        solver = _load(self, np.arange(len(self.costs)))
        if serve_all:
            every = self.uppers[self.totals]
            solver.changeColsBounds(len(every), self.totals.astype("int32"), every, every)
        _set_integer(solver, len(self.costs))
        found: Solution | None = None
        for costs, is_count in objectives:
            if not costs.any() and (is_count or found):
                continue
            _set_options(
                solver,
                mip_max_nodes=MAX_NODES,
                mip_abs_gap=COUNT_GAP if is_count else 0.0,
                mip_rel_gap=0.0 if is_count else GAP,
                # Presolve of HiGHS 1.15.1 may remove the best solutions of a rank.
                presolve="off" if is_count else "choose",
            )
            _set_costs(solver, costs)
            if found is not None:
                _set_start(solver, found.values)
            cost = run(solver)
            if cost is None:
                break
            info, values = solver.getInfo(), np.array(solver.getSolution().col_value)
            bound, nodes = min(cost, float(info.mip_dual_bound)), int(info.mip_node_count)
            if costs is self.last_costs and found is not None:
                bound, nodes = found.bound, found.nodes
            found = Solution(values, bound, nodes)
            some = costs.nonzero()[0].astype("int32")
            limit = cost + 0.5 if is_count else cost * (1 + _EQUAL_COST) + _EQUAL_COST
            solver.addRow(-inf, limit, len(some), some, costs[some])
        return found

    def maximize(self, free: Array, costs: Array, values: Array, lower: Array) -> Raised:
        """Return whole values of the free columns that serve the most requests; others are 0.

        `costs` counts these requests (`count_costs`), `values` is a known solution, and `lower`
        has the lower bounds of the rows.
        """
        if not len(free):
            return Raised(values, inf, 0)
        bounds = lower, _keep_margin(self.row_uppers)
        solver = _build_solver(costs[free], self.uppers[free], bounds, self.select(free))
        _set_integer(solver, len(free))
        # HiGHS proves most maxima at the root node, where it restarts with a smaller program.
        _set_options(solver, mip_max_nodes=1, mip_abs_gap=COUNT_GAP, mip_rel_gap=0.0)
        _set_start(solver, values[free])
        found, info, raised = run(solver), solver.getInfo(), np.zeros(len(self.costs))
        raised[free] = values[free] if found is None else solver.getSolution().col_value
        return Raised(raised, -float(info.mip_dual_bound), int(info.simplex_iteration_count))

    def search(  # noqa: PLR0913 - a search has these limits
        self,
        neighbourhoods: Iterable[Array],
        values: Array,
        costs: Array,
        row_bounds: Bounds,
        *,
        nodes: int,
        gap: float,
        toward: Array = None,
    ) -> Array:
        """Return integer values within the row bounds that cost at most as much as `values`.

        Each search frees only the columns of one neighbourhood, and ends after `nodes` nodes or at
        `gap`, relative to the cost of these columns. If `toward` is given, a free column stays
        between its value and its value in `toward`.
        """
        values, used = values.copy(), self.row_sums(values)
        lower, upper = row_bounds
        lower, upper = lower - used, _keep_margin(upper) - used
        for free in neighbourhoods:
            starts, rows, factors = self.select(free)
            some, index = np.unique(rows, return_inverse=True)
            given, own_costs = values[free], costs[free]
            own = np.bincount(index, factors * np.repeat(given, np.diff(starts)), len(some))
            bounds = np.minimum(lower[some], 0.0) + own, np.maximum(upper[some], 0.0) + own
            solver = _build_solver(own_costs, self.uppers[free], bounds, (starts, index, factors))
            if toward is not None:
                low = np.minimum(given, np.maximum(0, np.floor(toward[free] + TOLERANCE)))
                high = np.maximum(given, np.ceil(toward[free] - TOLERANCE))
                high = np.minimum(self.uppers[free], high)
                solver.changeColsBounds(len(free), _numbers(len(free)), low, high)
            _set_integer(solver, len(free))
            cost = float((own_costs * given).sum())
            _set_options(
                solver,
                mip_max_nodes=nodes,
                mip_rel_gap=0.0,
                mip_abs_gap=gap * abs(cost),
                mip_allow_restart=False,
                # This heuristic takes a third of the time; others find equally good solutions.
                mip_heuristic_run_root_reduced_cost=False,
            )
            _set_start(solver, given)
            found = run(solver)
            if found is not None and found < cost:
                values[free] = np.round(solver.getSolution().col_value)
                moved = np.repeat(values[free] - given, np.diff(starts))
                change = np.bincount(index, factors * moved, len(some))
                lower[some] -= change
                upper[some] -= change
        return values


class Relaxation:
    """The linear relaxation of a program, solved by column generation.

    A caller may change bounds and minimize several objectives. `active` lists the initial columns
    of the solver. None: the relaxation selects initial columns in each block.
    """

    def __init__(self, program: Program, active: Array | None = None) -> None:
        self._program = program
        count, pairs = len(program.costs), len(program.block)
        self._lower, self._upper = np.zeros(count), program.uppers.copy()
        self._costs = np.zeros(count)
        self.pivots = 0
        """Total number of simplex iterations."""
        self._first = np.flatnonzero(np.diff(program.block, prepend=-1))
        """First column of each block."""
        self._lengths = np.diff(self._first, append=pairs)
        # Vary the order of equal columns by the golden ratio. Otherwise all blocks get the same
        # place first, and 1,000 requests in 400 limited pools take six times as long.
        self._turns = np.arange(pairs) * 0.6180339887498949 % 1
        self._is_active = np.arange(count) >= (pairs if pairs > _FEW_COLUMNS else 0)
        if active is None:
            active = self._select(np.arange(pairs), np.zeros(pairs), _COLUMNS_PER_BLOCK)
        self._is_active[np.array(active, dtype=int)] = True
        self.active = np.flatnonzero(self._is_active)
        """The columns in the solver, in the solver's order."""
        self._added = len(self.active)
        """Number of columns added since the last run."""
        self.solver = _load(program, self.active)
        _set_options(
            self.solver,
            presolve="off",
            # A limit that was rounded down may otherwise make the relaxation infeasible.
            primal_feasibility_tolerance=TOLERANCE,
        )

    def bound_row(self, row: int, lower: float, upper: float) -> None:
        """Replace the lower and upper bound of a row."""
        self.solver.changeRowBounds(row, lower, upper)

    def bound_columns(self, columns: Array, lower: Array, upper: Array) -> None:
        """Replace the lower and upper bounds of some columns."""
        self._lower[columns], self._upper[columns] = lower, upper
        self._activate(np.flatnonzero((self._lower > 0) & ~self._is_active))
        bounds = self._lower[self.active], self._upper[self.active]
        self.solver.changeColsBounds(len(self.active), _numbers(len(self.active)), *bounds)

    def minimize(
        self,
        costs: Array,
        *,
        stop: Callable[[float, float, Array], bool] = lambda *_: False,
    ) -> Relaxed | None:
        """Return the solution of minimum cost; None if the relaxation is infeasible.

        Column generation ends when no reduced cost is negative, or when `stop` returns True. The
        arguments of `stop` are the cost of the active columns, the lower bound, and the values.
        """
        program, pairs = self._program, len(self._program.block)
        scale = float(abs(costs).max()) / _MAX_COST or 1.0
        self._costs = costs / scale
        _set_costs(self.solver, self._costs[self.active])
        while True:
            strategy = _DUAL_SIMPLEX if self._added > _MANY_COLUMNS else _PRIMAL_SIMPLEX
            self._added = 0
            _set_options(self.solver, simplex_strategy=strategy)
            if (cost := run(self.solver, relaxed=True)) is None:
                return None
            self.pivots += int(self.solver.getInfo().simplex_iteration_count)
            reduced = self._costs - self._weigh(np.array(self.solver.getSolution().row_dual))
            is_fixed = self._is_active[:pairs] | (self._upper[:pairs] == 0)
            gains = np.where(is_fixed, 0.0, -reduced[:pairs])
            best = np.maximum(np.maximum.reduceat(gains, self._first), 0.0)
            # The gain of a block is at most its upper bound times the gain of its best column.
            bound = cost - float((best * program.uppers[self._first]).sum())
            some = gains > np.repeat(np.maximum(_EQUAL_COST, best / 2), self._lengths)
            some, values = np.flatnonzero(some), self.values()
            is_near = cost - bound <= _EQUAL_COST * abs(cost)
            if is_near or not len(some) or stop(cost * scale, bound * scale, values):
                return Relaxed(values, bound * scale, reduced * scale)
            self._activate(self._select(some, -gains[some], _COLUMNS_PER_BLOCK))

    def values(self) -> Array:
        """Return the current value of each column; 0 for columns that are not in the solver."""
        values = np.zeros(len(self._costs))
        values[self.active] = self.solver.getSolution().col_value
        return values

    def _select(self, columns: Array, costs: Array, count: int) -> Array:
        """Return the columns of lowest cost among these, at most `count` per block."""
        blocks = self._program.block[columns]
        order = np.lexsort((self._turns[columns], costs, blocks))
        position = np.arange(len(columns)) - np.searchsorted(blocks, blocks)
        return columns[order[position < count]]

    def _weigh(self, duals: Array) -> Array:
        """Return, per column, the sum of its factors times the duals of their rows."""
        pairs, entries = len(self._program.block), self._program.entries
        rows, columns, factors = (part[2 * pairs :] for part in entries)
        found = np.bincount(columns, factors * duals[rows], len(self._costs))
        found[:pairs] += np.repeat(duals[: len(self._first)], self._lengths)
        rows, _, factors = (part[pairs : 2 * pairs] for part in entries)
        found[:pairs] += factors * duals[rows]
        return found

    def _activate(self, columns: Array) -> None:
        starts, rows, factors = self._program.select(columns)
        bounds = self._lower[columns], self._upper[columns]
        entries = starts[:-1].astype("int32"), rows, factors
        self.solver.addCols(len(columns), self._costs[columns], *bounds, len(rows), *entries)
        self.active = np.append(self.active, columns)
        self._is_active[columns] = True
        self._added += len(columns)


def run(solver: Solver, *, relaxed: bool = False) -> float | None:
    """Run the solver and return the objective value; None if no solution was found.

    A relaxation needs a proof of optimality: a primal and a dual feasible solution. The status of
    HiGHS 1.15 is no proof, because HiGHS reports some optima as unknown.
    """
    solver.run()
    info, feasible = solver.getInfo(), highspy.SolutionStatus.kSolutionStatusFeasible
    proven = not relaxed or info.dual_solution_status == feasible
    found = proven and info.primal_solution_status == feasible
    return float(info.objective_function_value) if found else None


def _keep_margin(uppers: Array) -> Array:
    """Return upper bounds of rows that are below each limit that is not an integer."""
    return uppers - ROW_MARGIN * (uppers != np.floor(uppers))


def _numbers(count: int) -> Array:
    return np.arange(count, dtype="int32")


def _set_options(solver: Solver, **options: bool | float | str) -> None:
    for name, value in options.items():
        solver.setOptionValue(name, value)


def _set_integer(solver: Solver, count: int) -> None:
    solver.changeColsIntegrality(count, _numbers(count), _numbers(count).astype("uint8") * 0 + 1)


def _set_costs(solver: Solver, costs: Array) -> None:
    solver.changeColsCost(len(costs), _numbers(len(costs)), costs)


def _set_start(solver: Solver, values: Array) -> None:
    solver.setSolution(len(values), _numbers(len(values)), values)


def _load(program: Program, columns: Array) -> Solver:
    """Return a solver with these columns, and all rows, of a program."""
    costs, uppers = program.costs[columns], program.uppers[columns]
    return _build_solver(costs, uppers, program.row_bounds(), program.select(columns))


def _build_solver(
    costs: Array, uppers: Array, row_bounds: Bounds, entries: tuple[Array, Array, Array]
) -> Solver:
    """Return a solver with these columns and rows. `entries` must be sorted by column."""
    solver = highspy.Highs()
    _set_options(solver, **_OPTIONS)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(costs), len(row_bounds[0])
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = costs, np.zeros(len(costs)), uppers
    lp.row_lower_, lp.row_upper_ = row_bounds
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    starts, index, lp.a_matrix_.value_ = entries
    lp.a_matrix_.start_, lp.a_matrix_.index_ = starts.astype("int32"), index.astype("int32")
    solver.passModel(lp)
    return solver
