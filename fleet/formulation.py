"""This module writes one component of allocation as a programme, and reads the answer back.

Groups with the same places that take the same of every limit are one block: the programme need not
tell them apart.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil
from operator import mul

from fleet.choices import Group, Rank
from fleet.components import Component
from fleet.demand import Ordered
from fleet.programme import Programme, Solution, Sum

EPSILON = 1e-6
"""What floating point may be off."""
BY_NAME = 1e-5
"""How much more a later name seems to cost, relatively, so that ties are broken."""
_SCALE = 1000.0
"""What the cheapest machine costs in the programme: far above the solver's tolerances."""
_EXACT = 1500
"""Up to so many pairs of group and place each group is told apart, in whole requests. Beyond that
groups with the same places are averaged and only machines are whole; a request that the answer
divides goes whole to where there is room."""


Waiting = tuple[Rank, Ordered, str]
"""A request, its rank and the group that it is of."""
Takes = tuple[tuple[int, Decimal], ...]
"""Numbers of rows, and what is taken of each."""


@dataclass
class Block:
    """Groups that the programme need not tell apart."""

    rank: Rank
    requests: list[Waiting]
    """In the order of service."""
    fits: dict[str, tuple[float, float]]
    """Place to the share of a machine and the money of one request, on average."""
    takes: Mapping[str, Mapping[str, Takes]]
    """Group and place to what one of its requests takes of which row there."""
    counted: Mapping[tuple[int, str], float]
    """Row and place to what one request takes of it there, on average."""
    columns: list[int] = field(default_factory=list)
    row: int = 0
    """The row that holds it to its size."""

    @property
    def size(self) -> int:
        """Return how many requests it has."""
        return len(self.requests)


class Model:
    """One component as a programme, and the way back."""

    def __init__(self, component: Component, *, by_rank: bool) -> None:
        self.rows = component.rows
        self.places = {place.key: place for place in component.places}
        self.is_exact = sum(len(group.fits) for group in component.groups) <= _EXACT
        """Every group is told apart, in whole requests."""
        self.blocks = _merge(component, by_rank=by_rank, exact=self.is_exact)
        self.programme = Programme()
        self.makes = self._add_machines()
        """Place to the column of how many machines are made there."""
        self._add_blocks()
        self._add_rows()

    def everybody(self) -> list[Sum]:
        """Return that every block is served whole."""
        return [(block.columns, block.size) for block in self.blocks]

    def ranks(self) -> list[list[int]]:
        """Return the columns of each rank, the first served first; blocks are of one rank each."""
        columns: defaultdict[Rank, list[int]] = defaultdict(list)
        for block in self.blocks:
            columns[block.rank].extend(block.columns)
        return [columns[rank] for rank in sorted(columns)]

    def sizes_by_rank(self) -> list[dict[int, int]]:
        """Return for each rank, the first served first, how many requests of it are in which row.

        The rows are those that hold a block to its size.
        """
        sizes: defaultdict[Rank, Counter[int]] = defaultdict(Counter)
        for block in self.blocks:
            for rank, _, _ in block.requests:
                sizes[rank][block.row] += 1
        return [sizes[rank] for rank in sorted(sizes)]

    def add_lacks(self, most: Mapping[int, int]) -> None:
        """Have each block served so many times; what it lacks costs more than any way to serve."""
        price = 2 * sum(sorted(self.programme.costs)[-2:])
        for block in self.blocks:
            served = most[block.row]
            lack = self.programme.column(price, served, whole=False)
            both = [*((column, 1.0) for column in block.columns), (lack, 1.0)]
            self.programme.row(both, least=served, most=served)

    def money(self, cost: float) -> float:
        """Return a cost of the programme as money that no answer costs less than.

        What a later name seemed to cost is taken off again.
        """
        return cost / self._scale / (1 + BY_NAME)

    def _add_machines(self) -> dict[str, int]:
        made = [place for place in self.places.values() if place.makes]
        setups = [float(place.setup) for place in made if place.setup > 0]
        self._scale = _SCALE / min(setups, default=1.0)
        most: defaultdict[str, float] = defaultdict(float)
        for block in self.blocks:
            for key, (share, _) in block.fits.items():
                most[key] += share * block.size
        return {
            place.key: self.programme.column(
                float(place.setup) * (1 + BY_NAME * turn / len(made)) * self._scale,
                ceil(most[place.key] - EPSILON),
                whole=True,
            )
            for turn, place in enumerate(made)
        }

    def _add_blocks(self) -> None:
        taken: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for block in self.blocks:
            for key, (share, money) in block.fits.items():
                column = self.programme.column(
                    money * self._scale, block.size, whole=self.is_exact
                )
                block.columns.append(column)
                taken[key].append((column, share))
            entries = [(column, 1.0) for column in block.columns]
            block.row = self.programme.row(entries, least=None, most=block.size)
        for key, entries in taken.items():
            if key in self.makes:
                self.programme.row([*entries, (self.makes[key], -1.0)], least=None, most=0.0)
            else:
                self.programme.row(entries, least=None, most=self.places[key].room)

    def _add_rows(self) -> None:
        entries: list[list[tuple[int, float]]] = [
            [(self.makes[p], float(f)) for p, f in row.machines.items() if p in self.makes]
            for row in self.rows
        ]
        for block in self.blocks:
            column_at = dict(zip(block.fits, block.columns, strict=True))
            for (number, place), factor in block.counted.items():
                entries[number].append((column_at[place], factor))
        for row, own in zip(self.rows, entries, strict=True):
            # The solver may miss a sum by a millionth: never past a limit that is not whole.
            whole = row.room == row.room.to_integral_value()
            self.programme.row(own, least=None, most=float(row.room) - (0 if whole else 2e-6))

    def in_whole_requests(self, solution: Solution) -> list[dict[str, int]]:
        """Return how many requests of each block go where; what was divided goes where room is."""
        room = {key: place.room for key, place in self.places.items()}
        room |= {key: round(solution.values[column]) for key, column in self.makes.items()}
        counts: list[dict[str, int]] = []
        divided: list[tuple[Block, dict[str, int], list[str]]] = []
        for block in self.blocks:
            values = {
                place: solution.values[column] + EPSILON
                for place, column in zip(block.fits, block.columns, strict=True)
            }
            at = {place: int(value) for place, value in values.items()}
            for place, count in at.items():
                room[place] -= block.fits[place][0] * count
            left = int(sum(values.values())) - sum(at.values())
            parts = sorted(values, key=lambda place: (at[place] - values[place], place))
            divided += [(block, at, parts)] * left
            counts.append(at)
        for block, at, parts in sorted(divided, key=lambda each: each[0].rank):
            place = self._with_room(block, parts, room)
            at[place] += 1
            room[place] -= block.fits[place][0]
            # Another machine has room for more of what was divided.
            room[place] += self.places[place].makes and room[place] < -EPSILON
        return counts

    def _with_room(self, block: Block, parts: Sequence[str], room: Mapping[str, float]) -> str:
        """Return where one request more costs least: where room is, else with another machine."""

        def dearness(place: str) -> tuple[bool, float]:
            share, money = block.fits[place]
            if room[place] - share >= -EPSILON:
                return False, money
            if not self.places[place].makes:
                return True, 0.0
            return False, money + float(self.places[place].setup)

        return min(parts, key=dearness)


def _merge(component: Component, *, by_rank: bool, exact: bool) -> list[Block]:
    """Put groups together that have the same places and count to the same rows."""
    known = {place.key for place in component.places}
    takes = _takes(component, known)
    together: defaultdict[object, list[Group]] = defaultdict(list)
    for group in component.groups:
        own = takes[group.id]
        likeness: object
        if exact:
            likeness = tuple(
                (place, fit.share, fit.money, own.get(place))
                for place, fit in sorted(group.fits.items())
                if place in known
            )
        else:
            rows = ((place, tuple(number for number, _ in own[place])) for place in sorted(own))
            likeness = frozenset(group.fits), tuple(rows)
        together[likeness, group.rank if by_rank else None].append(group)
    blocks = []
    for groups in together.values():
        requests = sorted([(g.rank, r, g.id) for g in groups for r in g.requests])
        places = sorted(place for place in groups[0].fits if place in known)
        own_takes = {group.id: takes[group.id] for group in groups}
        fits, counted = _average(groups, places, own_takes)
        blocks.append(Block(groups[0].rank, requests, fits, own_takes, counted))
    return sorted(blocks, key=lambda block: block.requests[0])


def _takes(component: Component, known: Collection[str]) -> dict[str, dict[str, Takes]]:
    """Return for each group and place what one of its requests takes of which row there."""
    found: defaultdict[str, defaultdict[str, list[tuple[int, Decimal]]]]
    found = defaultdict(lambda: defaultdict(list))
    for number, row in enumerate(component.rows):
        for (group, place), factor in row.requests.items():
            if place in known:
                found[group][place].append((number, factor))
    return {
        group.id: {place: tuple(rows) for place, rows in found[group.id].items()}
        for group in component.groups
    }


def _average(
    groups: Sequence[Group], places: Sequence[str], takes: Mapping[str, Mapping[str, Takes]]
) -> tuple[dict[str, tuple[float, float]], dict[tuple[int, str], float]]:
    """Return what one request takes of places and rows, on average over its groups."""
    sizes = [len(group.requests) for group in groups]
    size = sum(sizes)
    fits = {}
    for place in places:
        each = [group.fits[place] for group in groups]
        share = sum(map(mul, [fit.share for fit in each], sizes)) / size
        money = sum(map(mul, [float(fit.money) for fit in each], sizes)) / size
        fits[place] = (share, money)
    counted: defaultdict[tuple[int, str], float] = defaultdict(float)
    for group in groups:
        for place, rows in takes[group.id].items():
            if place in fits:
                for number, factor in rows:
                    counted[number, place] += float(factor) * len(group.requests) / size
    return fits, counted
