"""Formulate allocation as mixed-integer programmes: one for each part that shares nothing.

So a change in one corner of a fleet never moves what is decided in another.

Groups that take the same of the same places and of every limit are one block: the programme need
not tell them apart.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import ceil, floor, inf
from operator import attrgetter
from typing import Any, NamedTuple

from fleet.planner.demand import Group, Ordered, Place, Rank, Row
from fleet.planner.programme import MISSES, Programme, can_solve
from fleet.planner.sifting import Sum

_Name = tuple[str, str]


@dataclass(frozen=True)
class Component:
    """Groups, places and limits that share anything."""

    groups: tuple[Group, ...]
    places: tuple[Place, ...]
    rows: tuple[Row, ...]


def components(
    groups: Sequence[Group], places: Mapping[str, Place], rows: Sequence[Row]
) -> Iterator[Component]:
    """Yield what shares demand or a limit that can be reached, in canonical order."""
    joined = _Joined()
    most = _join_alike(joined, groups, places)
    sizes = {group.id: len(group.requests) for group in groups}
    binding = [row for row in rows if _can_bind(row, sizes, most)]
    for number, row in enumerate(binding):
        for head in {joined.head(name) for name in _members(row, most)}:
            joined.join(("row", str(number)), head)
    parts: defaultdict[_Name, _Part] = defaultdict(_Part)
    for group in groups:
        parts[joined.head(("group", group.id))].groups.append(group)
    for key in sorted(most):
        parts[joined.head(("place", key))].places.append(places[key])
    for number, row in enumerate(binding):
        if ("row", str(number)) in joined:
            parts[joined.head(("row", str(number)))].rows.append(row)
    for part in parts.values():
        yield Component(tuple(part.groups), tuple(part.places), tuple(part.rows))


def _join_alike(
    joined: "_Joined", groups: Sequence[Group], places: Mapping[str, Place]
) -> dict[str, int]:
    """Join groups with the places that they fit, and return how many requests each could get."""
    alike: defaultdict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in groups:
        alike[tuple(group.fits)].append(group)
    most: defaultdict[str, int] = defaultdict(int)
    for keys, members in alike.items():
        first = ("group", members[0].id)
        for group in members[1:]:
            joined.join(first, ("group", group.id))
        for place in keys:
            if place in places:
                joined.join(first, ("place", place))
                most[place] += sum(len(group.requests) for group in members)
    return most


@dataclass
class _Part:
    groups: list[Group] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


def _members(row: Row, most: Mapping[str, int]) -> Iterator[_Name]:
    """Yield whom a row joins; the places of its requests are joined with their groups already."""
    groups = dict.fromkeys(group for group, place in row.requests if place in most)
    yield from (("group", group) for group in groups)
    yield from (("place", place) for place in row.machines if place in most)


def _can_bind(row: Row, sizes: Mapping[str, int], most: Mapping[str, int]) -> bool:
    """Say whether serving everybody in the costliest way could reach a limit."""
    taken = sum(
        (factor * most[place] for place, factor in row.machines.items() if place in most),
        Decimal(0),
    )
    if row.requests:
        dearest: defaultdict[str, Decimal] = defaultdict(Decimal)
        for (group, _), factor in row.requests.items():
            dearest[group] = max(dearest[group], factor)
        taken += sum((sizes.get(g, 0) * factor for g, factor in dearest.items()), Decimal(0))
    return taken > row.room


class _Joined:
    """Sets of names that belong together (union-find)."""

    def __init__(self) -> None:
        self._above: dict[_Name, _Name] = {}

    def __contains__(self, name: _Name) -> bool:
        return name in self._above

    def head(self, name: _Name) -> _Name:
        """Return the one name that stands for all that are joined with this one."""
        above = self._above.setdefault(name, name)
        while above != self._above[above]:
            self._above[above] = self._above[self._above[above]]
            above = self._above[above]
        return above

    def join(self, one: _Name, other: _Name) -> None:
        """Put two names, and all that are joined with them, together."""
        first, second = sorted((self.head(one), self.head(other)))
        self._above[second] = first


EPSILON = 1e-6
"""What floating point may be off."""
BY_NAME = 1e-5
"""How much more a later name seems to cost, relatively, so that ties are broken."""
_SCALE = 1000.0
"""What the cheapest machine costs in the programme: far above the solver's tolerances."""
EXACT = 1500
"""Up to so many pairs of group and place the search is for whole requests among all there is."""
_MANY = 100
"""Of so many blocks it is found at once who fits nowhere."""
STEPPED = 200
"""Up to so many, whole steps of time are weighed for those who share machines: it takes longer."""


Waiting = tuple[Rank, Ordered, str]
"""A request, its rank and the group that it is of."""
Takes = tuple[tuple[int, Decimal], ...]
"""Numbers of rows, and what is taken of each."""
Stopped = tuple[str, Takes, bool]
"""A place, what one request more takes of rows, and whether it needs a machine more."""
_Fits = tuple[tuple[str, float, float], ...]


class Behind(NamedTuple):
    """How many priorities the places where machines are made are behind the best one."""

    counts_first: bool = False
    """It counts before money, not only where money is equal."""
    places: tuple[tuple[str, int], ...] = ()
    """Those that are behind, by name."""


_Likeness = tuple[_Fits, frozenset[tuple[str, Takes]], Behind, Rank | None]


@dataclass
class Block:
    """Groups that the programme need not tell apart: it adds their columns of the programme."""

    rank: Rank
    requests: list[Waiting]
    """In the order of service."""
    fits: dict[str, tuple[float, float]]
    """Place to the share of a machine and the money of one request."""
    takes: Mapping[str, Takes]
    """Place to what one request takes of which row there."""
    behind: Behind
    seems: dict[str, float] = field(default_factory=dict)
    """Place to how much dearer it seems for its priority, where answers are not exact."""
    columns: Sequence[int] = ()
    row: int = 0
    """The row that holds it to its size."""

    @property
    def size(self) -> int:
        """Return how many requests it has."""
        return len(self.requests)


class Model:
    """One component as a programme, and the way back."""

    def __init__(self, component: Component, *, by_rank: bool, exact: int = EXACT) -> None:
        self.rows = component.rows
        self.rows_of: defaultdict[str, list[int]] = defaultdict(list)
        """Place to the rows that its machines take of."""
        for number, row in enumerate(self.rows):
            for place in row.machines:
                self.rows_of[place].append(number)
        self.places = {place.key: place for place in component.places}
        pairs = sum(len(group.fits) for group in component.groups)
        self.is_exact = pairs <= exact
        """The search is for whole requests among all there is."""
        # Where there are limits, not everybody may be served.
        by_rank = by_rank or (bool(self.rows) and not self.is_exact)
        self.blocks = _merge(component, by_rank=by_rank)
        self._prefers = any(block.behind.places for block in self.blocks)
        self.programme = Programme()
        self.makes = self._add_machines()
        """Place to the column of how many machines are made there."""
        self.holds: dict[int, int] = {}
        """Column of machines to the row that holds what they serve to their number."""
        self.steps = self._add_steps() if self.is_exact and pairs <= STEPPED else {}
        """Place to the column of how many more steps of time its machines are billed."""
        self._add_blocks()
        if self._prefers:
            self._add_preferences()
        self._add_rows()
        self.ranks = self._add_ranks() if by_rank else []
        """Of each rank, the first first, the row of its requests and how many these are."""

    def everybody(self) -> list[Sum]:
        """Return that every block is served whole."""
        return [(block.row, block.size) for block in self.blocks]

    @cached_property
    def every_rank(self) -> list[Rank]:
        """Return the ranks of all requests, the first served first."""
        return sorted({rank for block in self.blocks for rank, _, _ in block.requests})

    @cached_property
    def origins(self) -> tuple[Any, Any]:
        """Return of which block and which place each column is, by number: two arrays of numpy.

        -1 where it is none of a block.
        """
        import numpy as np

        count, at = len(self.programme.costs), {key: nth for nth, key in enumerate(self.places)}
        blocks, places = np.full(count, -1), np.full(count, -1)
        for nth, block in enumerate(self.blocks):
            blocks[block.columns] = nth
            places[block.columns] = [at[key] for key in block.fits]
        return blocks, places

    def able(self, columns: Any, values: Any, room: Any) -> Any:  # noqa: ANN401 - arrays of numpy
        """Return those of the columns that there is room for one more of, beside these values.

        With a machine more, where one can be made.
        """
        programme, sifted, room = self.programme, self.programme.sifted, room + EPSILON
        more = [column for column in self.holds if values[column] < programme.uppers[column]]
        room[[self.holds[column] for column in sifted.fit(more, room)]] = inf
        return sifted.fit(columns, room)

    def dearest(self) -> float:
        """Return more than any way to serve one request costs in the programme."""
        return _SCALE + 2 * sum(sorted(self.programme.costs)[-2:])

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
            size = block.size
            for key, (share, _) in block.fits.items():
                most[key] += share * size
        # Priorities count before names, where there are any.
        by_name_later = self.is_exact and self._prefers
        found = {}
        for turn, place in enumerate(made):
            by_name = BY_NAME * turn / len(made)
            cost = float(place.setup) * (1 if by_name_later else 1 + by_name) * self._scale
            # A machine that costs nothing is not made where a worker is free.
            cost = cost or BY_NAME * (1 + turn)
            # An answer in parts is not to use a part of a machine where no whole one has room.
            rows = [self.rows[number] for number in self.rows_of[place.key]]
            room = [row.room // n for row in rows if (n := row.machines[place.key]) > 0]
            upper = max(0, min([ceil(most[place.key] - EPSILON), *map(int, room)]))
            column = self.programme.column(cost, upper)
            found[place.key] = column
            if by_name_later:
                self.programme.after[column] = by_name
        return found

    def _add_preferences(self) -> None:
        """Add whose priority is behind; in a large component it is weighed against money."""
        much, little = 2 * self.dearest(), BY_NAME * _SCALE
        for block in self.blocks:
            columns = dict(zip(block.fits, block.columns, strict=True))
            first = block.behind.counts_first
            counts = self.programme.before if first else self.programme.after
            for place, turns in block.behind.places:
                seems = turns * (much if first else little)
                block.seems[place] = seems / self._scale
                if self.is_exact:
                    counts[columns[place]] = float(turns)
                else:
                    self.programme.seeming[columns[place]] = seems

    def _add_steps(self) -> dict[str, int]:
        """Add what requests that share machines cost where time is billed in whole steps."""
        shared: defaultdict[str, float] = defaultdict(float)
        for block in self.blocks:
            for key, (share, money) in block.fits.items():
                if share < 1 and self.places[key].step:
                    shared[key] += money * block.size
        return {
            key: self.programme.column(
                float(self.places[key].step) * self._scale,
                ceil(money / float(self.places[key].step) + 1),
            )
            for key, money in sorted(shared.items())
            if self.makes.get(key) is not None
        }

    def _add_blocks(self) -> None:
        at: dict[str, list[int]] = {key: [] for key in self.places}
        shares: dict[str, list[float]] = {key: [] for key in self.places}
        for block in self.blocks:
            block.columns = self.programme.columns(
                [
                    0.0 if key in self.steps and share < 1 else money * self._scale
                    for key, (share, money) in block.fits.items()
                ],
                block.size,
                whole=self.is_exact,
            )
            for column, (key, (share, _)) in zip(block.columns, block.fits.items(), strict=True):
                at[key].append(column)
                shares[key].append(share)
            ones = [1.0] * len(block.columns)
            block.row = self.programme.row(block.columns, ones, block.size)
        for key, place in self.places.items():
            if place.makes:
                columns, factors = [*at[key], self.makes[key]], [*shares[key], -1.0]
                self.holds[self.makes[key]] = self.programme.row(columns, factors, 0.0)
            else:
                self.programme.row(at[key], shares[key], place.room)
                if not self.is_exact:
                    self._add_whole(at[key], shares[key], place.room)

        for key, column in self.steps.items():
            self._pay_steps(key, column)

    def _pay_steps(self, key: str, column: int) -> None:
        """Hold the steps of a place to what its shared machines are worked on, all together.

        No way to spread work over machines takes fewer. Who has a machine alone shares nothing.
        """
        place, takes = self.places[key], {column: -float(self.places[key].step)}
        takes[self.makes[key]] = -float(place.unused)
        for block in self.blocks:
            for at, own in zip(block.fits, block.columns, strict=True):
                share, money = block.fits[at]
                if at == key:
                    takes[own] = money if share < 1 else float(place.unused)
        self.programme.row([*takes], [*takes.values()], 0.0)

    def _add_whole(self, columns: Sequence[int], shares: Sequence[float], room: float) -> None:
        """Add what holds of whole requests in a room with a part of a machine (Gomory's cut).

        A request that is larger than the part leaves as much of whole machines unused.
        """
        machines = floor(room + EPSILON)
        part = room - machines
        if part <= EPSILON:
            return
        larger = [
            (c, (share - part) / (1 - part))
            for c, share in zip(columns, shares, strict=True)
            if share > part
        ]
        self.programme.row([c for c, _ in larger], [f for _, f in larger], float(machines))

    def _add_rows(self) -> None:
        entries: list[dict[int, float]] = [
            {self.makes[p]: float(f) for p, f in row.machines.items() if p in self.makes}
            for row in self.rows
        ]
        for block in self.blocks if self.rows else ():
            for place, column in zip(block.fits, block.columns, strict=True):
                for number, factor in block.takes.get(place, ()):
                    entries[number][column] = float(factor)
        for row, own in zip(self.rows, entries, strict=True):
            # The solver may miss a sum by a millionth: never past a limit that is not whole. What
            # an answer in parts misses is seen to by who rounds it, and its limits prove a bound.
            whole = row.room == row.room.to_integral_value()
            most = float(row.room) - (MISSES if self.is_exact and not whole else 0)
            self.programme.row([*own], [*own.values()], most)

    def _add_ranks(self) -> list[Sum]:
        columns: defaultdict[Rank, list[int]] = defaultdict(list)
        sizes: Counter[Rank] = Counter()
        for block in self.blocks:
            columns[block.rank].extend(block.columns)
            sizes[block.rank] += block.size
        row = self.programme.row
        return [
            (row(columns[rank], [1.0] * len(columns[rank])), sizes[rank])
            for rank in self.every_rank
        ]

    def in_whole_requests(self, found: Sequence[float]) -> list[dict[str, int]]:
        """Return how many requests of each block go where; what was divided goes where room is."""
        room = {key: place.room for key, place in self.places.items()}
        room |= {key: round(found[column]) for key, column in self.makes.items()}
        counts: list[dict[str, int]] = []
        divided: list[tuple[Block, dict[str, int], list[str]]] = []
        for block in self.blocks:
            parts = {
                place: found[column] + EPSILON
                for place, column in zip(block.fits, block.columns, strict=True)
                if found[column] > EPSILON
            }
            at = {place: int(part) for place, part in parts.items()}
            for place, count in at.items():
                room[place] -= block.fits[place][0] * count
            left = int(sum(parts.values())) - sum(at.values())
            if left:
                places = sorted(block.fits, key=lambda p: (at.get(p, 0) - parts.get(p, 0.0), p))
                divided += [(block, at, places)] * left
            counts.append(at)
        for block, at, places in sorted(divided, key=lambda each: each[0].rank):
            cheapest = self._with_room(block, places, room)
            if cheapest is None:
                continue
            at[cheapest] = at.get(cheapest, 0) + 1
            room[cheapest] -= block.fits[cheapest][0]
            # Another machine has room for more of what was divided.
            room[cheapest] += self.places[cheapest].makes and room[cheapest] < -EPSILON
        return counts

    def _with_room(
        self, block: Block, parts: Sequence[str], room: Mapping[str, float]
    ) -> str | None:
        """Return where one request more costs least: where room is, else with another machine."""

        def has_room(place: str) -> bool:
            return room[place] - block.fits[place][0] >= -EPSILON

        def dearness(place: str) -> float:
            money = block.fits[place][1] + block.seems.get(place, 0.0)
            return money if has_room(place) else money + float(self.places[place].setup)

        able = [place for place in parts if self.places[place].makes or has_room(place)]
        return min(able, key=dearness, default=None)


def _merge(component: Component, *, by_rank: bool) -> list[Block]:
    """Put groups together that take the same of the same places and rows."""
    known = {place.key for place in component.places}
    takes = _takes(component, known)
    behind = _behind(component)
    together: defaultdict[_Likeness, list[Group]] = defaultdict(list)
    for group in component.groups:
        fits = _fits(group, known)
        own = takes[group.id].items()
        likeness = fits, frozenset(own), behind[group.id], group.rank if by_rank else None
        together[likeness].append(group)
    blocks = []
    for (fits, rows, turns, _), groups in together.items():
        requests = _in_order(groups)
        each = {place: (share, money) for place, share, money in fits}
        blocks.append(Block(requests[0][0], requests, each, dict(rows), turns))
    return sorted(blocks, key=lambda block: block.requests[0])


def _in_order(groups: Iterable[Group]) -> list[Waiting]:
    """Return all requests in the order of service, in which those of one group are already."""
    found: list[Waiting] = []
    rank_of = attrgetter("rank")
    for rank, alike in groupby(sorted(groups, key=rank_of), rank_of):
        of_rank = [*alike]
        requests = [(rank, request, group.id) for group in of_rank for request in group.requests]
        found += sorted(requests) if of_rank[1:] else requests
    return found


def _behind(component: Component) -> dict[str, Behind]:
    """Return of each group how many priorities of the component each place is behind its best.

    A worker that exists is behind none.
    """
    made = {place.key for place in component.places if place.makes}
    priorities = {
        group.id: {key: fit.priority for key, fit in group.fits.items() if key in made}
        for group in component.groups
    }
    levels = sorted({n for own in priorities.values() for n in own.values()}, reverse=True)
    if len(levels) <= 1:
        return {group.id: Behind() for group in component.groups}
    turns = {priority: nth for nth, priority in enumerate(levels)}
    found = {}
    for group in component.groups:
        own = {key: turns[n] for key, n in priorities[group.id].items()}
        best = min(own.values(), default=0)
        places = sorted((key, turn - best) for key, turn in own.items() if turn > best)
        found[group.id] = Behind(group.by_priority, tuple(places))
    return found


def _fits(group: Group, known: Collection[str]) -> _Fits:
    """Return each place that a group fits, by name, with what one of its requests takes there."""
    return tuple(
        [
            (place, fit.share, float(fit.money))
            for place, fit in sorted(group.fits.items())
            if place in known
        ]
    )


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
        """Begin with so many requests of each block at each place, one rank after the other.

        Of each who is left is served too where nothing of those before stops it: who waits would
        fit nowhere, were nobody of a later rank served.
        """
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
        for block in model.blocks:
            self.served.append({})
            self.left.append([*block.requests])
        for _, blocks in groupby(range(len(model.blocks)), lambda nth: model.blocks[nth].rank):
            due = [*blocks]
            for nth in due if counts else ():
                # Those who come first get what is there already.
                for place in sorted(counts[nth], key=lambda key: (model.places[key].makes, key)):
                    self._serve(nth, place, counts[nth][place])
            self._mend()
            self._fill(due)
        if model.is_exact:
            while self._prefer_older():
                self._fill(range(len(model.blocks)))
            self._give_older_what_exists()

    def _mend(self) -> None:
        """Take back, from the last in order, what is past a limit or has no room."""
        takers: defaultdict[int | str, list[tuple[int, str]]] = defaultdict(list)
        while past := list(self._past()):
            takers = takers or self._takers()
            served = [
                (requests[-1][0], nth, place)
                for nth, place in {taker for each in past for taker in takers[each]}
                if (requests := self.served[nth][place])
            ]
            if not served:
                return
            _, nth, place = max(served)
            waiting = self.served[nth][place].pop()
            self.left[nth].insert(0, waiting)
            self._count(self._model.blocks[nth], place, [waiting], -1)

    def _past(self) -> Iterator[int | str]:
        """Yield each limit, by number, and each place of which more is taken than there is."""
        yield from (n for n, row in enumerate(self._model.rows) if self.taken[n] > row.room)
        for key, place in self._model.places.items():
            if not place.makes and self._shares[key] > place.room + EPSILON:
                yield key

    def _takers(self) -> defaultdict[int | str, list[tuple[int, str]]]:
        """Return for each row and place the blocks and places whose requests take of it."""
        found: defaultdict[int | str, list[tuple[int, str]]] = defaultdict(list)
        for nth, (block, at) in enumerate(zip(self._model.blocks, self.served, strict=True)):
            for place in at:
                found[place].append((nth, place))
                own = {number for number, _ in block.takes.get(place, ())}
                for number in own.union(self._model.rows_of[place]):
                    found[number].append((nth, place))
        return found

    def _serve(self, nth: int, place: str, count: int) -> None:
        """Serve the first of a block who are left at a place."""
        first = self.left[nth][:count]
        del self.left[nth][:count]
        self.served[nth].setdefault(place, []).extend(first)
        self._count(self._model.blocks[nth], place, first, 1)

    def _fill(self, due: Sequence[int]) -> None:
        """Serve who is left of these blocks although nothing stops it."""
        for nth, places in self._able([nth for nth in due if self.left[nth]]):
            while self.left[nth]:
                place = self._open_place(self._model.blocks[nth], places)
                if place is None:
                    break
                self._serve(nth, place, 1)

    def _able(self, some: Sequence[int]) -> Iterable[tuple[int, Iterable[str]]]:
        """Return these blocks with their places; of many, only places that have room by now."""
        model, programme = self._model, self._model.programme
        if model.is_exact or len(some) < _MANY or not can_solve():
            return [(nth, model.blocks[nth].fits) for nth in some]
        values = programme.dense(self.values())
        columns = [column for nth in some for column in model.blocks[nth].columns]
        able = model.able(columns, values, programme.room_beside(values))
        (blocks, places), keys = model.origins, [*model.places]
        found: defaultdict[int, list[str]] = defaultdict(list)
        for nth, place in zip(blocks[able].tolist(), places[able].tolist(), strict=True):
            found[nth].append(keys[place])
        return found.items()

    def counts(self) -> list[dict[str, int]]:
        """Return how many requests of each block are served at each place."""
        return [{place: len(own) for place, own in at.items()} for at in self.served]

    def _open_place(self, block: Block, some: Iterable[str]) -> str | None:
        """Return which of some places can serve one request more of a block at the least cost."""
        places, ways = self._model.places, []
        for key in some:
            share, money = block.fits[key]
            place, more = places[key], self._needs_machine(block, key)
            if place.makes or self._shares[key] + share <= place.room + EPSILON:
                setup = float(place.setup) if more else 0.0
                ways.append((money + block.seems.get(key, 0.0) + setup, key, more))
        for _, key, more in sorted(ways):
            if next(self._stopping(key, block.takes.get(key, ()), more), None) is None:
                return key
        return None

    def _needs_machine(self, block: Block, place: str) -> bool:
        """Say whether one request more of a block takes another machine."""
        after = self._shares[place] + block.fits[place][0]
        return self._model.places[place].makes and after > self.machines.get(place, 0) + EPSILON

    def _prefer_older(self) -> bool:
        """Have who came first served in place of one of the same rank who takes just the same.

        Say whether anybody was: who is left then may fit elsewhere.
        """
        is_any = False
        for nth, left in enumerate(self.left):
            # Where one finds none, later ones find none either.
            while left and (found := self._youngest_like(self._model.blocks[nth], left[0])):
                _, other, place = found
                waiting = left.pop(0)
                insort(self.left[other], self.served[other][place].pop())
                insort(self.served[nth].setdefault(place, []), waiting)
                is_any = True
        return is_any

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

    def _give_older_what_exists(self) -> None:
        """Have who came first at a worker that exists, in place of one who takes just the same.

        A queue gives it to whoever comes first; who came later gets the new machine.
        """
        places = self._model.places
        if not any(requests and not places[at].makes for _, at, requests in self._each()):
            return
        new = [
            (each, nth, place)
            for nth, at in enumerate(self.served)
            for place, requests in at.items()
            if places[place].makes
            for each in requests
        ]
        heapify(new)
        # Where one of a block finds nobody, later ones of it find nobody either.
        done: set[tuple[int, str]] = set()
        while new:
            older, nth, place = heappop(new)
            if (nth, place) in done:
                continue
            found = self._youngest_at_existing(nth, place, older)
            if found is None:
                done.add((nth, place))
                continue
            younger, other, existing = found
            self.served[nth][place].remove(older)
            self.served[other][existing].remove(younger)
            insort(self.served[nth].setdefault(existing, []), older)
            insort(self.served[other].setdefault(place, []), younger)
            heappush(new, (younger, other, place))

    def _youngest_at_existing(
        self, nth: int, new: str, waiting: Waiting
    ) -> tuple[Waiting, int, str] | None:
        """Return the last one at a worker that exists who could as well be where another is."""
        block, blocks = self._model.blocks[nth], self._model.blocks
        found = [
            (requests[-1], other, existing)
            for other, at in enumerate(self.served)
            if blocks[other].fits.get(new) == block.fits[new]
            and blocks[other].takes.get(new) == block.takes.get(new)
            for existing, requests in at.items()
            if requests
            and requests[-1] > waiting
            and not self._model.places[existing].makes
            and blocks[other].fits[existing] == block.fits.get(existing)
            and blocks[other].takes.get(existing) == block.takes.get(existing)
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
        """Return how many of each block are served, as what its row comes to."""
        return [
            (block.row, block.size - len(left))
            for block, left in zip(self._model.blocks, self.left, strict=True)
        ]

    def sums_by_rank(self) -> list[Sum]:
        """Return how many of each rank are served, the earliest first; blocks are of one each."""
        both = zip(self._model.ranks, self.lacking(), strict=True)
        return [(row, size - less) for (row, size), less in both]

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

    def values(self) -> dict[int, float]:
        """Return it as columns of the programme; all others are 0."""
        makes = self._model.makes
        found = {makes[place]: float(count) for place, count in self.machines.items()}
        found |= {column: float(self.steps(key)) for key, column in self._model.steps.items()}
        for block, at in zip(self._model.blocks, self.served, strict=True):
            places = [*block.fits] if at else []
            found |= {
                block.columns[places.index(place)]: float(len(requests))
                for place, requests in at.items()
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

    def stops(self, block: Block, known: dict[Stopped, Stop]) -> Iterator[Stop]:
        """Yield why no place that fits can serve one request more; `known` keeps alike ones."""
        for place in block.fits:
            alike = place, block.takes.get(place, ()), self._needs_machine(block, place)
            if alike not in known:
                known[alike] = Stop(place, tuple(self._stopping(*alike)))
            yield known[alike]

    def _stopping(self, place: str, takes: Takes, more: bool) -> Iterator[Row]:  # noqa: FBT001 - of `Stopped`
        """Yield the limits that keep a place from serving one request more that takes so much."""
        rows = self._model.rows
        needed = dict(takes)
        if more:
            for number in self._model.rows_of[place]:
                needed[number] = needed.get(number, _NONE) + rows[number].machines[place]
        for number in sorted(needed):
            if self.taken[number] + needed[number] > rows[number].room:
                yield rows[number]
