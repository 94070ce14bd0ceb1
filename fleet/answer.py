"""This module says exactly what an answer takes of machines, money and limits, and what stops."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil

from fleet.choices import Row
from fleet.formulation import EPSILON, Block, Model

_NONE = Decimal(0)
Counts = list[dict[str, int]]
"""For each block, place to how many of its requests are served there."""


@dataclass(frozen=True)
class Stop:
    """A place that would fit, and the limits that keep it from serving one request more."""

    place: str
    rows: tuple[Row, ...] = ()
    """Empty where the place is full of those who come first."""


class Answer:
    """Who of a component is served where, never past a limit."""

    def __init__(self, model: Model, counts: Counts) -> None:
        self.counts = counts
        self._model = model
        self._rows_of: defaultdict[str, list[int]] = defaultdict(list)
        for number, row in enumerate(model.rows):
            for place in row.machines:
                self._rows_of[place].append(number)
        self._mend()

    def _mend(self) -> None:
        """Take back, from the last in order, what rounding took past a limit."""
        while True:
            self._count()
            rows = enumerate(self._model.rows)
            past = {number for number, row in rows if self.taken[number] > row.room}
            victim = next(self._counted_in(past), None) if past else None
            if victim is None:
                return
            at, place = victim
            at[place] -= 1

    def _count(self) -> None:
        """Count the machines that are made, and what is taken of each row."""
        shares: defaultdict[str, float] = defaultdict(float)
        taken: defaultdict[int, Decimal] = defaultdict(Decimal)
        for block, at in zip(self._model.blocks, self.counts, strict=True):
            for place, count in at.items():
                shares[place] += block.fits[place][0] * count
            for number, place, factor in block.counted:
                taken[number] += factor * at.get(place, 0)
        self._shares = shares
        self.machines = {
            place: ceil(shares[place] - EPSILON)
            for place in sorted(shares)
            if self._model.places[place].makes
        }
        self.taken = [
            sum((f * self.machines.get(p, 0) for p, f in row.machines.items()), taken[number])
            for number, row in enumerate(self._model.rows)
        ]

    def _counted_in(self, rows: Collection[int]) -> Iterator[tuple[dict[str, int], str]]:
        both = list(zip(self._model.blocks, self.counts, strict=True))
        for block, at in sorted(both, key=lambda pair: pair[0].rank, reverse=True):
            for place in sorted(place for place, count in at.items() if count):
                own = {number for number, counted, _ in block.counted if counted == place}
                if not own.union(self._rows_of[place]).isdisjoint(rows):
                    yield at, place

    def cost(self) -> float:
        """Return the money that machines and the work on them are expected to cost."""
        places = self._model.places
        setup = sum(float(places[key].setup) * count for key, count in self.machines.items())
        work = (
            block.fits[place][1] * count
            for block, at in zip(self._model.blocks, self.counts, strict=True)
            for place, count in at.items()
        )
        return setup + sum(work)

    def stops(self, block: Block) -> Iterator[Stop]:
        """Yield why no place that fits can serve one request more of a block."""
        own: defaultdict[str, dict[int, Decimal]] = defaultdict(dict)
        for number, place, factor in block.counted:
            own[place][number] = factor
        for place, (share, _) in block.fits.items():
            yield Stop(place, tuple(self._stopping(place, share, own[place])))

    def _stopping(self, place: str, share: float, takes: dict[int, Decimal]) -> Iterator[Row]:
        rows: Sequence[Row] = self._model.rows
        needed = dict(takes)
        if self._shares.get(place, 0.0) + share > self.machines.get(place, 0) + EPSILON:
            for number in self._rows_of[place]:
                needed[number] = needed.get(number, _NONE) + rows[number].machines[place]
        for number in sorted(needed):
            if self.taken[number] + needed[number] > rows[number].room:
                yield rows[number]
