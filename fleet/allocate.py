"""This module says how many machines of which pool waiting requests should get, and proves it.

It is a mixed-integer programme per component, the groups, places and limits that share anything:

    least    sum setup[p] * machines[p] + sum money[g, p] * served[g, p]
    where    sum over p of served[g, p] = requests of g, or as many as the order of ranks allows
             sum over g of share[g, p] * served[g, p] <= room[p]       for workers that exist
             sum over g of share[g, p] * served[g, p] <= machines[p]   for machines to be made
             every limit's row holds

Where not everybody can be served, ranks are served strictly in turn: no request of a later rank
takes what one of an earlier rank could have used. docs/explanation/how-a-plan-is-made.md writes
it out. Ties are broken by name.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import islice
from math import ceil

from fleet.choices import Group, Place, Rank, Row
from fleet.components import Component, components
from fleet.demand import Ordered
from fleet.programme import NODES, Programme, Solution

_EPSILON = 1e-6
_SCALE = 1000.0
"""What the cheapest machine costs in the programme: far above the solver's tolerances."""
_EXACT = 1500
"""Up to so many pairs of group and place each group is told apart, in whole requests. Beyond that
groups with the same places are averaged and only machines are whole; a request that the answer
divides goes whole to where there is room."""
_BY_NAME = 1e-5
"""How much more a later name seems to cost, relatively, so that ties are broken."""


@dataclass(frozen=True)
class Stop:
    """A place that would fit, and the limits that keep it from serving one request more."""

    place: str
    rows: tuple[Row, ...] = ()
    """Empty where the place is full of those who come first."""


@dataclass(frozen=True)
class Proof:
    """What machines for waiting requests cost, and what is proven about it, as money."""

    cost: float = 0.0
    bound: float = 0.0
    relaxed: float = 0.0
    unfinished: bool = False
    """The search for something cheaper was ended by its limit of nodes."""

    def __add__(self, other: "Proof") -> "Proof":
        """Return the proof of both together: components share nothing."""
        return Proof(
            self.cost + other.cost,
            self.bound + other.bound,
            self.relaxed + other.relaxed,
            self.unfinished or other.unfinished,
        )


@dataclass
class Allocation:
    """Who is served where, how many machines that takes, and what stops the others."""

    served: dict[str, list[tuple[Rank, Ordered]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Place to its requests, in the order of service."""
    counts: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """Group and place to how many of its requests are served there."""
    machines: dict[str, int] = field(default_factory=dict)
    unserved: dict[str, tuple[Stop, ...]] = field(default_factory=dict)
    """Request to what stops it in each place that fits; no place fits where it is empty."""
    proof: Proof = field(default_factory=Proof)


def allocate(
    groups: Iterable[Group], places: Mapping[str, Place], rows: Sequence[Row]
) -> Allocation:
    """Return who is served where; a group's places that are not in `places` are closed."""
    allocation = Allocation()
    open_groups = []
    for group in sorted(groups, key=lambda group: (group.rank, group.id)):
        if any(place in places for place in group.fits):
            open_groups.append(group)
        else:
            allocation.unserved |= dict.fromkeys((r.key for r in group.requests), ())
    for component in components(open_groups, places, rows):
        _solve(component, allocation)
    for requests in allocation.served.values():
        requests.sort()
    return allocation


def _solve(component: Component, allocation: Allocation) -> None:
    """Solve one component: everybody if possible, else rank by rank."""
    model = _Model(component, by_rank=False)
    solution = model.solve([(block.columns, block.size) for block in model.blocks])
    if solution is None:
        model = _Model(component, by_rank=True)
        solution = _in_turn(model)
    model.write(solution, allocation)


def _in_turn(model: "_Model") -> Solution | None:
    """Serve each rank all it can have once those before it have theirs, then find the cheapest."""
    ranks: defaultdict[Rank, list[int]] = defaultdict(list)
    for block in model.blocks:
        ranks[block.rank].extend(block.columns)
    parts = [ranks[rank] for rank in sorted(ranks)]
    # Parts of machines serve no fewer than whole ones: if those can do as much, it is the most.
    most = model.programme.most_in_turn(parts)
    wanted = list(zip(parts, most, strict=True))
    solution = model.solve(wanted)
    if solution is not None:
        return solution
    for turn, part in enumerate(parts):
        wanted[turn] = (part, model.most(wanted[:turn], part))
    return model.solve(wanted)


@dataclass
class _Block:
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
        return len(self.requests)


class _Model:
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

    def solve(self, wanted: Sequence[tuple[Sequence[int], int]]) -> Solution | None:
        """Return the cheapest answer in which each set of columns sums to its number."""
        return self.programme.solve([*wanted])

    def most(self, before: Sequence[tuple[Sequence[int], int]], part: Sequence[int]) -> int:
        """Return the most that a set of columns can sum to in whole machines."""
        return self.programme.most_whole(before, part)

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
                float(place.setup) * (1 + _BY_NAME * turn / len(made)) * self._scale,
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

    def write(self, solution: Solution | None, allocation: Allocation) -> None:
        """Write the answer down: who is served where, what it costs, what stops the others."""
        counts = self._in_whole_requests(solution) if solution else [{} for _ in self.blocks]
        usage = _Usage(self, counts)
        usage.mend()
        for block, at in zip(self.blocks, counts, strict=True):
            requests = iter(block.requests)
            # Those who come first get what is there already.
            for place in sorted(at, key=lambda key: (self.places[key].makes, key)):
                for rank, request, group in islice(requests, at[place]):
                    allocation.served[place].append((rank, request))
                    allocation.counts[group, place] += 1
            left = list(requests)
            if left:
                stops = tuple(usage.stops(block))
                allocation.unserved |= dict.fromkeys((r.key for _, r, _ in left), stops)
        allocation.machines |= {place: n for place, n in usage.machines.items() if n}
        allocation.proof += self._prove(solution, usage)

    def _in_whole_requests(self, solution: Solution) -> list[dict[str, int]]:
        """Return how many requests of each block go where; what was divided goes where room is."""
        room = {key: place.room for key, place in self.places.items()}
        room |= {key: round(solution.values[column]) for key, column in self._makes.items()}
        counts, divided = [], []
        for block in self.blocks:
            values = {
                place: solution.values[column] + _EPSILON
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
        self, room: Mapping[str, float], block: _Block, place: str
    ) -> tuple[bool, bool, float, str]:
        left = room[place] - block.fits[place][0]
        return (left >= -_EPSILON, self.places[place].makes, left, place)

    def _prove(self, solution: Solution | None, usage: "_Usage") -> Proof:
        cost = usage.cost()
        if solution is None:
            return Proof(cost, 0.0, 0.0, unfinished=True)
        # The names' share is taken off again: then no answer is cheaper, whatever it is called.
        bound, relaxed = (
            min(cost, value / self._scale / (1 + _BY_NAME))
            for value in (solution.bound, solution.relaxed)
        )
        if cost - bound <= 2 * _BY_NAME * cost:
            bound = cost
        return Proof(cost, bound, min(relaxed, bound), unfinished=solution.nodes >= NODES)


def _merge(component: Component, *, by_rank: bool) -> list[_Block]:
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
        blocks.append(_Block(first.rank, requests, _average(groups, places), counted))
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


class _Usage:
    """What an answer takes of places and rows, exactly."""

    def __init__(self, model: _Model, counts: list[dict[str, int]]) -> None:
        self._model = model
        self._counts = counts

    @property
    def machines(self) -> dict[str, int]:
        """Return how many machines are made in each place."""
        shares = self._shares()
        return {
            place: ceil(shares[place] - _EPSILON)
            for place in sorted(shares)
            if self._model.places[place].makes
        }

    def _shares(self) -> dict[str, float]:
        shares: defaultdict[str, float] = defaultdict(float)
        for block, at in zip(self._model.blocks, self._counts, strict=True):
            for place, count in at.items():
                shares[place] += block.fits[place][0] * count
        return shares

    def cost(self) -> float:
        """Return the money that machines and the work on them are expected to cost."""
        places = self._model.places
        setup = sum(float(places[key].setup) * count for key, count in self.machines.items())
        work = (
            block.fits[place][1] * count
            for block, at in zip(self._model.blocks, self._counts, strict=True)
            for place, count in at.items()
        )
        return setup + sum(work)

    def taken(self) -> list[Decimal]:
        """Return what is taken of each row."""
        machines = self.machines
        taken = [
            sum((f * machines.get(p, 0) for p, f in row.machines.items()), Decimal(0))
            for row in self._model.rows
        ]
        for block, at in zip(self._model.blocks, self._counts, strict=True):
            for number, place, factor in block.counted:
                taken[number] += factor * at.get(place, 0)
        return taken

    def mend(self) -> None:
        """Take back, from the last in order, what rounding took past a limit."""
        while True:
            past = {
                number
                for number, taken in enumerate(self.taken())
                if taken > self._model.rows[number].room
            }
            victim = next(self._counted_in(past), None) if past else None
            if victim is None:
                return
            at, place = victim
            at[place] -= 1

    def _counted_in(self, rows: Collection[int]) -> Iterator[tuple[dict[str, int], str]]:
        both = list(zip(self._model.blocks, self._counts, strict=True))
        for block, at in sorted(both, key=lambda pair: pair[0].rank, reverse=True):
            for place in sorted(place for place, count in at.items() if count):
                own = {number for number, counted, _ in block.counted if counted == place}
                made = {n for n in rows if place in self._model.rows[n].machines}
                if (own | made) & set(rows):
                    yield at, place

    def stops(self, block: _Block) -> Iterator[Stop]:
        """Yield why no place that fits can serve one request more of a block."""
        taken, machines, shares = self.taken(), self.machines, self._shares()
        for place in block.fits:
            if not self._model.places[place].makes:
                yield Stop(place)
                continue
            more = (
                shares.get(place, 0.0) + block.fits[place][0] > machines.get(place, 0) + _EPSILON
            )
            own = {number: factor for number, at, factor in block.counted if at == place}
            yield Stop(
                place,
                tuple(
                    row
                    for number, row in enumerate(self._model.rows)
                    if taken[number]
                    + own.get(number, Decimal(0))
                    + (row.machines.get(place, Decimal(0)) if more else Decimal(0))
                    > row.room
                ),
            )
