"""Formulate allocation as mixed-integer programs, one for each component of the fleet.

Components share no demand and no limit, so that a change in one corner of a fleet never moves
what is decided in another. `docs/explanation/allocation.md` writes the program out.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import groupby
from math import ceil, floor, inf
from operator import attrgetter
from typing import NamedTuple

from fleet.planner.demand import Group, Ordered, Place, Rank, Row
from fleet.planner.solver import ROW_MARGIN, Array, Program, RowSum

EPSILON = 1e-6
"""Rounding error of shares and counts."""
TIE_BREAK = 1e-5
"""Relative extra cost of the last place by name, so that ties are broken."""
EXACT_PAIRS = 1500
"""Maximum pairs of group and place of an exact search: measured under half a second."""
_STEP_PAIRS = 200
"""Maximum pairs for which billed steps of shared machines are variables: they cost much time."""
_MIN_SETUP_COST = 1000.0
"""Scaled cost of the cheapest machine: far above the solver's tolerances."""

Waiting = tuple[Rank, Ordered, str]
"""A request, its rank and its group."""
Usage = tuple[tuple[int, Decimal], ...]
"""Numbers of limits, and the amount that one request takes of each."""
_Node = tuple[str, str]
_Fits = tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Component:
    """Groups, places and limits that share anything."""

    groups: tuple[Group, ...]
    places: tuple[Place, ...]
    rows: tuple[Row, ...]


def components(
    groups: Sequence[Group], places: Mapping[str, Place], rows: Sequence[Row]
) -> Iterator[Component]:
    """Yield the components, in canonical order; a limit that cannot bind joins nothing."""
    joined = _UnionFind()
    demand = _join_demand(joined, groups, places)
    sizes = {group.id: len(group.requests) for group in groups}
    binding = [row for row in rows if _can_bind(row, sizes, demand)]
    for number, row in enumerate(binding):
        members_of = dict.fromkeys(("group", g) for g, place in row.requests if place in demand)
        members_of |= dict.fromkeys(("place", place) for place in row.machines if place in demand)
        for root in {joined.root(node) for node in members_of}:
            joined.join(("row", str(number)), root)
    parts: defaultdict[_Node, tuple[list[Group], list[Place], list[Row]]]
    parts = defaultdict(lambda: ([], [], []))
    for group in groups:
        parts[joined.root(("group", group.id))][0].append(group)
    for key in sorted(demand):
        parts[joined.root(("place", key))][1].append(places[key])
    for number, row in enumerate(binding):
        if ("row", str(number)) in joined:
            parts[joined.root(("row", str(number)))][2].append(row)
    for part in parts.values():
        yield Component(tuple(part[0]), tuple(part[1]), tuple(part[2]))


def _join_demand(
    joined: "_UnionFind", groups: Sequence[Group], places: Mapping[str, Place]
) -> dict[str, int]:
    """Join groups with the places that they fit; return the requests that fit each place."""
    fitting: defaultdict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in groups:
        fitting[tuple(group.fits)].append(group)
    demand: defaultdict[str, int] = defaultdict(int)
    for keys, members in fitting.items():
        first, size = ("group", members[0].id), sum(len(group.requests) for group in members)
        for group in members[1:]:
            joined.join(first, ("group", group.id))
        for place in keys:
            if place in places:
                joined.join(first, ("place", place))
                demand[place] += size
    return demand


def _can_bind(row: Row, sizes: Mapping[str, int], demand: Mapping[str, int]) -> bool:
    """Return whether serving all requests in the most expensive way could reach a limit."""
    used = sum((n * demand[place] for place, n in row.machines.items() if place in demand), _ZERO)
    most: defaultdict[str, Decimal] = defaultdict(Decimal)
    for (group, _), factor in row.requests.items():
        most[group] = max(most[group], factor)
    used += sum((sizes.get(group, 0) * factor for group, factor in most.items()), _ZERO)
    return used > row.room


_ZERO = Decimal(0)


class _UnionFind:
    """Sets of names (R. Tarjan, Journal of the ACM 22, 1975)."""

    def __init__(self) -> None:
        self._parent: dict[_Node, _Node] = {}

    def __contains__(self, node: _Node) -> bool:
        return node in self._parent

    def root(self, node: _Node) -> _Node:
        parent = self._parent.setdefault(node, node)
        while parent != self._parent[parent]:
            self._parent[parent] = self._parent[self._parent[parent]]
            parent = self._parent[parent]
        return parent

    def join(self, one: _Node, other: _Node) -> None:
        first, second = sorted((self.root(one), self.root(other)))
        self._parent[second] = first


class PriorityGaps(NamedTuple):
    """How many priorities each place of new machines is behind a group's best one."""

    before_money: bool = False
    """The gaps count before money, not only where costs are equal."""
    places: tuple[tuple[str, int], ...] = ()
    """Places with a gap, by name."""


@dataclass
class Block:
    """Groups that take the same of the same places and limits, as columns of the program."""

    rank: Rank
    requests: list[Waiting]
    """In the order of service."""
    fits: dict[str, tuple[float, float]]
    """Place to the share of a machine and the money of one request."""
    usage: Mapping[str, Usage]
    """Place to the limits that one request there counts to."""
    gaps: PriorityGaps
    penalties: dict[str, float] = field(default_factory=dict)
    """Place to the penalty of its priority gap, as money, if the search is not exact."""
    columns: range = range(0)
    row: int = 0
    """The row that bounds the block by its size."""

    @property
    def size(self) -> int:
        """Return the number of requests."""
        return len(self.requests)


_Kind = tuple[_Fits, frozenset[tuple[str, Usage]], PriorityGaps, Rank | None]


class Model:
    """A component as a program, and the way back from its columns."""

    def __init__(self, component: Component, *, by_rank: bool, exact: int = EXACT_PAIRS) -> None:
        self.rows = component.rows
        self.rows_of: defaultdict[str, list[int]] = defaultdict(list)
        """Place to the limits that its machines count to."""
        for number, row in enumerate(self.rows):
            for place in row.machines:
                self.rows_of[place].append(number)
        self.places = {place.key: place for place in component.places}
        pairs = sum(len(group.fits) for group in component.groups)
        self.is_exact = pairs <= exact
        # Limits may leave requests unserved: then each rank has its own blocks.
        by_rank = by_rank or (bool(self.rows) and not self.is_exact)
        self.blocks = _merge(component, by_rank=by_rank)
        self._has_gaps = any(block.gaps.places for block in self.blocks)
        self.program = Program()
        self.machines = self._add_machines()
        """Place to the column of its number of new machines."""
        self.capacity_rows: dict[int, int] = {}
        """Column of new machines to the row that bounds the requests served there."""
        self.steps = self._add_steps() if self.is_exact and pairs <= _STEP_PAIRS else {}
        """Place to the column of the further steps of time that its machines are billed."""
        self._add_blocks()
        if self._has_gaps:
            self._add_priority_gaps()
        self._add_limits()
        self.ranks = self._add_ranks() if by_rank else []
        """The row of each rank's requests and their number, the earliest rank first."""

    def all_served(self) -> list[RowSum]:
        """Return the sums of block rows if every request is served."""
        return [(block.row, block.size) for block in self.blocks]

    @cached_property
    def every_rank(self) -> list[Rank]:
        """Return the ranks of all requests, the earliest first."""
        return sorted({rank for block in self.blocks for rank, _, _ in block.requests})

    @cached_property
    def pairs(self) -> tuple[Array, Array]:
        """Return the number of the block and of the place of each column; -1 for all others."""
        import numpy as np

        number = {key: nth for nth, key in enumerate(self.places)}
        blocks, places = (np.full(len(self.program.costs), -1) for _ in range(2))
        for nth, block in enumerate(self.blocks):
            blocks[block.columns] = nth
            places[block.columns] = [number[key] for key in block.fits]
        return blocks, places

    def that_fit(self, columns: Array, values: Array, slack: Array) -> Array:
        """Return the columns that can be one larger, with a new machine if needed."""
        program, slack = self.program, slack + EPSILON
        more = [column for column in self.capacity_rows if values[column] < program.uppers[column]]
        slack[[self.capacity_rows[n] for n in program.matrix.that_fit(more, slack)]] = inf
        return program.matrix.that_fit(columns, slack)

    def max_cost(self) -> float:
        """Return a scaled cost above that of any way to serve one request."""
        return _MIN_SETUP_COST + 2 * sum(sorted(self.program.costs)[-2:])

    def money(self, cost: float) -> float:
        """Return the money of a scaled cost, less what tie breaks may have added."""
        return cost / self._scale / (1 + TIE_BREAK)

    def _add_machines(self) -> dict[str, int]:
        made = [place for place in self.places.values() if place.makes]
        setups = [float(place.setup) for place in made if place.setup > 0]
        self._scale = _MIN_SETUP_COST / min(setups, default=1.0)
        shares: defaultdict[str, float] = defaultdict(float)
        for block in self.blocks:
            size = block.size
            for key, (share, _) in block.fits.items():
                shares[key] += share * size
        # Priorities count before names, where there are any.
        name_last = self.is_exact and self._has_gaps
        found = {}
        for turn, place in enumerate(made):
            by_name = TIE_BREAK * turn / len(made)
            cost = float(place.setup) * (1 if name_last else 1 + by_name) * self._scale
            # A machine that costs nothing is not made while a worker is free.
            cost = cost or TIE_BREAK * (1 + turn)
            # Else the relaxation would use a part of a machine where a limit allows no whole one.
            rows = [self.rows[number] for number in self.rows_of[place.key]]
            limits = [int(row.room // n) for row in rows if (n := row.machines[place.key]) > 0]
            column = self.program.add_column(
                cost, max(0, min([ceil(shares[place.key] - EPSILON), *limits]))
            )
            found[place.key] = column
            if name_last:
                self.program.last_costs[column] = by_name
        return found

    def _add_priority_gaps(self) -> None:
        much, little = 2 * self.max_cost(), TIE_BREAK * _MIN_SETUP_COST
        for block in self.blocks:
            columns = dict(zip(block.fits, block.columns, strict=True))
            first = block.gaps.before_money
            for place, gap in block.gaps.places:
                penalty = gap * (much if first else little)
                block.penalties[place] = penalty / self._scale
                if not self.is_exact:
                    self.program.penalties[columns[place]] = penalty
                elif first:
                    self.program.first_costs[columns[place]] = float(gap)
                else:
                    self.program.last_costs[columns[place]] = float(gap)

    def _add_steps(self) -> dict[str, int]:
        """Add the steps of time that requests sharing machines are billed as a whole."""
        shared: defaultdict[str, float] = defaultdict(float)
        for block in self.blocks:
            for key, (share, money) in block.fits.items():
                if share < 1 and self.places[key].step and key in self.machines:
                    shared[key] += money * block.size
        found = {}
        for key, money in sorted(shared.items()):
            step = float(self.places[key].step)
            found[key] = self.program.add_column(step * self._scale, ceil(money / step + 1))
        return found

    def _add_blocks(self) -> None:
        at: dict[str, list[int]] = {key: [] for key in self.places}
        shares: dict[str, list[float]] = {key: [] for key in self.places}
        for block in self.blocks:
            costs = [
                0.0 if key in self.steps and share < 1 else money * self._scale
                for key, (share, money) in block.fits.items()
            ]
            block.columns = self.program.add_block(costs, block.size)
            for column, (key, (share, _)) in zip(block.columns, block.fits.items(), strict=True):
                at[key].append(column)
                shares[key].append(share)
            block.row = self.program.add_row(block.columns, [1.0] * len(costs), block.size)
        for key, place in self.places.items():
            if place.makes:
                columns, factors = [*at[key], self.machines[key]], [*shares[key], -1.0]
                self.capacity_rows[self.machines[key]] = self.program.add_row(columns, factors, 0)
            else:
                self.program.add_row(at[key], shares[key], place.room)
                if not self.is_exact:
                    self._add_part_of_machine(at[key], shares[key], place.room)
        for key, column in self.steps.items():
            self._add_billed_steps(key, column)

    def _add_billed_steps(self, key: str, column: int) -> None:
        """Bound the work of shared machines of a place by the time paid in setup and steps."""
        place, factors = self.places[key], {column: -float(self.places[key].step)}
        factors[self.machines[key]] = -float(place.unused)
        for block in self.blocks:
            if key in block.fits:
                share, money = block.fits[key]
                own = block.columns[[*block.fits].index(key)]
                factors[own] = money if share < 1 else float(place.unused)
        self.program.add_row([*factors], [*factors.values()], 0.0)

    def _add_part_of_machine(
        self, columns: Sequence[int], shares: Sequence[float], room: float
    ) -> None:
        """Add Gomory's cut for a place with a part of a machine: larger requests cannot use it."""
        machines = floor(room + EPSILON)
        part = room - machines
        if part > EPSILON:
            larger = [n for n, share in enumerate(shares) if share > part]
            factors = [(shares[n] - part) / (1 - part) for n in larger]
            self.program.add_row([columns[n] for n in larger], factors, float(machines))

    def _add_limits(self) -> None:
        entries: list[dict[int, float]] = [
            {self.machines[p]: float(n) for p, n in row.machines.items() if p in self.machines}
            for row in self.rows
        ]
        for block in self.blocks if self.rows else ():
            for place, column in zip(block.fits, block.columns, strict=True):
                for number, factor in block.usage.get(place, ()):
                    entries[number][column] = float(factor)
        for row, own in zip(self.rows, entries, strict=True):
            # An exact solution is taken as it is; any other one is checked when it is rounded.
            is_integer = row.room == row.room.to_integral_value()
            margin = ROW_MARGIN if self.is_exact and not is_integer else 0
            self.program.add_row([*own], [*own.values()], float(row.room) - margin)

    def _add_ranks(self) -> list[RowSum]:
        columns: defaultdict[Rank, list[int]] = defaultdict(list)
        sizes: Counter[Rank] = Counter()
        for block in self.blocks:
            columns[block.rank] += block.columns
            sizes[block.rank] += block.size
        add = self.program.add_row
        return [(add(own := columns[n], [1.0] * len(own)), sizes[n]) for n in self.every_rank]


def _merge(component: Component, *, by_rank: bool) -> list[Block]:
    """Merge groups that take the same of the same places and limits."""
    known = {place.key for place in component.places}
    usage, gaps = _usage(component, known), _priority_gaps(component)
    merged: defaultdict[
        tuple[_Fits, frozenset[tuple[str, Usage]], PriorityGaps, Rank | None], list[Group]
    ]
    merged = defaultdict(list)
    for group in component.groups:
        fits: _Fits = tuple(
            [
                (p, fit.share, float(fit.money))
                for p, fit in sorted(group.fits.items())
                if p in known
            ]
        )
        own = frozenset(usage[group.id].items())
        merged[fits, own, gaps[group.id], group.rank if by_rank else None].append(group)
    blocks = []
    for (fits, own, own_gaps, _), groups in merged.items():
        requests = _in_order(groups)
        each = {place: (share, money) for place, share, money in fits}
        blocks.append(Block(requests[0][0], requests, each, dict(own), own_gaps))
    return sorted(blocks, key=lambda block: block.requests[0])


def _in_order(groups: Iterable[Group]) -> list[Waiting]:
    """Return all requests in the order of service; those of one group are in it already."""
    found: list[Waiting] = []
    rank_of = attrgetter("rank")
    for rank, equal in groupby(sorted(groups, key=rank_of), rank_of):
        of_rank = [*equal]
        requests = [(rank, request, group.id) for group in of_rank for request in group.requests]
        found += sorted(requests) if of_rank[1:] else requests
    return found


def _priority_gaps(component: Component) -> dict[str, PriorityGaps]:
    """Return the gaps of each group; an existing worker has no gap."""
    made = {place.key for place in component.places if place.makes}
    priorities = {
        group.id: {key: fit.priority for key, fit in group.fits.items() if key in made}
        for group in component.groups
    }
    levels = sorted({n for own in priorities.values() for n in own.values()}, reverse=True)
    if len(levels) <= 1:
        return {group.id: PriorityGaps() for group in component.groups}
    level_of = {priority: nth for nth, priority in enumerate(levels)}
    found = {}
    for group in component.groups:
        own = {key: level_of[n] for key, n in priorities[group.id].items()}
        best = min(own.values(), default=0)
        places = sorted((key, level - best) for key, level in own.items() if level > best)
        found[group.id] = PriorityGaps(group.by_priority, tuple(places))
    return found


def _usage(component: Component, known: Collection[str]) -> dict[str, dict[str, Usage]]:
    """Return the limits that one request of each group counts to at each place."""
    found: defaultdict[str, defaultdict[str, list[tuple[int, Decimal]]]]
    found = defaultdict(lambda: defaultdict(list))
    for number, row in enumerate(component.rows):
        for (group, place), factor in row.requests.items():
            if place in known:
                found[group][place].append((number, factor))
    return {
        group.id: {place: tuple(own) for place, own in found[group.id].items()}
        for group in component.groups
    }
