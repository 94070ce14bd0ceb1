"""Assign whole requests to workers and new machines without exceeding any limit.

The solver returns floating-point values that are exact only within a tolerance, and may be
fractional. An assignment checks each request in decimals and fills the remaining capacity.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from heapq import heapify, heappop, heappush
from math import ceil

from fleet.planner.demand import Constraints, LimitRow, Place, RequestGroup, Usage
from fleet.planner.formulation import EPSILON, Block, Model, Waiting
from fleet.planner.solver import Array, np

_ZERO = Decimal(0)


@dataclass(frozen=True)
class Stop:
    """A place that fits a waiting request, and the limits that the request would exceed there."""

    place: str
    rows: tuple[LimitRow, ...] = ()
    """Empty if requests that come first use all capacity of the place."""
    above: tuple[bool, ...] = ()
    """Per limit: the request alone needs more than the whole limit."""


class StopFinder:
    """Finds why requests wait, given all served requests and new machines of a plan."""

    def __init__(
        self,
        groups: Mapping[str, RequestGroup],
        places: Mapping[str, Place],
        rows: Sequence[LimitRow],
        machines: Mapping[str, int],
        counts: Mapping[tuple[str, str], int],
    ) -> None:
        self._groups, self._places, self._limits = groups, places, Constraints(rows)
        self._left = self._limits.left(machines, counts)
        self._free = {key: machines.get(key, place.room) for key, place in places.items()}
        for (group, place), count in counts.items():
            self._free[place] -= groups[group].fits[place].share * count
        self._known: dict[object, Stop] = {}

    def find(self, group: str) -> Iterator[Stop]:
        """Yield a Stop per open place that fits a group; equal Stops are one object."""
        fits, limits = self._groups[group].fits, self._limits
        for place in sorted(self._places.keys() & fits.keys()):
            is_new = fits[place].share > self._free[place] + EPSILON and self._places[place].makes
            key = place, limits.usage(group, place), is_new
            if key not in self._known:
                needs = limits.needs(*key)
                rows = {
                    limits.rows[n]: need
                    for n, need in sorted(needs.items())
                    if need > self._left[n]
                }
                above = tuple(row.is_below(need) for row, need in rows.items())
                self._known[key] = Stop(place, tuple(rows), above)
            yield self._known[key]


class Assignment:
    """Assignment of one component's requests to places (workers or new machines)."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.served: list[dict[str, list[Waiting]]] = [{} for _ in model.blocks]
        """Per block: place to the requests of the block that the place serves."""
        self.unserved: list[list[Waiting]] = [[*block.requests] for block in model.blocks]
        """Per block: its unserved requests."""
        self.machines: dict[str, int] = {}
        """Place to number of new machines."""
        self.used = [_ZERO for _ in model.limits.rows]
        """Per limit: the used amount."""
        self._shares: defaultdict[str, float] = defaultdict(float)
        self._closed = {key for key, place in model.places.items() if not place.makes}
        """Places where no further machine can be created."""

    @classmethod
    def rounded(
        cls, model: Model, counts: Mapping[int, Mapping[str, int]], prices: Array = None
    ) -> "Assignment":
        """Return an assignment of `counts` (block to place to number), filled up in rank order.

        No waiting request would fit, even if all requests of later ranks were unserved. `prices`
        has the reduced cost of each column. None: choose the cheapest place.
        """
        found, places = cls(model), model.places
        for blocks in model.blocks_by_rank:
            for nth in blocks:
                at = counts.get(nth, {})
                # Existing workers come first, so that they serve the oldest requests.
                for place in sorted(at, key=lambda key: (places[key].makes, key)):
                    found._serve(nth, place, at[place])
            found._fill(blocks, prices)
        if model.is_exact:
            while found._prefer_older():
                found._fill(range(len(model.blocks)))
            found._give_workers_to_older()
        return found

    def unserved_by_rank(self) -> list[int]:
        """Return the number of unserved requests of each rank, the earliest rank first."""
        count = Counter(rank for block in self.unserved for rank, _, _ in block)
        return [count[rank] for rank in self._model.every_rank]

    def sort_key(self) -> tuple[list[int], float]:
        """Return the unserved requests per rank, and the cost with penalties (less is better)."""
        penalties = sum(
            self._model.penalty(block, place) * len(own) for block, place, own in self._pairs()
        )
        return self.unserved_by_rank(), self.cost() + penalties

    def values(self) -> Array:
        """Return the value of each column of the mixed-integer program for this assignment."""
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
        """Return the expected cost of new machines and served requests, in currency units."""
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

    def shortfalls(self, block: Block, place: str) -> dict[int, Decimal]:
        """Return the excess per limit that another request at a place would exceed."""
        more = self._more_machines(block, place, 1)
        return self._excess(place, self._model.limits.usage(block.group, place), more)

    def _serve(self, nth: int, place: str, count: int) -> int:
        """Serve up to `count` requests of the nth block at a place; return the number that fit."""
        block, unserved = self._model.blocks[nth], self.unserved[nth]
        count = min(count, len(unserved))
        if not self._fits(block, place, count):
            if self._excess(place, (), 1):
                self._closed.add(place)
            # Find the largest number that fits by bisection.
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
        """Serve each unserved request of some blocks at the cheapest place with free capacity."""
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
        """Return the reduced cost (0 without `prices`) and the money cost of another request."""
        setup = 0.0
        if self._more_machines(block, place, 1):
            setup = float(self._model.places[place].setup)
        money = float(block.fits[place].money) + self._model.penalty(block, place) + setup
        return (0.0 if prices is None else float(prices[block.column(place)])), money

    def _free(self, place: str) -> float:
        """Return the idle capacity of a place (workers or new machines), in units of a machine."""
        own = self._model.places[place]
        return (self.machines.get(place, 0) if own.makes else own.room) - self._shares[place]

    def _more_machines(self, block: Block, place: str, count: int) -> int:
        """Return the number of machines to create for `count` further requests of a block."""
        if not self._model.places[place].makes:
            return 0
        after = self._shares[place] + block.fits[place].share * count
        return max(0, ceil(after - EPSILON) - self.machines.get(place, 0))

    def _fits(self, block: Block, place: str, count: int) -> bool:
        """Return True if `count` more requests of a block of similar groups fit at a place."""
        more = self._more_machines(block, place, count)
        if block.fits[place].share * count > self._free(place) + more + EPSILON:
            return False
        usage = tuple(
            (n, amount * count) for n, amount in self._model.limits.usage(block.group, place)
        )
        return not self._excess(place, usage, more)

    def _excess(self, place: str, usage: Usage, more: int) -> dict[int, Decimal]:
        """Return the excess per limit that `usage` and `more` new machines would exceed."""
        rows, used = self._model.limits.rows, self.used
        needs = self._model.limits.needs(place, usage, more)
        exceeded = sorted([n for n, amount in needs.items() if used[n] + amount > rows[n].room])
        return {n: used[n] + needs[n] - rows[n].room for n in exceeded}

    def _count(self, block: Block, place: str, count: int) -> None:
        """Add the usage of `count` requests of a block. A negative count subtracts usage."""
        self._shares[place] += block.fits[place].share * count
        limits, places = self._model.limits, self._model.places
        for n, amount in limits.usage(block.group, place):
            self.used[n] += amount * count
        if places[place].makes:
            before = self.machines.get(place, 0)
            self.machines[place] = ceil(self._shares[place] - EPSILON)
            for n, amount in limits.needs(place, (), self.machines[place] - before).items():
                self.used[n] += amount

    def _pairs(self) -> Iterator[tuple[Block, str, Sequence[Waiting]]]:
        for block, at in zip(self._model.blocks, self.served, strict=True):
            for place, requests in at.items():
                yield block, place, requests

    def _steps(self, key: str) -> int:
        """Return the minimum billing increments of shared machines, beyond those `setup` pays."""
        place, shared, machines = self._model.places[key], 0.0, self.machines.get(key, 0)
        for block, at, requests in self._pairs():
            if at == key:
                fit = block.fits[at]
                shared += float(fit.money) * len(requests) if fit.share < 1 else 0.0
                machines -= len(requests) if fit.share >= 1 else 0
        rest = shared - float(place.unused) * machines
        return max(0, ceil(rest / float(place.step) - EPSILON))

    def _prefer_older(self) -> bool:
        """Swap unserved requests with younger served requests of the same rank and cost.

        Return True if a request was swapped: another unserved request may then fit elsewhere.
        """
        is_any = False
        for nth, unserved in enumerate(self.unserved):
            # If the oldest request finds no partner, no younger request does.
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
        """Swap requests at new machines with younger, equal requests at existing workers.

        A queue assigns a free worker to its oldest request, and new machines are free later.
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
        # If a request finds no partner, no younger request of the same block and place does.
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
        """Return the youngest request that `older` can swap with, its block and its place.

        With `new`, only requests at an existing worker, with equal usage there and at `new`.
        Without `new`, only requests of the same rank. None if there is no such request.
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
        """Return True if a request of block `nth` can replace a request of `other` at a place."""
        block, like = self._model.blocks[nth], self._model.blocks[other]
        if like.fits[place][:2] != block.fits[place][:2]:
            return False
        self._count(like, place, -1)
        found = self._fits(block, place, 1)
        self._count(like, place, 1)
        return found

    def _is_like(self, nth: int, other: int, place: str) -> bool:
        """Return True if requests of two blocks have equal cost and usage at a place."""
        block, like = self._model.blocks[nth], self._model.blocks[other]
        return (
            place in like.places
            and like.fits[place][:2] == block.fits[place][:2]
            and self._model.limits.usage(like.group, place)
            == self._model.limits.usage(block.group, place)
        )
