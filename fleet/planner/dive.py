"""Round an answer in parts: fix some of what is divided to whole numbers and solve again.

Solving again moves, over any number of places, what else is in the way: no rounding of each number
by itself does. Machines come first, then ranks in turn: what those before have is fixed, and
those after give way. The method is known as diving (T. Achterberg, Constraint Integer Programming,
2007, 9.2).
"""

from collections.abc import Collection, Sequence
from math import inf
from typing import Any

from fleet.planner.formulation import EPSILON, Model
from fleet.planner.programme import run

_ROUNDS = 20
"""How often numbers of one rank are fixed at most; what is divided then is rounded down."""
_SHARE = 1 / 3
"""How many of what is divided is rounded up at once, and twice as many down."""
_WORTH, _DEEP = 2.0, 8
"""A request is worth so many times one of the next rank, for so many ranks."""
SMALL = 1_000
"""Among so few columns each rank is searched for whole numbers."""
_SEARCH = {"mip_rel_gap": 0.0, "mip_abs_gap": 0.5, "mip_max_nodes": 200}


def dive(
    model: Model, near: Collection[int], most: Sequence[int], *, small: int = SMALL
) -> Sequence[float]:
    """Return whole numbers near an answer in parts that serves so many of each rank.

    Columns that are not among `near` are 0. Nobody of a rank is left out who would fit, by one of
    these columns and with the machines that there are then, if nobody of a later rank were served.
    """
    columns = _Dive(model, sorted(near), most)
    if len(near) <= small:
        columns.search(len(most))
    else:
        columns.round(len(most))
    return columns.values()


class _Dive:
    """Columns of a programme, with the least and the most that each may be yet."""

    def __init__(self, model: Model, near: Sequence[int], most: Sequence[int]) -> None:
        import numpy as np

        self._np, programme = np, model.programme
        self._near, size = np.array(near, dtype=int), len(programme.costs)
        self._every = np.arange(len(near), dtype="int32")
        ranks = np.full(size, -1)
        for nth, (columns, _) in enumerate(model.everybody_by_rank):
            ranks[columns] = nth
        self._ranks, self._size = ranks[self._near], size
        self._made = np.flatnonzero(self._ranks < 0)
        costs = np.array(programme.costs) + programme.dense(programme.seeming)
        # The solver takes no numbers that are too large.
        self._costs = (costs / (model.dearest() + max(programme.seeming.values(), default=0.0)))[
            self._near
        ]
        self._least = np.zeros(len(near))
        self._most = np.array(programme.uppers, dtype=float)[self._near]
        sums = [(columns, 0) for columns, _ in model.everybody_by_rank]
        self._solver = programme.load(sums, near)
        self._solver.setOptionValue("presolve", "off")
        self._first = len(programme.ends)
        for nth, number in enumerate(most):
            self._solver.changeRowBounds(self._first + nth, 0.0, float(number))
        self._entries = programme.entries(near)
        self._room = np.array(programme.uppers_of_rows)

    def values(self) -> Sequence[float]:
        """Return the least that each column may be: what was fixed."""
        values = self._np.zeros(self._size)
        values[self._near] = self._least
        return list(values.tolist())

    def search(self, ranks: int) -> None:
        """Search whole numbers of one rank after the other, that serve those before it as well."""
        np, solver = self._np, self._solver
        for name, value in _SEARCH.items():
            solver.setOptionValue(name, value)
        for rank in range(ranks):
            self._price(rank)
            whole = self._ranks <= rank
            solver.changeColsIntegrality(len(whole), self._every, whole.astype("uint8"))
            found = self._solve(0 * self._most, self._most)
            if found is not None:
                self._least = np.where(whole, found.round(), 0.0)
            self._fill(np.flatnonzero(self._ranks == rank))
            self._hold(rank, float(self._least[self._ranks == rank].sum()))

    def round(self, ranks: int) -> None:
        """Fix how many machines are made at the least, then who of one rank after the other."""
        worth = self._price(0)
        # No rank is to lack more for it.
        self._most = self._round(self._made, worth, EPSILON * worth.max())
        for rank in range(ranks):
            mine = self._np.flatnonzero(self._ranks == rank)
            self._price(rank)
            self._round(mine, 1.0 * (self._ranks == rank), 1 - EPSILON)
            self._fill(mine)
            self._most[mine] = self._least[mine]
            self._hold(rank, 0.0)

    def _hold(self, rank: int, served: float) -> None:
        """Have so many of a rank served, or more."""
        self._solver.changeRowBounds(self._first + rank, served, inf)

    def _price(self, first: int) -> Any:  # noqa: ANN401 - an array of numpy
        """Have columns cost what they are worth less; return what each is worth."""
        deep = self._np.clip(_DEEP - self._ranks + first, 0, _DEEP)
        worth = (self._ranks >= 0) * _WORTH**deep
        self._solver.changeColsCost(len(self._every), self._every, self._costs - worth)
        return worth

    def _solve(self, least: Any, most: Any) -> Any:  # noqa: ANN401 - arrays of numpy
        """Return the cheapest answer in parts within these bounds; None where there is none."""
        self._solver.changeColsBounds(len(self._every), self._every, least, most)
        if run(self._solver) is None:
            return None
        return self._np.array(self._solver.getSolution().col_value)

    def _round(self, mine: Any, worth: Any, loss: float) -> Any:  # noqa: ANN401 - arrays of numpy
        """Raise the least of these columns to whole numbers; each time at a loss below this one.

        Return the most that each may be after it.
        """
        np, least, most = self._np, self._least, self._most.copy()
        found, count = self._solve(least, most), len(mine)
        for _ in range(_ROUNDS):
            if found is None:
                break
            least[mine] = np.maximum(least[mine], np.floor(found[mine] + EPSILON))
            divided = found[mine] - least[mine]
            parts = np.flatnonzero(divided > EPSILON)
            if not len(parts):
                break
            parts = mine[parts[np.argsort(-divided[parts], kind="stable")]]
            count = min(2 * count, max(1, int(len(parts) * _SHARE)))
            while True:
                up, down = parts[:count], parts[count:][-2 * count :]
                more, less = least.copy(), most.copy()
                more[up] += 1
                less[down] = least[down]
                tried = self._solve(more, less)
                if tried is not None and (tried - found) @ worth > -loss:
                    least[:], most, found = more, less, tried
                    break
                if count == 1:
                    most[up] = least[up]
                    found = self._solve(least, most)
                    break
                count = count // 4 or 1
        return most

    def _fill(self, mine: Any) -> None:  # noqa: ANN401 - an array of numpy
        """Serve of these columns, the least dear first, who fits were nobody of a later rank."""
        np = self._np
        rows, columns, factors = self._entries
        room = self._room - np.bincount(rows, factors * self._least[columns], len(self._room))
        order = mine[np.argsort(self._costs[mine], kind="stable")]
        while True:
            lacks = factors > room[rows] + EPSILON
            full = np.bincount(columns, lacks, len(self._every)) > 0
            free = order[~full[order] & (self._least[order] < self._most[order])]
            if not len(free):
                return
            self._least[free[0]] += 1
            taken = columns == free[0]
            np.subtract.at(room, rows[taken], factors[taken])
