"""Assign whole requests to places, exactly: no limit is ever exceeded.

The solver's values are floating-point numbers within a tolerance, and may be fractional. An
assignment checks each of them with decimals and fills the capacity that rounding leaves.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import ceil

from fleet.planner.demand import Row
from fleet.planner.formulation import EPSILON, Block, Model, Usage, Waiting
from fleet.planner.solver import Array, RowSum, can_solve

_MANY_BLOCKS = 100
"""Number of blocks from which those that fit nowhere are found with numpy: loops are slower."""
_ZERO = Decimal(0)

Counts = Sequence[Mapping[str, int]]
"""The number of requests at each place, for each block of a model."""
Blocker = tuple[str, Usage, bool]
"""A place, the limits that an additional request counts to there, and if it needs a machine."""


@dataclass(frozen=True)
class Stop:
    """A place that fits a request, and the limits that an additional request would exceed."""

    place: str
    rows: tuple[Row, ...] = ()
    """Empty if the place is full of requests that come first."""


class Assignment:
    """The requests of a component at their places."""

    def __init__(self, model: Model, counts: Counts = ()) -> None:
        """Assign these counts by rank, and then every unserved request that fits.

        So a request that waits would fit nowhere even if no request of a later rank was served.
        """
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
        for _, blocks in groupby(range(len(model.blocks)), lambda nth: model.blocks[nth].rank):
            of_rank = [*blocks]
            for nth in of_rank if counts else ():
                # The oldest requests get the workers that exist.
                for place in sorted(counts[nth], key=lambda key: (model.places[key].makes, key)):
                    self._serve(nth, place, counts[nth][place])
            self._revoke_excess()
            self._fill(of_rank)
        if model.is_exact:
            while self._prefer_older():
                self._fill(range(len(model.blocks)))
            self._give_workers_to_older()

    @classmethod
    def rounded(cls, model: Model, values: Array) -> "Assignment":
        """Return the assignment of these values of columns, with fractional ones rounded."""
        room = {key: place.room for key, place in model.places.items()}
        room |= {key: round(values[column]) for key, column in model.machines.items()}
        counts: list[dict[str, int]] = []
        fractional: list[tuple[Block, dict[str, int], list[str]]] = []
        for block, parts in zip(model.blocks, _positive(model, values), strict=True):
            at = {place: int(part) for place, part in parts.items()}
            for place, count in at.items():
                room[place] -= block.fits[place][0] * count
            if rest := int(sum(parts.values())) - sum(at.values()):
                places = sorted(block.fits, key=lambda p: (at.get(p, 0) - parts.get(p, 0.0), p))
                fractional += [(block, at, places)] * rest
            counts.append(at)
        for block, at, places in sorted(fractional, key=lambda each: each[0].rank):
            cheapest = _cheapest_with_room(model, block, places, room)
            if cheapest is not None:
                at[cheapest] = at.get(cheapest, 0) + 1
                room[cheapest] -= block.fits[cheapest][0]
                # A further machine has capacity for more fractional requests.
                room[cheapest] += model.places[cheapest].makes and room[cheapest] < -EPSILON
        return cls(model, counts)

    def unserved_by_rank(self) -> list[int]:
        """Return the number of unserved requests of each rank, the earliest rank first."""
        count = Counter(rank for block in self.unserved for rank, _, _ in block)
        return [count[rank] for rank in self._model.every_rank]

    def sort_key(self) -> tuple[list[int], float]:
        """Return the unserved requests per rank, then the cost with penalties: less is better."""
        penalties = sum(
            block.penalties.get(place, 0.0) * len(own) for block, place, own in self._pairs()
        )
        return self.unserved_by_rank(), self.cost() + penalties

    def sums(self) -> list[RowSum]:
        """Return the number of served requests of each block, as the sum of its row."""
        both = zip(self._model.blocks, self.unserved, strict=True)
        return [(block.row, block.size - len(unserved)) for block, unserved in both]

    def sums_by_rank(self) -> list[RowSum]:
        """Return the number of served requests of each rank, as the sum of its row."""
        both = zip(self._model.ranks, self.unserved_by_rank(), strict=True)
        return [(row, size - less) for (row, size), less in both]

    def values(self) -> dict[int, float]:
        """Return the values of columns; all others are 0."""
        model = self._model
        found = {model.machines[place]: float(count) for place, count in self.machines.items()}
        found |= {column: float(self._steps(key)) for key, column in model.steps.items()}
        for block, at in zip(model.blocks, self.served, strict=True):
            places = [*block.fits] if at else []
            found |= {block.columns[places.index(p)]: float(len(own)) for p, own in at.items()}
        return found

    def cost(self) -> float:
        """Return the expected money of new machines and of the work on them."""
        model = self._model
        setup = sum(
            float(model.places[key].setup) * self.machines[key] for key in sorted(self.machines)
        )
        work = sum(
            block.fits[place][1] * len(own)
            for block, place, own in self._pairs()
            if not (place in model.steps and block.fits[place][0] < 1)
        )
        steps = (self._steps(key) * float(model.places[key].step) for key in sorted(model.steps))
        return setup + work + sum(steps)

    def stops(self, block: Block, known: dict[Blocker, Stop]) -> Iterator[Stop]:
        """Yield the reason why each fitting place serves no more; `known` caches equal ones."""
        for place in block.fits:
            blocker = place, block.usage.get(place, ()), self._needs_machine(block, place)
            if blocker not in known:
                known[blocker] = Stop(place, tuple(self._exceeded(*blocker)))
            yield known[blocker]

    def _revoke_excess(self) -> None:
        """Unserve the last requests in order that exceed a limit or the capacity of a place."""
        users: defaultdict[int | str, list[tuple[int, str]]] = defaultdict(list)
        while exceeded := [*self._all_exceeded()]:
            users = users or self._users()
            served = [
                (requests[-1][0], nth, place)
                for nth, place in {user for each in exceeded for user in users[each]}
                if (requests := self.served[nth][place])
            ]
            if not served:
                return
            _, nth, place = max(served)
            waiting = self.served[nth][place].pop()
            self.unserved[nth].insert(0, waiting)
            self._count(self._model.blocks[nth], place, -1)

    def _all_exceeded(self) -> Iterator[int | str]:
        """Yield the number of each exceeded limit and each place without capacity."""
        yield from (n for n, row in enumerate(self._model.rows) if self.used[n] > row.room)
        for key, place in self._model.places.items():
            if not place.makes and self._shares[key] > place.room + EPSILON:
                yield key

    def _users(self) -> defaultdict[int | str, list[tuple[int, str]]]:
        """Return the blocks and places whose requests use each limit and each place."""
        found: defaultdict[int | str, list[tuple[int, str]]] = defaultdict(list)
        for nth, (block, at) in enumerate(zip(self._model.blocks, self.served, strict=True)):
            for place in at:
                found[place].append((nth, place))
                own = {number for number, _ in block.usage.get(place, ())}
                for number in own.union(self._model.rows_of[place]):
                    found[number].append((nth, place))
        return found

    def _serve(self, nth: int, place: str, count: int) -> None:
        """Serve the first unserved requests of a block at a place."""
        first = self.unserved[nth][:count]
        del self.unserved[nth][:count]
        self.served[nth].setdefault(place, []).extend(first)
        self._count(self._model.blocks[nth], place, len(first))

    def _fill(self, some: Sequence[int]) -> None:
        """Serve the unserved requests of some blocks that nothing stops."""
        for nth, places in self._with_capacity([nth for nth in some if self.unserved[nth]]):
            while self.unserved[nth]:
                place = self._cheapest_open(self._model.blocks[nth], places)
                if place is None:
                    break
                self._serve(nth, place, 1)

    def _with_capacity(self, some: Sequence[int]) -> Iterable[tuple[int, Iterable[str]]]:
        """Return blocks with the places that may have capacity: of many blocks, few places do."""
        model, program = self._model, self._model.program
        if model.is_exact or len(some) < _MANY_BLOCKS or not can_solve():
            return [(nth, model.blocks[nth].fits) for nth in some]
        values = program.dense(self.values())
        columns = [column for nth in some for column in model.blocks[nth].columns]
        fitting = model.that_fit(columns, values, program.slack(values))
        (blocks, places), keys = model.pairs, [*model.places]
        found: defaultdict[int, list[str]] = defaultdict(list)
        for nth, place in zip(blocks[fitting].tolist(), places[fitting].tolist(), strict=True):
            found[nth].append(keys[place])
        return found.items()

    def _cheapest_open(self, block: Block, some: Iterable[str]) -> str | None:
        """Return the open place of least cost for an additional request of a block."""
        places, ways = self._model.places, []
        for key in some:
            share, money = block.fits[key]
            place, more = places[key], self._needs_machine(block, key)
            if place.makes or self._shares[key] + share <= place.room + EPSILON:
                setup = float(place.setup) if more else 0.0
                ways.append((money + block.penalties.get(key, 0.0) + setup, key, more))
        for _, key, more in sorted(ways):
            if next(self._exceeded(key, block.usage.get(key, ()), more), None) is None:
                return key
        return None

    def _needs_machine(self, block: Block, place: str) -> bool:
        """Return whether an additional request of a block takes another machine."""
        after = self._shares[place] + block.fits[place][0]
        return self._model.places[place].makes and after > self.machines.get(place, 0) + EPSILON

    def _exceeded(self, place: str, usage: Usage, more: bool) -> Iterator[Row]:  # noqa: FBT001 - of `Blocker`
        """Yield the limits that an additional request with this usage would exceed."""
        rows = self._model.rows
        needed = dict(usage)
        if more:
            for number in self._model.rows_of[place]:
                needed[number] = needed.get(number, _ZERO) + rows[number].machines[place]
        for number in sorted(needed):
            if self.used[number] + needed[number] > rows[number].room:
                yield rows[number]

    def _count(self, block: Block, place: str, count: int) -> None:
        """Add the usage of this number of requests; subtract it if the number is negative."""
        self._shares[place] += block.fits[place][0] * count
        for number, factor in block.usage.get(place, ()):
            self.used[number] += factor * count
        if self._model.places[place].makes:
            before = self.machines.get(place, 0)
            self.machines[place] = ceil(self._shares[place] - EPSILON)
            for number in self._model.rows_of[place]:
                each = self._model.rows[number].machines[place]
                self.used[number] += each * (self.machines[place] - before)

    def _pairs(self) -> Iterator[tuple[Block, str, Sequence[Waiting]]]:
        for block, at in zip(self._model.blocks, self.served, strict=True):
            for place, requests in at.items():
                yield block, place, requests

    def _steps(self, key: str) -> int:
        """Return the least number of further steps that the shared machines are billed."""
        place, shared, machines = self._model.places[key], 0.0, self.machines.get(key, 0)
        for block, at, requests in self._pairs():
            if at == key:
                share, money = block.fits[at]
                shared += money * len(requests) if share < 1 else 0.0
                machines -= len(requests) if share >= 1 else 0
        rest = shared - float(place.unused) * machines
        return max(0, ceil(rest / float(place.step) - EPSILON))

    def _prefer_older(self) -> bool:
        """Swap unserved requests with younger served ones of the same rank and usage.

        Return whether any was swapped: the younger ones may fit elsewhere.
        """
        is_any = False
        for nth, unserved in enumerate(self.unserved):
            # If the oldest finds no partner, no later one does.
            while unserved and (
                found := self._youngest_like(self._model.blocks[nth], unserved[0])
            ):
                _, other, place = found
                waiting = unserved.pop(0)
                insort(self.unserved[other], self.served[other][place].pop())
                insort(self.served[nth].setdefault(place, []), waiting)
                is_any = True
        return is_any

    def _youngest_like(self, block: Block, waiting: Waiting) -> tuple[Waiting, int, str] | None:
        """Return the youngest served request of the same rank and usage that is younger."""
        found = [
            (requests[-1], other, place)
            for other, place, requests in self._served_like(block, block.fits)
            if requests[-1] > waiting and requests[-1][0] == waiting[0]
        ]
        return max(found, default=None)

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
            block = self._model.blocks[nth]
            existing = [key for key in block.fits if not places[key].makes]
            found = max(
                (
                    (requests[-1], other, at)
                    for other, at, requests in self._served_like(block, existing)
                    if requests[-1] > older and self._is_like(block, other, place)
                ),
                default=None,
            )
            if found is None:
                done.add((nth, place))
                continue
            younger, other, at = found
            self.served[nth][place].remove(older)
            self.served[other][at].remove(younger)
            insort(self.served[nth].setdefault(at, []), older)
            insort(self.served[other].setdefault(place, []), younger)
            heappush(new, (younger, other, place))

    def _served_like(
        self, block: Block, some: Iterable[str]
    ) -> Iterator[tuple[int, str, Sequence[Waiting]]]:
        """Yield the blocks served at some places with the same usage there as this block."""
        for place in some:
            for other, at in enumerate(self.served):
                if at.get(place) and self._is_like(block, other, place):
                    yield other, place, at[place]

    def _is_like(self, block: Block, other: int, place: str) -> bool:
        """Return whether two blocks take the same at a place."""
        like = self._model.blocks[other]
        return like.fits.get(place) == block.fits.get(place) and like.usage.get(
            place
        ) == block.usage.get(place)


def _positive(model: Model, values: Array) -> Iterator[dict[str, float]]:
    """Yield the positive values of each block by place, with the rounding error added."""
    for block in model.blocks:
        yield {
            place: values[column] + EPSILON
            for place, column in zip(block.fits, block.columns, strict=True)
            if values[column] > EPSILON
        }


def _cheapest_with_room(
    model: Model, block: Block, some: Sequence[str], room: Mapping[str, float]
) -> str | None:
    """Return the place of least cost for an additional request, with a new machine if needed."""

    def has_room(place: str) -> bool:
        return room[place] - block.fits[place][0] >= -EPSILON

    def cost(place: str) -> float:
        money = block.fits[place][1] + block.penalties.get(place, 0.0)
        return money if has_room(place) else money + float(model.places[place].setup)

    able = [place for place in some if model.places[place].makes or has_room(place)]
    return min(able, key=cost, default=None)
