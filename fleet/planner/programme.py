"""Solve mixed-integer programmes with HiGHS, deterministically.

One thread, a fixed seed, and limits in nodes and gap, never in seconds: equal programmes give
equal answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from math import floor, inf
from typing import TYPE_CHECKING, Any

from fleet.planner.cuts import SLACK
from fleet.planner.sifting import Relaxed, Sifted, Sum, run

if TYPE_CHECKING:
    import highspy

GAP = 1e-4
"""The search ends when the answer is proven to be this near the optimum, relatively."""
MISSES = 2e-6
"""More than the solver may miss a sum by: it is kept from limits that are not whole."""
NODES = 2000
"""The search ends after so many nodes, and says so."""
_BESIDE, _LACKING = (20, 3e-3), (5, 1e-2)
"""When the search ends, in nodes and as a part of the cost, where most of an answer stays as it
is, and where something may be lacking besides; it is never restarted."""
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
_CUTS, _WORK = 10, 120_000
"""How often rows are cut at most; fewer of many columns, so that these, counted again each time,
stay below this; once always."""
_LITTLE = 1e-4
"""What it has to raise the cost, relatively, to be done again."""
_OFF = 1e-7
"""What answers of equal cost may be apart, relatively and absolutely."""
_TOLERANCE = 1e-4
_idle: list["highspy.Highs"] = []
"""Solvers that know nothing any more: to make one takes as long as to solve what is small."""


@cache
def can_solve() -> bool:
    """Return whether the solver is installed: it is an extra of fleet."""
    try:
        import highspy  # noqa: F401 - asked for only
    except ModuleNotFoundError:
        return False
    return True


@dataclass(frozen=True)
class Solution:
    """An answer, and a bound that is proven."""

    values: tuple[float, ...]
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
    begins: list[int] = field(default_factory=list)
    """The first of those columns that sum to no more than what each may be."""
    uppers_of_rows: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Where each row ends, in `index` and `factors`."""
    index: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    before: dict[int, float] = field(default_factory=dict)
    """Column to what counts before its cost: the least of it, and of that the cheapest."""
    after: dict[int, float] = field(default_factory=dict)
    """Column to what counts where the cost is equal."""
    seeming: dict[int, float] = field(default_factory=dict)
    """Column to how much dearer it seems where an answer is looked for near one in parts."""
    _relaxed: tuple[tuple[list[Sum], bool, bool], Relaxed | None] | None = None
    """What was relaxed last, and what came of it."""

    def column(self, cost: float, upper: float) -> int:
        """Add a column of whole numbers, and return its number."""
        return self.columns([cost], upper, whole=True)[0]

    def columns(self, costs: Sequence[float], upper: float, *, whole: bool) -> range:
        """Add a column for each of these costs, and return their numbers.

        A row has to hold that they sum to `upper` at most, all together.
        """
        first = len(self.costs)
        self.begins.append(first)
        self.costs += costs
        self.uppers += [upper] * len(costs)
        self.whole += [whole] * len(costs)
        return range(first, len(self.costs))

    def row(self, columns: Sequence[int], factors: Sequence[float], most: float = inf) -> int:
        """Add `sum(factor * column) <= most`, and return its number."""
        self.index += columns
        self.factors += factors
        self.ends.append(len(self.index))
        self.uppers_of_rows.append(most)
        return len(self.ends) - 1

    def solve(self, sums: Sequence[Sum] = ()) -> Solution | None:
        """Return the cheapest answer in which each of these rows comes to its number.

        None when there is none, or none was found within `NODES`.
        """
        solver = self.load(sums)
        found = self._solve(solver, sums)
        solver.clear()
        _idle.append(solver)
        return found

    def _solve(self, solver: "highspy.Highs", sums: Sequence[Sum]) -> Solution | None:
        if self.before:
            before = self.dense(self.before)
            self._price(solver, before)
            self._hold(solver, before, (self._run_whole(solver) or 0.0) + 0.5)
            self._price(solver, self._costs)
        cost = self._run_whole(solver)
        if cost is None:
            return None
        found = _solution(solver, cost, sums)
        if self.after:
            self._hold(solver, self._costs, cost * (1 + _OFF) + _OFF)
            self._price(solver, self.dense(self.after))
            values = self._numpy.array(found.values)
            solver.setSolution(len(values), self._all_columns, values)
            if self._run_whole(solver) is not None:
                return replace(found, values=tuple(solver.getSolution().col_value))
        return found

    def relax(
        self,
        sums: Sequence[Sum],
        *,
        seeming: bool = True,
        cut: bool = True,
        reached: Iterable[int] = (),
    ) -> Relaxed | None:
        """Return the cheapest answer in which these sums hold and no number need be whole.

        Rows are added that hold of whole numbers only: the bound is of these. How much dearer
        columns seem counts too. Either, unless told otherwise. Where it is known that the sums can
        be reached, the columns that do are given.
        """
        asked = list(sums), seeming and bool(self.seeming)
        # What was cut tells more than what is asked for without.
        if self._relaxed is None or self._relaxed[0] not in ((*asked, True), (*asked, cut)):
            self._relaxed = (*asked, cut), self._relax(*asked, cut, [*reached])
        return self._relaxed[1]

    def _relax(
        self,
        sums: Sequence[Sum],
        seeming: bool,  # noqa: FBT001 - see above
        cut: bool,  # noqa: FBT001 - see above
        reached: Sequence[int],
    ) -> Relaxed | None:
        sifted = self.sifted
        if not sifted.reach(sums, reached):
            return None
        costs = self.seeming_costs if seeming else self._costs
        first = sifted.cheapest(costs)
        if first is None:
            return None
        found = first
        for _ in range(max(1, min(_CUTS, _WORK // len(costs))) if cut else 0):
            raised = sifted.cheapest(costs) if sifted.cut() else None
            if raised is None:
                break
            before, found = found, raised
            if found.bound < before.bound * (1 + _LITTLE):
                break
        sifted.uncut()
        return replace(found, cost=first.cost, bound=max(first.bound, found.bound))

    def search(
        self,
        parts: Iterable[Sequence[int]],
        values: Any,  # noqa: ANN401 - arrays of numpy
        sums: Sequence[Sum],
        *,
        toward: Any = None,  # noqa: ANN401
        prices: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return whole values that reach the same sums at no higher cost.

        The columns of each part are loose in turn, while all others stay; if they are to go
        `toward` an answer in parts, each is between what it is in the two. With `prices`, one for
        each row, those that are not 0 may lack something of their sums, as they may have before:
        so much for each that is lacking.
        """
        np, values = self._numpy, values.copy()
        prices = np.zeros(len(self.ends)) if prices is None else prices
        taken, (least, most) = self._taken(values), self._bounds(sums)
        lacking = np.where(prices > 0, most - taken, 0.0)
        least, most = least - taken - lacking, most - taken - lacking
        most -= MISSES * (most != np.floor(most))
        nodes, gap = _LACKING if prices.any() else _BESIDE
        for part in parts:
            loose = np.array(part)
            rows, factors, begins = self.sifted.entries_of(loose)
            short = np.unique(rows[prices[rows] > 0])
            rows, factors = np.append(rows, short), np.append(factors, np.ones(len(short)))
            begins = np.append(begins, begins[-1] + 1 + np.arange(len(short)))
            given = np.append(values[loose], lacking[short])
            costs = np.append(self.seeming_costs[loose], prices[short])
            uppers = np.append(self._uppers[loose], np.full(len(short), inf))
            some, index = np.unique(rows, return_inverse=True)
            own = np.bincount(index, factors * np.repeat(given, np.diff(begins)))
            bounds = least[some] + own, np.maximum(most[some], 0.0) + own
            solver = _loaded(costs, uppers, bounds, (begins, index, factors))
            every = np.arange(len(given), dtype="int32")
            if toward is not None:
                other = toward[loose]
                lowers = np.minimum(given, np.maximum(0, np.floor(other + SLACK)))
                uppers = np.minimum(uppers, np.maximum(given, np.ceil(other - SLACK)))
                solver.changeColsBounds(len(given), every, lowers, uppers)
            solver.changeColsIntegrality(len(given), every, np.ones(len(given), dtype="uint8"))
            solver.setOptionValue("mip_max_nodes", nodes)
            solver.setOptionValue("mip_allow_restart", False)
            # It takes a third of the time, and finds hardly anything that the others do not.
            solver.setOptionValue("mip_heuristic_run_root_reduced_cost", False)
            solver.setOptionValue("mip_rel_gap", 0.0)
            # What is lacking may cost a thousand times as much.
            cost_of_loose = float((costs * given)[: len(loose)].sum())
            solver.setOptionValue("mip_abs_gap", gap * cost_of_loose)
            solver.setSolution(len(given), every, given)
            cost = run(solver)
            if cost is not None and cost < float((costs * given).sum()):
                found = np.round(solver.getSolution().col_value)
                values[loose], lacking[short] = found[: len(loose)], found[len(loose) :]
                moved = np.repeat(found - given, np.diff(begins))
                more = np.bincount(index, factors * moved)
                least[some] -= more
                most[some] -= more
            solver.clear()
            _idle.append(solver)
        return values

    def most_in_turn(self, rows: Sequence[int]) -> list[int]:
        """Return the most that each of these rows can come to, the earlier ones having theirs."""
        solver = self.load(())
        # Only whole numbers are asked for: what is less than one apart is the same.
        solver.setOptionValue("mip_abs_gap", 1 - _TOLERANCE)
        solver.setOptionValue("mip_rel_gap", 0.0)
        found: list[int] = []
        for row in rows:
            self._price(solver, -self.takes_of(row))
            found.append(floor(-(self._run_whole(solver) or 0.0) + _TOLERANCE))
            solver.changeRowBounds(row, found[-1] - SLACK, inf)
        return found

    def most_in_parts(
        self, rows: Sequence[int], kept: Sequence[int] | None = None, reached: Iterable[int] = ()
    ) -> list[int]:
        """Return the same where columns need not be whole.

        The earlier ones have these numbers of theirs, which are reached by these columns, or the
        most that they can have.
        """
        self.sifted.begin(reached)
        found: list[int] = []
        for nth, row in enumerate(rows):
            found.append(self.sifted.most([row]))
            self.sifted.hold([row], [found[-1] if kept is None else kept[nth]], [inf])
        return found

    def takes_of(self, *some: int) -> Any:  # noqa: ANN401 - an array of numpy
        """Return what these rows take of each column, all together."""
        _, index, factors = self.arrays
        found = self._numpy.zeros(len(self.costs))
        for row in some:
            own = slice(self.ends[row - 1] if row else 0, self.ends[row])
            found[index[own]] += factors[own]
        return found

    def room_beside(self, values: Any) -> Any:  # noqa: ANN401 - an array of numpy
        """Return how much more each row may come to than with these values of columns."""
        return self.uppers_of_rows - self._taken(values)

    def _taken(self, values: Any) -> Any:  # noqa: ANN401 - arrays of numpy
        """Return what each row comes to with these values of columns."""
        rows, index, factors = self.arrays
        return self._numpy.bincount(rows, factors * values[index], len(self.ends))

    @cached_property
    def sifted(self) -> Sifted:
        """Return it in parts; then nothing is added more."""
        load = partial(self.load, (), [])
        return Sifted(self.begins, self.uppers, self.arrays, load, self.takes_of)

    def dense(self, sparse: Mapping[int, float]) -> Any:  # noqa: ANN401 - an array of numpy
        """Return what each column counts."""
        found = self._numpy.zeros(len(self.costs))
        found[[*sparse]] = [*sparse.values()]
        return found

    def _price(self, solver: "highspy.Highs", costs: Any) -> None:  # noqa: ANN401 - see above
        """Have each column cost this."""
        every = self._numpy.arange(len(costs), dtype="int32")
        solver.changeColsCost(len(costs), every, costs)

    def _hold(self, solver: "highspy.Highs", costs: Any, most: float) -> None:  # noqa: ANN401 - see above
        """Let no answer cost more than this any longer."""
        columns = self._numpy.flatnonzero(costs).astype("int32")
        solver.addRow(-inf, most, len(columns), columns, costs[columns])

    def _run_whole(self, solver: "highspy.Highs") -> float | None:
        whole = self._numpy.array(self.whole, dtype="uint8")
        solver.changeColsIntegrality(len(self.costs), self._all_columns, whole)
        return run(solver)

    @cached_property
    def _numpy(self) -> Any:  # noqa: ANN401 - a module, loaded only when there is something to solve
        import numpy as np

        return np

    @property
    def _all_columns(self) -> Any:  # noqa: ANN401 - an array of numpy
        return self._numpy.arange(len(self.costs), dtype="int32")

    @cached_property
    def arrays(self) -> tuple[Any, Any, Any]:
        """Return the row, the column and the factor of each entry; then nothing is added more."""
        np = self._numpy
        lengths = np.diff([0, *self.ends])
        rows = np.repeat(np.arange(len(self.ends)), lengths)
        return rows, np.array(self.index, dtype="int32"), np.array(self.factors, dtype=float)

    @cached_property
    def _costs(self) -> Any:  # noqa: ANN401 - an array of numpy
        return self._numpy.array(self.costs, dtype=float)

    @cached_property
    def seeming_costs(self) -> Any:  # noqa: ANN401 - an array of numpy
        """Return what each column costs and how much dearer it seems; nothing is added more."""
        return self._costs + self.dense(self.seeming)

    @cached_property
    def _uppers(self) -> Any:  # noqa: ANN401 - an array of numpy
        return self._numpy.array(self.uppers, dtype=float)

    def _bounds(self, sums: Sequence[Sum]) -> tuple[Any, Any]:
        """Return the least and the most of each row, where these rows are held to their sums."""
        least = self._numpy.full(len(self.ends), -inf)
        most = self._numpy.array(self.uppers_of_rows, dtype=float)
        held = [row for row, _ in sums]
        least[held] = most[held] = [number for _, number in sums]
        return least, most

    def load(self, sums: Sequence[Sum], kept: Sequence[int] | None = None) -> "highspy.Highs":
        """Return a solver that holds these rows to their sums, of all columns or those kept."""
        np = self._numpy
        rows, index, factors = self.arrays
        costs, uppers = self._costs, self._uppers
        if kept is not None:
            at = np.full(len(costs), -1, dtype="int32")
            at[kept] = np.arange(len(kept))
            known = at[index] >= 0
            rows, index, factors = rows[known], at[index[known]], factors[known]
            costs, uppers = costs[kept], uppers[kept]
        begins = np.searchsorted(rows, np.arange(len(self.ends) + 1))
        return _loaded(costs, uppers, self._bounds(sums), (begins, index, factors), by_row=True)


def _loaded(
    costs: Any,  # noqa: ANN401 - arrays of numpy, here and below
    uppers: Any,  # noqa: ANN401
    bounds: tuple[Any, Any],
    entries: tuple[Any, Any, Any],
    *,
    by_row: bool = False,
) -> "highspy.Highs":
    """Return a solver of these columns and of rows within these bounds.

    Entries are where each column (or row) begins, then the other's number and the factor of each.
    """
    import highspy
    import numpy as np

    solver = _idle.pop() if _idle else highspy.Highs()  # type: ignore[no-untyped-call]  # the library's own gap
    for name, value in _OPTIONS.items():
        solver.setOptionValue(name, value)
    model, way = highspy.HighsLp(), highspy.MatrixFormat
    model.num_col_, model.num_row_ = len(costs), len(bounds[0])
    model.col_cost_ = costs
    model.col_lower_ = np.zeros(len(costs))
    model.col_upper_ = uppers
    model.row_lower_, model.row_upper_ = bounds
    model.a_matrix_.format_ = way.kRowwise if by_row else way.kColwise
    begins, index, model.a_matrix_.value_ = entries
    model.a_matrix_.start_ = begins.astype("int32")
    model.a_matrix_.index_ = index.astype("int32")
    solver.passModel(model)
    return solver


def _solution(solver: "highspy.Highs", cost: float, sums: Sequence[Sum]) -> Solution:
    """Return what a solver found in whole numbers, and proved."""
    info, values = solver.getInfo(), tuple(solver.getSolution().col_value)
    bound = min(cost, float(info.mip_dual_bound))
    return Solution(values, bound, sums, int(info.mip_node_count))
