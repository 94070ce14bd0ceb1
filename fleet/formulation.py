"""This module writes one component of allocation as a programme, and reads the answer back.

Groups with the same places that take the same of every limit are one block: the programme need not
tell them apart.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial

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


@dataclass
class Block:
    """Groups that the programme need not tell apart."""

    rank: Rank
    requests: list[tuple[Rank, Ordered, str]]
    """With the group that each is of, in the order of service."""
    fits: dict[str, tuple[float, float]]
    """Place to the share of a machine and the money of one request, on average."""
    counted: tuple[tuple[int, str, Decimal], ...]
    """What one request takes of which row in which place."""
    columns: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Return how many requests it has."""
        return len(self.requests)


class Model:
    """One component as a programme, and the way back."""

    def __init__(self, component: Component, *, by_rank: bool) -> None:
        self.rows = component.rows
        self.places = {place.key: place for place in component.places}
        self.blocks = _merge(component, by_rank=by_rank)
        self._exact = _is_small(component)
        self.programme = Programme()
        self._makes = self._add_machines()
        self._add_blocks()
        self._add_rows()

    def everybody(self) -> list[Sum]:
        """Return that every block is served whole."""
        return [(block.columns, block.size) for block in self.blocks]

    def money(self, cost: float) -> float:
        """Return a cost of the programme as money that no answer costs less than.

        What a later name seemed to cost is taken off again.
        """
        return cost / self._scale / (1 + BY_NAME)

    def _add_machines(self) -> dict[str, int]:
        made = [place for place in self.places.values() if place.makes]
        setups = [float(place.setup) for place in made if place.setup > 0]
        self._scale = _SCALE / min(setups, default=1.0)
        most: defaultdict[str, int] = defaultdict(int)
        for block in self.blocks:
            for key in block.fits:
                most[key] += block.size
        return {
            place.key: self.programme.column(
                float(place.setup) * (1 + BY_NAME * turn / len(made)) * self._scale,
                most[place.key],
                whole=True,
            )
            for turn, place in enumerate(made)
        }

    def _add_blocks(self) -> None:
        taken: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for block in self.blocks:
            for key, (share, money) in block.fits.items():
                column = self.programme.column(money * self._scale, block.size, whole=self._exact)
                block.columns.append(column)
                taken[key].append((column, share))
            self.programme.row([(c, 1.0) for c in block.columns], least=None, most=block.size)
        for key, entries in taken.items():
            if key in self._makes:
                self.programme.row([*entries, (self._makes[key], -1.0)], least=None, most=0.0)
            else:
                self.programme.row(entries, least=None, most=self.places[key].room)

    def _add_rows(self) -> None:
        entries: list[list[tuple[int, float]]] = [
            [(self._makes[p], float(f)) for p, f in row.machines.items() if p in self._makes]
            for row in self.rows
        ]
        for block in self.blocks:
            column_at = dict(zip(block.fits, block.columns, strict=True))
            for number, place, factor in block.counted:
                entries[number].append((column_at[place], float(factor)))
        for row, own in zip(self.rows, entries, strict=True):
            # The solver may miss a sum by a millionth: never past a limit that is not whole.
            whole = row.room == row.room.to_integral_value()
            self.programme.row(own, least=None, most=float(row.room) - (0 if whole else 2e-6))

    def in_whole_requests(self, solution: Solution) -> list[dict[str, int]]:
        """Return how many requests of each block go where; what was divided goes where room is."""
        room = {key: place.room for key, place in self.places.items()}
        room |= {key: round(solution.values[column]) for key, column in self._makes.items()}
        counts, divided = [], []
        for block in self.blocks:
            values = {
                place: solution.values[column] + EPSILON
                for place, column in zip(block.fits, block.columns, strict=True)
            }
            counts.append({place: int(value) for place, value in values.items()})
            for place, count in counts[-1].items():
                room[place] -= block.fits[place][0] * count
            divided.append(round(sum(values.values())) - sum(counts[-1].values()))
        for block, at, left in sorted(
            zip(self.blocks, counts, divided, strict=True), key=lambda each: each[0].rank
        ):
            for _ in range(left):
                place = max(block.fits, key=partial(self._likes, room, block))
                at[place] += 1
                room[place] -= block.fits[place][0]
        return counts

    def _likes(
        self, room: Mapping[str, float], block: Block, place: str
    ) -> tuple[bool, bool, float, str]:
        left = room[place] - block.fits[place][0]
        return (left >= -EPSILON, self.places[place].makes, left, place)


def _merge(component: Component, *, by_rank: bool) -> list[Block]:
    """Put groups together that have the same places and take the same of every row."""
    takes: defaultdict[str, list[tuple[int, str, Decimal]]] = defaultdict(list)
    known = {place.key for place in component.places}
    for number, row in enumerate(component.rows):
        for (name, place), factor in row.requests.items():
            if place in known:
                takes[name].append((number, place, factor))
    exact = _is_small(component)
    together: defaultdict[object, list[Group]] = defaultdict(list)
    for group in component.groups:
        counted = tuple(sorted(t for t in takes[group.id] if t[1] in group.fits))
        fits = tuple(
            (place, (fit.share, fit.money) if exact else None)
            for place, fit in sorted(group.fits.items())
            if place in known
        )
        together[fits, counted, group.rank if by_rank else None].append(group)
    blocks = []
    for groups in together.values():
        first = groups[0]
        requests = sorted((g.rank, r, g.id) for g in groups for r in g.requests)
        counted = tuple(sorted(t for t in takes[first.id] if t[1] in first.fits))
        places = sorted(place for place in first.fits if place in known)
        blocks.append(Block(first.rank, requests, _average(groups, places), counted))
    return blocks


def _is_small(component: Component) -> bool:
    return sum(len(group.fits) for group in component.groups) <= _EXACT


def _average(groups: Sequence[Group], places: Sequence[str]) -> dict[str, tuple[float, float]]:
    size = sum(len(group.requests) for group in groups)
    found = {}
    for place in places:
        fits = [(group.fits[place], len(group.requests)) for group in groups]
        share = sum(fit.share * count for fit, count in fits) / size
        money = sum(float(fit.money) * count for fit, count in fits) / size
        found[place] = (share, money)
    return found
