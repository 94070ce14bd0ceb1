"""Solve a programme in parts over few of its columns, with more as they pay.

After each run the worth of rows (their duals) tells of every other column whether it would improve
the answer, and by how much it can be improved at most. The method is known as sifting (R. Bixby
and others, Very large-scale linear programming, Operations Research 40, 1992).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, inf
from typing import TYPE_CHECKING, Any

from fleet.planner.cuts import SLACK, Entries, cut

if TYPE_CHECKING:
    import highspy

Sum = tuple[int, int]
"""A row, and what it has to come to."""
_GOLDEN = 0.6180339887498949
"""Multiples of it, less their whole part, are spread evenly."""
_PAYS, _AT_ONCE = 1e-7, 3
"""What a column has to gain to be known to the solver, and how many of a block at once."""
_NEAR = 1e-7
"""How near its bound the cost of a cheapest answer is, relatively."""
_FEW = 1_000
"""So few columns are known at once."""
_DEAREST = 40.0
"""What the dearest column costs in the solver: it takes no numbers that are too large."""
_PRIMAL = 4
"""How the solver names the primal simplex method."""


@dataclass(frozen=True)
class Relaxed:
    """The cheapest answer in parts; no answer in whole numbers costs less."""

    values: Any
    """What each column is: an array of numpy."""
    cost: float
    dearness: Any
    """Column to how much more it costs to have one more there: an array of numpy."""
    bound: float
    """What no answer in whole numbers costs less than: `cost`, or more where rows were cut."""


class Sifted:
    """A programme in parts."""

    def __init__(
        self,
        begins: Sequence[int],
        uppers: Sequence[float],
        entries: tuple[Any, Any, Any],
        load: "Callable[[], highspy.Highs]",
        takes_of: Callable[..., Any],
    ) -> None:
        """Lay out its entries; each question is to `begin` anew, or to go on where one ended.

        Blocks of columns begin at `begins`; `load` returns a solver that knows the rows and no
        column, and `takes_of` what rows take of each column.
        """
        import numpy as np

        self._np, self._load, self._takes_of = np, load, takes_of
        self._begins, count = np.array(begins), len(uppers)
        self._sizes = np.diff([*self._begins, count])
        self._block = np.repeat(np.arange(len(self._sizes)), self._sizes)
        # Alike columns take turns, so that not all blocks are given the same place first.
        self._turns = np.arange(count) * _GOLDEN % 1
        self._uppers = np.array(uppers, dtype=float)
        rows, columns, factors = self._entries = entries
        order = np.argsort(columns, kind="stable")
        self._rows, self._factors = rows[order], factors[order]
        self._starts = np.searchsorted(columns[order], np.arange(count + 1))
        self._by_block, self._by_column = self._parted(*entries)
        self._uncut = self._rows, self._factors, self._starts, self._by_column
        self.rows: list[Entries] = []
        """Each row's columns and factors, those that were cut last; empty until any is cut."""

    def begin(self, known: Iterable[int] = ()) -> None:
        """Hold rows and columns to nothing but their own bounds, and know these columns.

        From one answer it is often farther to another than from none.
        """
        np, count = self._np, len(self._uppers)
        self._least, self._most, self._costs = np.zeros(count), self._uppers, np.zeros(count)
        self.dearness = np.zeros(count)
        """How much more it costs to have one more of each column."""
        self._known = np.zeros(count, dtype=bool)
        self._kept = np.zeros(0, dtype=int)
        self.solver = self._load()
        """What knows some of the columns, and all rows."""
        self.solver.setOptionValue("simplex_strategy", _PRIMAL)
        self.solver.setOptionValue("presolve", "off")
        # A number that was rounded down can be held.
        self.solver.setOptionValue("primal_feasibility_tolerance", SLACK)
        alone = self._begins[np.bincount(self._block) == 1]
        self._add(np.arange(count) if count <= _FEW else np.union1d(alone, [*known]).astype(int))

    def _parted(self, rows: Any, columns: Any, factors: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """Return entries of rows that take the same of all columns of a block, and all others."""
        np, blocks = self._np, self._block[columns]
        is_first = (np.diff(rows, prepend=-1) != 0) | (np.diff(blocks, prepend=-1) != 0)
        first = np.flatnonzero(is_first)
        lengths = np.diff(first, append=len(rows))
        alike = np.maximum.reduceat(factors, first) == np.minimum.reduceat(factors, first)
        alike &= lengths == self._sizes[blocks[first]]
        some, other = first[alike], np.flatnonzero(~np.repeat(alike, lengths))
        # In the order of columns, they are added up in half the time.
        other = other[np.argsort(columns[other], kind="stable")]
        by_column = rows[other], columns[other].astype(int), factors[other]
        return (rows[some], blocks[some], factors[some]), by_column

    def hold(self, rows: Sequence[int], least: Sequence[float], most: Sequence[float]) -> None:
        """Have each of these rows come to so much."""
        for bounds in zip(rows, least, most, strict=True):
            self.solver.changeRowBounds(*bounds)

    def bound(self, least: Any, most: Any) -> None:  # noqa: ANN401 - arrays of numpy
        """Have each column be so much; what is not known to the solver is its least."""
        self._least, self._most = least, most
        self._add(self._np.flatnonzero((least > 0) & ~self._known))
        bounds = least[self._kept], most[self._kept]
        self.solver.changeColsBounds(len(self._kept), self._every, *bounds)

    def reach(self, sums: Sequence[Sum], reached: Sequence[int]) -> bool:
        """Hold rows to their sums, and say whether any answer does; some of these columns do."""
        rows, numbers = [row for row, _ in sums], [number for _, number in sums]
        self.begin(reached)
        if not reached:
            self.hold(rows, [-inf] * len(rows), numbers)
            if any(-bound < sum(numbers) - SLACK for _, bound in self.run(-self._takes_of(*rows))):
                return False
        self.hold(rows, numbers, numbers)
        return True

    def most(self, rows: Sequence[int]) -> int:
        """Return the most that these rows can come to, all together and rounded down."""
        found = 0
        for cost, bound in self.run(-self._takes_of(*rows)):
            found = floor(-cost + SLACK)
            if found == floor(-bound + SLACK):
                break
        return found

    def cheapest(self, costs: Any) -> Relaxed | None:  # noqa: ANN401 - an array of numpy
        """Return the cheapest answer, by what each column costs; None where there is none."""
        bound, scale = None, float(costs.max()) / _DEAREST or 1.0
        for cost, bound in self.run(costs / scale):
            if cost - bound <= _NEAR * cost:
                break
        if bound is None:
            return None
        least = bound * scale
        return Relaxed(self.values(), least, self.dearness * scale, least)

    def values(self) -> Any:  # noqa: ANN401 - an array of numpy
        """Return what each column is."""
        values = self._np.zeros(len(self._most))
        values[self._kept] = self.solver.getSolution().col_value
        return values

    def run(self, costs: Any) -> Iterator[tuple[float, float]]:  # noqa: ANN401 - an array of numpy
        """Yield the least cost by the columns that are known, and what no answer costs less than.

        Each time more columns are known, as long as any pays. Nothing where there is no answer.
        """
        np, self._costs = self._np, costs
        self.solver.changeColsCost(len(self._kept), self._every, costs[self._kept])
        while (cost := run(self.solver, whole=False)) is not None:
            worth = np.array(self.solver.getSolution().row_dual)
            self.dearness = costs - self._taken(worth)
            gains = np.where(self._known | (self._most == 0), 0.0, -self.dearness)
            best = np.maximum.reduceat(gains, self._begins)
            yield cost, cost - float((np.maximum(best, 0.0) * self._uppers[self._begins]).sum())
            pays = np.repeat(np.maximum(_PAYS, best / 2), self._sizes)
            some = np.flatnonzero(gains > pays)
            if not len(some):
                return
            blocks = self._block[some]
            order = np.lexsort((self._turns[some], -gains[some], blocks))
            turn = np.arange(len(some)) - np.searchsorted(blocks, blocks)
            self._add(some[order[turn < _AT_ONCE]])

    def _taken(self, worth: Any) -> Any:  # noqa: ANN401 - arrays of numpy
        """Return what each column takes of rows that are worth so much."""
        np, (rows, blocks, factors) = self._np, self._by_block
        found = np.repeat(
            np.bincount(blocks, factors * worth[rows], len(self._sizes)), self._sizes
        )
        rows, columns, factors = self._by_column
        return found + np.bincount(columns, factors * worth[rows], len(found))

    def cut(self) -> bool:
        """Add rows that hold of whole numbers and not of the answer; say whether there are any."""
        np, first = self._np, self.solver.getNumRow()
        if not self.rows:
            rows, columns, factors = self._entries
            begins = np.searchsorted(rows, np.arange(1, first))
            entries = np.split(columns, begins), np.split(factors, begins)
            self.rows = [*zip(*entries, strict=True)]
        more = list(cut(self.solver, self.rows, self._kept, self.values(), self._uppers))
        where = np.empty(len(self._known), dtype="int32")
        where[self._kept] = self._every
        for columns, factors, most in more:
            known = self._known[columns]
            own = where[columns[known]], factors[known]
            self.solver.addRow(-inf, most, len(own[0]), *own)
            self.rows.append((columns, factors))
        lengths = [len(columns) for columns, _, _ in more]
        rows = np.repeat(np.arange(first, first + len(more)), lengths)
        columns = np.concatenate([[], *[columns for columns, _, _ in more]]).astype(int)
        factors = np.concatenate([[], *[factors for _, factors, _ in more]])
        self._by_column = tuple(map(np.append, self._by_column, (rows, columns, factors)))
        # Behind those that each column has.
        order = np.argsort(columns, kind="stable")
        rows, columns, factors = rows[order], columns[order], factors[order]
        at = self._starts[columns + 1]
        self._rows = np.insert(self._rows, at, rows)
        self._factors = np.insert(self._factors, at, factors)
        self._starts = self._starts + np.searchsorted(columns, np.arange(len(self._starts)))
        return bool(more)

    def uncut(self) -> None:
        """Forget the rows that were added; it is to begin anew then."""
        self._rows, self._factors, self._starts, self._by_column = self._uncut
        self.rows = []

    def entries(self, column: int) -> tuple[Any, Any]:
        """Return the rows of a column, and its factors there."""
        own = slice(self._starts[column], self._starts[column + 1])
        return self._rows[own], self._factors[own]

    def entries_of(self, columns: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401 - an array of numpy
        """Return the rows of columns, the factors there, and where those of each column begin."""
        at, begins = self._where(columns)
        return self._rows[at], self._factors[at], self._np.append(begins, len(at))

    def fit(self, columns: Any, room: Any) -> Any:  # noqa: ANN401 - arrays of numpy
        """Return those of the columns that rows with so much room have room for one more of."""
        columns = self._np.array(columns, dtype=int)
        at, begins = self._where(columns)
        lacks = self._factors[at] > room[self._rows[at]]
        return columns[~self._np.logical_or.reduceat(lacks, begins)]

    @property
    def _every(self) -> Any:  # noqa: ANN401 - an array of numpy
        return self._np.arange(len(self._kept), dtype="int32")

    def _where(self, columns: Any) -> tuple[Any, Any]:  # noqa: ANN401 - arrays of numpy
        """Return where the entries of columns are, and which is the first of each column."""
        np, starts = self._np, self._starts[columns]
        lengths = self._starts[columns + 1] - starts
        begins = np.cumsum(lengths) - lengths
        return np.repeat(starts - begins, lengths) + np.arange(lengths.sum()), begins

    def _add(self, columns: Any) -> None:  # noqa: ANN401 - an array of numpy
        """Let the solver know these columns too."""
        at, begins = self._where(columns)
        bounds = self._least[columns], self._most[columns]
        entries = begins.astype("int32"), self._rows[at].astype("int32"), self._factors[at]
        self.solver.addCols(len(columns), self._costs[columns], *bounds, len(at), *entries)
        self._kept = self._np.append(self._kept, columns)
        self._known[columns] = True


def run(solver: "highspy.Highs", *, whole: bool = True) -> float | None:
    """Run and return the objective; None where no answer was found.

    Of an answer in parts only the cheapest proves anything, so that only it is an answer. The
    solver may call one unknown whose rows have a worth that proves it the cheapest.
    """
    import highspy

    solver.run()
    info, feasible = solver.getInfo(), highspy.SolutionStatus.kSolutionStatusFeasible
    proven = whole or info.dual_solution_status == feasible
    found = proven and info.primal_solution_status == feasible
    return float(info.objective_function_value) if found else None
