"""Round an answer in parts, one rank after the other.

What is whole of an answer in parts stays; of what it divides the least dear is served that fits,
with a machine more where one is needed. Once more than a few were served so, those of later ranks
are placed anew, in parts again.
The method is known as diving (T. Achterberg, Constraint Integer Programming, 2007, 9.2).
"""

from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import Any

from fleet.planner.formulation import EPSILON, Model
from fleet.planner.sifting import run

_FIRST, _ROUNDS, _FEW = 8, 3, 0.02
"""How often more columns are looked for before the first rank is rounded, and before others; and
the part of all requests up to which ranks are rounded from one answer in parts."""
_WORTH, _DEEP = 2.0, 8
"""A request is worth so many times one of the next rank, for so many ranks."""
SMALL = 2_000
"""Of up to so many columns, those that are the least dear are searched for whole numbers."""
_LEAST_DEAR = 1_000
"""How many of them these are."""
_SEARCH = {"mip_rel_gap": 0.0, "mip_abs_gap": 0.5, "mip_max_nodes": 200}


def dive(model: Model, most: Sequence[int], *, small: int = SMALL) -> Sequence[float]:
    """Return whole numbers of columns that serve about so many of each rank.

    Nobody of a rank is left out who would fit, with the machines that there are then, if nobody of
    a later rank were served.
    """
    columns = _Dive(model, most)
    if len(columns.least) <= small:
        columns.search()
    else:
        columns.round()
    return list(columns.least.tolist())


class _Dive:
    """Columns of a programme, with the least that each may be: what was fixed."""

    def __init__(self, model: Model, most: Sequence[int]) -> None:
        import numpy as np

        self._np, self._model, programme = np, model, model.programme
        self._programme, self._sifted, self._target = programme, programme.sifted, most
        self._rows = [row for row, _ in model.ranks]
        self._ranks = np.full(len(programme.costs), -1)
        for rank, row in enumerate(self._rows):
            self._ranks[programme.takes_of(row) > 0] = rank
        costs = programme.seeming_costs
        # The solver takes no numbers that are too large.
        self._costs = costs / (model.dearest() + max(programme.seeming.values(), default=0.0))
        self._machine = np.full(len(costs), -1)
        """Column to that of the machine that it may need."""
        for block in model.blocks:
            self._machine[block.columns] = [model.makes.get(place, -1) for place in block.fits]
        self._dearness = self._costs
        self.least = np.zeros(len(costs))
        self._most = np.array(programme.uppers, dtype=float)
        self._room = np.array(programme.uppers_of_rows)

    def search(self) -> None:
        """Search whole numbers of one rank after the other, that serve those before it as well."""
        np, programme = self._np, self._programme
        sums = [*zip(self._rows, self._target, strict=True)]
        relaxed = programme.relax(sums, cut=False)
        self._dearness = relaxed.dearness if relaxed else self._costs
        kept = np.sort(np.argsort(self._dearness, kind="stable")[:_LEAST_DEAR])
        every, ranks = np.arange(len(kept), dtype="int32"), self._ranks[kept]
        solver = programme.load((), kept)
        for name, value in _SEARCH.items():
            solver.setOptionValue(name, value)
        for row, number in sums:
            solver.changeRowBounds(row, 0.0, float(number))
        for rank, row in enumerate(self._rows):
            whole = ranks <= rank
            solver.changeColsCost(len(kept), every, self._weighed(rank)[kept])
            solver.changeColsIntegrality(len(kept), every, whole.astype("uint8"))
            if run(solver) is not None:
                found = np.array(solver.getSolution().col_value).round()
                self.least[:] = 0.0
                self.least[kept[whole]] = found[whole]
                self._room = programme.room_beside(self.least)
            self._fill(np.flatnonzero(self._ranks == rank))
            solver.changeRowBounds(row, float(self.least[self._ranks == rank].sum()), inf)

    def round(self) -> None:
        """Serve what is whole of one rank after the other, and then who fits."""
        np, sifted = self._np, self._sifted
        sifted.hold(self._rows, [0] * len(self._rows), self._target)
        found, since = self.least, 0
        for rank, row in enumerate(self._rows):
            sifted.hold([row], [0], [inf])
            since += self._target[rank]
            if not rank or since > _FEW * sum(self._target):
                since = 0
                sifted.bound(self.least, self._most)
                for _ in islice(sifted.run(self._weighed(rank)), _ROUNDS if rank else _FIRST):
                    found = sifted.values()
                self._dearness = sifted.dearness
            mine = np.flatnonzero(self._ranks == rank)
            whole = np.floor(found + EPSILON)
            for column in mine[whole[mine] > self.least[mine]]:
                while self.least[column] < whole[column] and self._serve(column):
                    pass
            self._fill(mine)
            self._most[mine] = self.least[mine]

    def _weighed(self, first: int) -> Any:  # noqa: ANN401 - an array of numpy
        """Return what each column costs, less what it is worth."""
        deep = self._np.clip(_DEEP - self._ranks + first, 0, _DEEP)
        return self._costs - (self._ranks >= 0) * _WORTH**deep

    def _fill(self, mine: Any) -> None:  # noqa: ANN401 - an array of numpy
        """Serve of these columns, the least dear first, who fits were nobody of a later rank."""
        able = self._model.able(mine, self.least, self._room)
        for column in able[self._np.argsort(self._dearness[able], kind="stable")]:
            while self._serve(column):
                pass

    def _serve(self, column: int) -> bool:
        """Serve one more, with a machine more where one is needed; say whether that fits."""
        if self._fits(column):
            self._take(column)
            return True
        machine = int(self._machine[column])
        if machine < 0 or not self._fits(machine):
            return False
        self._take(machine)
        if self._fits(column):
            self._take(column)
            return True
        self._take(machine, -1)
        return False

    def _take(self, column: int, count: int = 1) -> None:
        rows, factors = self._sifted.entries(column)
        self.least[column] += count
        self._room[rows] -= count * factors

    def _fits(self, column: int) -> bool:
        rows, factors = self._sifted.entries(column)
        fits = self.least[column] < self._most[column]
        return bool(fits and (self._room[rows] - factors).min() >= -EPSILON)
