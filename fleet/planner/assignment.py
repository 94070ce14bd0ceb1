"""Assign whole requests to places, exactly: no limit is ever exceeded.

The solver's values are floating-point numbers within a tolerance, and may be fractional. An
assignment checks each request with decimals and fills the capacity that rounding leaves.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from heapq import heapify, heappop, heappush
from math import ceil

from fleet.planner.demand import LimitRow
from fleet.planner.formulation import EPSILON, Block, Model, Usage, Waiting
from fleet.planner.solver import Array, np

_ZERO = Decimal(0)


@dataclass(frozen=True)
class Stop:
    """A place that fits a request, and the limits that an additional request would exceed."""

    place: str
    rows: tuple[LimitRow, ...] = ()
    """Empty if the place is full of requests that come first."""


class Assignment:
    """The requests of a component at their places."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.served: list[dict[str, list[Waiting]]] = [{} for _ in model.blocks]
        """For each block, place to its requests that are served there."""
        self.unserved: list[list[Waiting]] = [[*block.requests] for block in model.blocks]
        """For each block, its unserved requests."""
        self.machines: dict[str, int] = {}
        """Place to its number of new machines."""
        self.used = [_ZERO for _ in model.rows]
        """The used amount of each limit."""
        self._shares: defaultdict[str, float] = defaultdict(float)
        self._closed = {key for key, place in model.places.items() if not place.makes}
        """Places that get no further machine."""

    @classmethod
    def rounded(
        cls, model: Model, counts: Mapping[int, Mapping[str, int]], prices: Array = None
    ) -> "Assignment":
        """Assign these counts by block in rank order, then fill the remaining capacity.

        A waiting request would therefore not fit even if all requests of later ranks were
        unserved.
        """
        found = cls(model)
        for blocks in model.blocks_by_rank:
            found.add(blocks, counts, prices)
        if model.is_exact:
            while found._prefer_older():
                found._fill(range(len(model.blocks)))
            found._give_workers_to_older()
        return found

    def add(
        self,
        blocks: Sequence[int],
        counts: Mapping[int, Mapping[str, int]],
        prices: Array = None,
    ) -> None:
        """Serve these counts of some blocks as far as they fit, and then every request that fits.

        `prices`: what a request costs in each column; None: money.
        """
        places = self._model.places
        for nth in blocks:
            at = counts.get(nth, {})
            # The oldest requests get the workers that exist.
            for place in sorted(at, key=lambda key: (places[key].makes, key)):
                self._serve(nth, place, at[place])
        self._fill(blocks, prices)

    def unserved_by_rank(self) -> list[int]:
        """Return the number of unserved requests of each rank, the earliest rank first."""
        count = Counter(rank for block in self.unserved for rank, _, _ in block)
        return [count[rank] for rank in self._model.every_rank]

    def sort_key(self) -> tuple[list[int], float]:
        """Return the unserved requests per rank, then the cost with penalties: less is better."""
        penalties = sum(
            self._model.penalty(block, place) * len(own) for block, place, own in self._pairs()
        )
        return self.unserved_by_rank(), self.cost() + penalties

    def values(self) -> Array:
        """Return the values of the program's columns."""
        model, program = self._model, self._model.program
        values = np.zeros(len(program.costs))
        for nth, (block, at) in enumerate(zip(model.blocks, self.served, strict=True)):
            for place, requests in at.items():
                values[block.column(place)] = len(requests)
                values[program.totals[nth]] += len(requests)
        for key, column in zip(model.places, program.machines.tolist(), strict=True):
            if column >= 0:
                values[column] = self.machines.get(key, 0)
        for key, column in program.steps.items():
            values[column] = self._steps(key)
        return values

    def cost(self) -> float:
        """Return the expected money of new machines and of the work on them."""
        model = self._model
        setup = sum(
            float(model.places[key].setup) * self.machines[key] for key in sorted(self.machines)
        )
        steps = model.steps
        work = sum(
            float(block.fits[place].money) * len(own)
            for block, place, own in self._pairs()
            if not (place in steps and block.fits[place].share < 1)
        )
        return setup + work + sum(self._steps(k) * float(model.places[k].step) for k in steps)

    def stops(self, block: Block, known: dict[object, Stop]) -> Iterator[Stop]:
        """Yield the reason why each fitting place serves no more; `known` caches equal ones."""
        for place in block.places:
            usage, more = self._model.usage(block, place), self._more_machines(block, place, 1)
            if (place, usage, more) not in known:
                rows = tuple(self._model.rows[n] for n in self._excess(place, usage, more))
                known[place, usage, more] = Stop(place, rows)
            yield known[place, usage, more]

    def shortfalls(self, block: Block, place: str) -> dict[int, Decimal]:
        """Return the limits that a further request would exceed at a place, with the excess."""
        more = self._more_machines(block, place, 1)
        return self._excess(place, self._model.usage(block, place), more)

    def _serve(self, nth: int, place: str, count: int) -> int:
        """Serve the first unserved requests of a block at a place as far as they fit.

        Return their number.
        """
        block, unserved = self._model.blocks[nth], self.unserved[nth]
        count = min(count, len(unserved))
        if not self._fits(block, place, count):
            if self._excess(place, (), 1):
                self._closed.add(place)
            # The largest number that fits, by bisection.
            low, high = 0, count
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._fits(block, place, middle) else (low, middle)
            count = low
        if count:
            self.served[nth].setdefault(place, []).extend(unserved[:count])
            del unserved[:count]
            self._count(block, place, count)
        return count

    def _fill(self, some: Iterable[int], prices: Array = None) -> None:
        """Serve the unserved requests of some blocks that nothing stops, each at least cost."""
        for nth in some:
            block, unserved = self._model.blocks[nth], self.unserved[nth]
            is_open = True
            while unserved and is_open:
                ways = [
                    (*self._price(block, key, prices), key)
                    for key in block.places
                    if key not in self._closed
                    or block.fits[key].share <= self._free(key) + EPSILON
                ]
                count = 1 if prices is None else len(unserved)
                is_open = any(self._serve(nth, key, count) for *_, key in sorted(ways))

    def _price(self, block: Block, place: str, prices: Array) -> tuple[float, float]:
        """Return the cost of an additional request of a block at a place."""
        setup = 0.0
        if self._more_machines(block, place, 1):
            setup = float(self._model.places[place].setup)
        money = float(block.fits[place].money) + self._model.penalty(block, place) + setup
        return (0.0 if prices is None else float(prices[block.column(place)])), money

    def _free(self, place: str) -> float:
        """Return the idle capacity at a place, in fractional machines."""
        own = self._model.places[place]
        return (self.machines.get(place, 0) if own.makes else own.room) - self._shares[place]

    def _more_machines(self, block: Block, place: str, count: int) -> int:
        """Return the number of additional machines for additional requests of a block."""
        if not self._model.places[place].makes:
            return 0
        after = self._shares[place] + block.fits[place].share * count
        return max(0, ceil(after - EPSILON) - self.machines.get(place, 0))

    def _fits(self, block: Block, place: str, count: int) -> bool:
        """Return whether additional requests of a block fit a place."""
        more = self._more_machines(block, place, count)
        if block.fits[place].share * count > self._free(place) + more + EPSILON:
            return False
        usage = tuple((n, amount * count) for n, amount in self._model.usage(block, place))
        return not self._excess(place, usage, more)

    def _excess(self, place: str, usage: Usage, more: int) -> dict[int, Decimal]:
        """Return the limits that this usage and more machines would exceed, with the excess."""
        rows, used, needed = self._model.rows, self.used, dict(usage)
        for n in self._model.rows_of[place] if more else ():
            needed[n] = needed.get(n, _ZERO) + more * rows[n].machines[place]
        exceeded = sorted([n for n, amount in needed.items() if used[n] + amount > rows[n].room])
        return {n: used[n] + needed[n] - rows[n].room for n in exceeded}

    def _count(self, block: Block, place: str, count: int) -> None:
        """Add the usage of this number of requests; subtract it if the number is negative."""
        self._shares[place] += block.fits[place].share * count
        for n, amount in self._model.usage(block, place):
            self.used[n] += amount * count
        if self._model.places[place].makes:
            before = self.machines.get(place, 0)
            self.machines[place] = ceil(self._shares[place] - EPSILON)
            for n in self._model.rows_of[place]:
                each = self._model.rows[n].machines[place]
                self.used[n] += each * (self.machines[place] - before)

    def _pairs(self) -> Iterator[tuple[Block, str, Sequence[Waiting]]]:
        for block, at in zip(self._model.blocks, self.served, strict=True):
            for place, requests in at.items():
                yield block, place, requests

    def _steps(self, key: str) -> int:
        """Return the least number of further steps that the shared machines are billed."""
        place, shared, machines = self._model.places[key], 0.0, self.machines.get(key, 0)
        for block, at, requests in self._pairs():
            if at == key:
                fit = block.fits[at]
                shared += float(fit.money) * len(requests) if fit.share < 1 else 0.0
                machines -= len(requests) if fit.share >= 1 else 0
        rest = shared - float(place.unused) * machines
        return max(0, ceil(rest / float(place.step) - EPSILON))

    def _prefer_older(self) -> bool:
        """Swap unserved requests with younger served ones of the same rank and cost.

        Return whether any was swapped: the younger ones may fit elsewhere.
        """
        is_any = False
        for nth, unserved in enumerate(self.unserved):
            # If the oldest finds no partner, no later one does.
            while unserved and (found := self._youngest_like(nth, unserved[0])):
                _, other, place = found
                older = unserved.pop(0)
                insort(self.unserved[other], self.served[other][place].pop())
                insort(self.served[nth].setdefault(place, []), older)
                self._count(self._model.blocks[other], place, -1)
                self._count(self._model.blocks[nth], place, 1)
                is_any = True
        return is_any

    def _give_workers_to_older(self) -> None:
        """Swap requests at new machines with younger ones of the same usage at existing workers.

        A queue gives a free worker to the oldest request; the younger one gets the new machine.
        """
        places = self._model.places
        if not any(requests and not places[at].makes for _, at, requests in self._pairs()):
            return
        new = [
            (waiting, nth, place)
            for nth, at in enumerate(self.served)
            for place, requests in at.items()
            if places[place].makes
            for waiting in requests
        ]
        heapify(new)
        # If one of a block finds no partner, no later one of it does.
        done: set[tuple[int, str]] = set()
        while new:
            older, nth, place = heappop(new)
            if (nth, place) in done:
                continue
            if (found := self._youngest_like(nth, older, place)) is None:
                done.add((nth, place))
                continue
            younger, other, at = found
            self.served[nth][place].remove(older)
            self.served[other][at].remove(younger)
            insort(self.served[nth].setdefault(at, []), older)
            insort(self.served[other].setdefault(place, []), younger)
            heappush(new, (younger, other, place))

    def _youngest_like(
        self, nth: int, older: Waiting, new: str | None = None
    ) -> tuple[Waiting, int, str] | None:
        """Return the youngest request that is younger and has the same usage at its place.

        It is at an existing worker and has the same usage at `new` too; without `new`, it has the
        same rank.
        """
        places = self._model.places
        found = [
            (requests[-1], other, place)
            for place in self._model.blocks[nth].places
            if new is None or not places[place].makes
            for other, at in enumerate(self.served)
            if (requests := at.get(place))
            and requests[-1] > older
            and (requests[-1][0] == older[0] if new is None else self._is_like(nth, other, new))
            and (self._can_replace if new is None else self._is_like)(nth, other, place)
        ]
        return max(found, default=None)

    def _can_replace(self, nth: int, other: int, place: str) -> bool:
        """Return whether a request of a block fits a place in exchange for one of another."""
        block, like = self._model.blocks[nth], self._model.blocks[other]
        if like.fits[place][:2] != block.fits[place][:2]:
            return False
        self._count(like, place, -1)
        found = self._fits(block, place, 1)
        self._count(like, place, 1)
        return found

    def _is_like(self, nth: int, other: int, place: str) -> bool:
        """Return whether two blocks take the same at a place."""
        block, like = self._model.blocks[nth], self._model.blocks[other]
        return (
            place in like.places
            and like.fits[place][:2] == block.fits[place][:2]
            and self._model.usage(like, place) == self._model.usage(block, place)
        )
