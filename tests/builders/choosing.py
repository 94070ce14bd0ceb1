"""Make places, groups and limits for tests of allocation, and solve them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from math import ceil
from random import Random

from fleet.planner.allocation import Allocation, allocate
from fleet.planner.demand import Fit, LimitRow, Ordered, Place, Rank, RequestGroup
from fleet.planner.formulation import EXACT_PAIRS

_ROUNDING = 1e-6
CHEAP, DEAR, FREE = "cheap/m/on-demand", "dear/m/on-demand", "cheap"


def a_place(key: str, setup: str = "1", **overrides: object) -> Place:
    values: dict[str, object] = {"pool": key.partition("/")[0], "makes": True}
    return Place(key, **(values | {"setup": Decimal(setup)} | overrides))  # type: ignore[arg-type]  # any field


def free_workers(key: str, room: float) -> Place:
    return Place(key, key, makes=False, room=room)


def a_group(
    name: str, count: int, *places: str, share: float = 1.0, rank: int = 0
) -> RequestGroup:
    requests = tuple(
        Ordered(order=(0, 0, "q", nth, name, nth), key=f"{name}{nth}", seconds=600)
        for nth in range(1, count + 1)
    )
    return RequestGroup(name, (rank,), requests, {place: Fit(share) for place in places})


def a_limit(room: int, *places: str, key: str = "max") -> LimitRow:
    return LimitRow(
        ("pools", "x", key), f"at {key}", Decimal(room), dict.fromkeys(places, Decimal(1))
    )


def solved(places: list[Place], groups: list[RequestGroup], *rows: LimitRow) -> Allocation:
    return allocate(groups, {place.key: place for place in places}, rows)


def served(allocation: Allocation) -> Mapping[str, list[str]]:
    return {
        place: [request.key for _, request in requests]
        for place, requests in allocation.served.items()
        if requests
    }


@dataclass(frozen=True)
class Problem:
    """Groups, places and limits, and how they are solved."""

    groups: tuple[RequestGroup, ...]
    places: tuple[Place, ...]
    rows: tuple[LimitRow, ...]

    def solved(self, exact: int = EXACT_PAIRS, *, solve: bool = True) -> Allocation:
        places = {place.key: place for place in self.places}
        return allocate(self.groups, places, self.rows, exact=exact, solve=solve)

    def lacking(self, allocation: Allocation) -> dict[Rank, int]:
        """Return how many of each rank are served nowhere, the earliest first."""
        lack = Counter(
            group.rank
            for group in self.groups
            for request in group.requests
            if request.key in allocation.unserved
        )
        return {rank: lack[rank] for rank in sorted({group.rank for group in self.groups})}


def lost(
    groups: Iterable[RequestGroup],
    places: Mapping[str, Place],
    rows: Sequence[LimitRow],
    found: Allocation,
) -> int:
    """Return how many requests wait that would fit if nobody of a later rank were served."""
    taken = _Taken(places, rows)
    count = 0
    for _, of_rank in groupby(sorted(groups, key=lambda g: g.rank), key=lambda g: g.rank):
        own = [*of_rank]
        for group in own:
            for place in group.fits.keys() & places.keys():
                taken.add(group, place, found.counts.get((group.id, place), 0))
        for group in own:
            waiting = sum(request.key in found.unserved for request in group.requests)
            if waiting and any(taken.has_room(group, place) for place in group.fits):
                count += waiting
    return count


class _Taken:
    """What those who are served take of places and limits."""

    def __init__(self, places: Mapping[str, Place], rows: Sequence[LimitRow]) -> None:
        self._places, self._rows = places, rows
        self._shares: defaultdict[str, float] = defaultdict(float)
        self._taken = [Decimal(0) for _ in rows]
        self._of: defaultdict[object, list[tuple[int, Decimal]]] = defaultdict(list)
        for number, row in enumerate(rows):
            for at, factor in (*row.machines.items(), *row.requests.items()):
                self._of[at].append((number, factor))

    def _more(
        self, group: RequestGroup, place: str, count: int
    ) -> tuple[float, dict[int, Decimal]]:
        """Return the share of a place then, and what more of each limit so many would take."""
        before = self._shares[place]
        after = before + count * group.fits[place].share
        more: defaultdict[int, Decimal] = defaultdict(Decimal)
        for number, factor in self._of[group.id, place]:
            more[number] += count * factor
        if self._places[place].makes:
            machines = ceil(after - _ROUNDING) - ceil(before - _ROUNDING)
            for number, factor in self._of[place]:
                more[number] += machines * factor
        return after, more

    def add(self, group: RequestGroup, place: str, count: int) -> None:
        self._shares[place], more = self._more(group, place, count)
        for number, amount in more.items():
            self._taken[number] += amount

    def has_room(self, group: RequestGroup, place: str) -> bool:
        if place not in self._places:
            return False
        share, more = self._more(group, place, 1)
        if not self._places[place].makes and share > self._places[place].room + _ROUNDING:
            return False
        return all(self._taken[n] + amount <= self._rows[n].room for n, amount in more.items())


def a_middling_problem(seed: int) -> Problem:
    """Return up to 40 groups of twelve ranks, up to 25 places, and limits that many run into."""
    dice = Random(seed)  # noqa: S311 - for tests
    most = dice.randint(2, 6)
    places = [_some_place(dice, f"p{nth:02}", most) for nth in range(dice.randint(8, 25))]
    groups = [_some_group(dice, f"g{nth:03}", places, most) for nth in range(dice.randint(12, 40))]
    count = sum(len(group.requests) for group in groups)
    rows = [
        _some_row(dice, nth, groups, places, dice.randint(count // 10 + 1, count // 3 + 2))
        for nth in range(dice.randint(2, 6))
    ]
    return Problem(tuple(groups), tuple(places), tuple(rows))


def _some_place(dice: Random, name: str, most: int) -> Place:
    if dice.random() < 0.6:
        setup = Decimal(dice.randint(1, 60)) / 10
        return Place(f"{name}/made", name, makes=True, setup=setup)
    return free_workers(name, float(dice.randint(0, most)))


def _some_group(dice: Random, name: str, places: list[Place], most: int) -> RequestGroup:
    rank = 0, dice.choice([-10, 0, 5]), -dice.randint(0, 3)
    fits = {
        place.key: Fit(dice.choice([1.0, 1.0, 0.5, 0.25]), Decimal(dice.randint(0, 30)) / 10)
        for place in dice.sample(places, dice.randint(2, 8))
    }
    requests = tuple(
        Ordered(order=(0, 0, "q", nth, name, nth), key=f"{name}-{nth}", seconds=60)
        for nth in range(dice.randint(1, 2 * most))
    )
    return RequestGroup(name, rank, requests, fits)


def _some_row(
    dice: Random, nth: int, groups: list[RequestGroup], places: list[Place], room: int
) -> LimitRow:
    some = dice.sample(places, dice.randint(1, len(places) // 2))
    machines = {place.key: Decimal(dice.choice([1, 1, 2])) for place in some if place.makes}
    requests = {
        (group.id, place): Decimal(1)
        for group in dice.sample(groups, dice.randint(0, len(groups) // 3))
        for place in group.fits
    }
    return LimitRow(("limits", nth), f"limit {nth}", Decimal(room), machines, requests)
