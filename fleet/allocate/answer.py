"""This module says exactly what an answer takes of machines, money and limits, and what stops."""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from math import ceil

from fleet.allocate.formulation import EPSILON, Block, Model, Waiting
from fleet.allocate.programme import Sum
from fleet.demand.choices import Rank, Row

_NONE = Decimal(0)


@dataclass(frozen=True)
class Stop:
    """A place that would fit, and the limits that keep it from serving one request more."""

    place: str
    rows: tuple[Row, ...] = ()
    """Empty where the place is full of those who come first."""


class Answer:
    """Who of a component is served where, never past a limit."""

    def __init__(self, model: Model, counts: Sequence[Mapping[str, int]]) -> None:
        self._model = model
        self.served: list[dict[str, list[Waiting]]] = []
        """For each block, place to those of its requests that are served there."""
        self.left: list[list[Waiting]] = []
        """For each block, its requests that are not served."""
        self.machines: dict[str, int] = {}
        """Place to how many machines are made there."""
        self.taken = [_NONE for _ in model.rows]
        """What is taken of each row."""
        self._shares: defaultdict[str, float] = defaultdict(float)
        for nth, block in enumerate(model.blocks):
            at = counts[nth] if counts else {}
            requests = iter(block.requests)
            # Those who come first get what is there already.
            order = sorted(at, key=lambda key: (model.places[key].makes, key))
            self.served.append({place: list(islice(requests, at[place])) for place in order})
            self.left.append(list(requests))
            for place, own in self.served[-1].items():
                self._count(block, place, own, 1)
        self._mend()
        self._fill()
        if model.is_exact:
            self._prefer_older()

    def _mend(self) -> None:
        """Take back, from the last in order, what rounding took past a limit."""
        while past := {
            number for number, row in enumerate(self._model.rows) if self.taken[number] > row.room
        }:
            victim = self._last_in(past)
            if victim is None:
                return
            nth, place = victim
            waiting = self.served[nth][place].pop()
            self.left[nth].insert(0, waiting)
            self._count(self._model.blocks[nth], place, [waiting], -1)

    def _fill(self) -> None:
        """Serve who is left although nothing stops it, which rounding has left room for."""
        order = sorted(range(len(self.left)), key=lambda nth: self._model.blocks[nth].rank)
        for nth in order:
            block, left = self._model.blocks[nth], self.left[nth]
            while left:
                place = self._open_place(block)
                if place is None:
                    break
                self.served[nth].setdefault(place, []).append(left[0])
                self._count(block, place, [left.pop(0)], 1)

    def _open_place(self, block: Block) -> str | None:
        """Return the place that can serve one request more of a block at the least cost."""
        for place in sorted(block.fits, key=lambda key: (self._dearness(block, key), key)):
            share = block.fits[place][0]
            full = self._shares[place] + share > self._model.places[place].room + EPSILON
            may = self._model.places[place].makes or not full
            if may and next(self._stopping(block, place), None) is None:
                return place
        return None

    def _dearness(self, block: Block, place: str) -> float:
        """Return what one request more of a block costs, with the machine that it may need."""
        money = block.fits[place][1] + block.seems.get(place, 0.0)
        if self._needs_machine(block, place):
            money += float(self._model.places[place].setup)
        return money

    def _needs_machine(self, block: Block, place: str) -> bool:
        """Say whether one request more of a block takes another machine."""
        after = self._shares[place] + block.fits[place][0]
        return self._model.places[place].makes and after > self.machines.get(place, 0) + EPSILON

    def _prefer_older(self) -> None:
        """Have who came first served in place of one of the same rank who takes just the same."""
        for nth, left in enumerate(self.left):
            # Where one finds nobody, neither does who came later.
            while left and (found := self._youngest_like(self._model.blocks[nth], left[0])):
                _, other, place = found
                waiting = left.pop(0)
                insort(self.left[other], self.served[other][place].pop())
                insort(self.served[nth].setdefault(place, []), waiting)

    def _youngest_like(self, block: Block, waiting: Waiting) -> tuple[Waiting, int, str] | None:
        """Return the last of a rank who is served where another fits as well, and came later."""
        rank, _, _ = waiting
        found = [
            (served[place][-1], other, place)
            for other, served in enumerate(self.served)
            for place, fit in block.fits.items()
            if served.get(place)
            and served[place][-1] > waiting
            and served[place][-1][0] == rank
            and self._model.blocks[other].fits[place] == fit
            and self._model.blocks[other].takes.get(place) == block.takes.get(place)
        ]
        return max(found, default=None)

    def lacking(self) -> list[int]:
        """Return how many of each rank are not served, the earliest first."""
        left = Counter(rank for block in self.left for rank, _, _ in block)
        return [left[rank] for rank in self._model.every_rank]

    def badness(self) -> tuple[list[int], float]:
        """Return what tells answers apart: whom they lack, rank by rank, and then their cost."""
        seeming = sum(
            block.seems.get(place, 0.0) * len(requests) for block, place, requests in self._each()
        )
        return self.lacking(), self.cost() + seeming

    def sums(self) -> list[Sum]:
        """Return how many of each block are served, as sums of its columns."""
        return [
            (block.columns, block.size - len(left))
            for block, left in zip(self._model.blocks, self.left, strict=True)
        ]

    def sums_by_rank(self) -> list[Sum]:
        """Return how many of each rank are served, the earliest first; blocks are of one each."""
        everybody = self._model.everybody_by_rank
        return [
            (at, size - less) for (at, size), less in zip(everybody, self.lacking(), strict=True)
        ]

    def _count(self, block: Block, place: str, requests: Sequence[Waiting], sign: int) -> None:
        """Count what requests take of a place, of machines and of rows; or give it back."""
        self._shares[place] += sign * block.fits[place][0] * len(requests)
        for number, factor in block.takes.get(place, ()):
            self.taken[number] += sign * factor * len(requests)
        if self._model.places[place].makes:
            before = self.machines.get(place, 0)
            self.machines[place] = ceil(self._shares[place] - EPSILON)
            for number in self._model.rows_of[place]:
                each = self._model.rows[number].machines[place]
                self.taken[number] += each * (self.machines[place] - before)

    def _last_in(self, rows: Collection[int]) -> tuple[int, str] | None:
        """Return the block and place of the last request that takes of one of these rows."""
        found: list[tuple[Rank, int, str]] = []
        for nth, (block, at) in enumerate(zip(self._model.blocks, self.served, strict=True)):
            for place, requests in at.items():
                if requests:
                    own = {number for number, _ in block.takes.get(place, ())}
                    if not own.union(self._model.rows_of[place]).isdisjoint(rows):
                        found.append((requests[-1][0], nth, place))
        return max(found)[1:] if found else None

    def values(self) -> dict[int, float]:
        """Return it as columns of the programme; all others are 0."""
        makes = self._model.makes
        found = {makes[place]: float(count) for place, count in self.machines.items()}
        found |= {column: float(self.steps(key)) for key, column in self._model.steps.items()}
        for block, at in zip(self._model.blocks, self.served, strict=True):
            found |= {
                column: float(len(at[place]))
                for place, column in zip(block.fits, block.columns, strict=True)
                if place in at
            }
        return found

    def cost(self) -> float:
        """Return the money that machines and the work on them are expected to cost."""
        places = self._model.places
        setup = sum(float(places[key].setup) * self.machines[key] for key in sorted(self.machines))
        work = sum(
            block.fits[place][1] * len(requests)
            for block, place, requests in self._each()
            if not (place in self._model.steps and block.fits[place][0] < 1)
        )
        return setup + work + sum(map(self._in_steps, sorted(self._model.steps)))

    def _each(self) -> Iterator[tuple[Block, str, Sequence[Waiting]]]:
        for block, at in zip(self._model.blocks, self.served, strict=True):
            for place, requests in at.items():
                yield block, place, requests

    def _in_steps(self, key: str) -> float:
        """Return what those who share machines of a place cost beside them, in whole steps."""
        return self.steps(key) * float(self._model.places[key].step)

    def steps(self, key: str) -> int:
        """Return how many steps more the shared machines of a place are billed, at the least."""
        place, shared, machines = self._model.places[key], 0.0, self.machines.get(key, 0)
        for block, at, requests in self._each():
            if at == key:
                share, money = block.fits[at]
                shared += money * len(requests) if share < 1 else 0.0
                machines -= len(requests) if share >= 1 else 0
        left = shared - float(place.unused) * machines
        return max(0, ceil(left / float(place.step) - EPSILON))

    def stops(self, block: Block) -> Iterator[Stop]:
        """Yield why no place that fits can serve one request more of a block."""
        for place in block.fits:
            yield Stop(place, tuple(self._stopping(block, place)))

    def _stopping(self, block: Block, place: str) -> Iterator[Row]:
        """Yield the limits that keep a place from serving one request more of a block."""
        rows = self._model.rows
        needed = dict(block.takes.get(place, ()))
        if self._needs_machine(block, place):
            for number in self._model.rows_of[place]:
                needed[number] = needed.get(number, _NONE) + rows[number].machines[place]
        for number in sorted(needed):
            if self.taken[number] + needed[number] > rows[number].room:
                yield rows[number]
