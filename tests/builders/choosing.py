"""Make places, groups and limits for tests of allocation, and solve them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from random import Random

from fleet.planner.allocation import Allocation, allocate
from fleet.planner.demand import Fit, Group, Ordered, Place, Rank, Row
from fleet.planner.formulation import EXACT

CHEAP, DEAR, FREE = "cheap/m/on-demand", "dear/m/on-demand", "cheap"


def a_place(key: str, setup: str = "1", **overrides: object) -> Place:
    values: dict[str, object] = {"pool": key.partition("/")[0], "makes": True}
    return Place(key, **(values | {"setup": Decimal(setup)} | overrides))  # type: ignore[arg-type]  # any field


def free_workers(key: str, room: float) -> Place:
    return Place(key, key, makes=False, room=room)


def a_group(name: str, count: int, *places: str, share: float = 1.0, rank: int = 0) -> Group:
    requests = tuple(
        Ordered(order=(0, 0, "q", nth, name, nth), key=f"{name}{nth}", seconds=600)
        for nth in range(1, count + 1)
    )
    return Group(name, (rank,), requests, {place: Fit(share) for place in places})


def a_limit(room: int, *places: str, key: str = "max") -> Row:
    return Row(("pools", "x", key), f"at {key}", Decimal(room), dict.fromkeys(places, Decimal(1)))


def solved(places: list[Place], groups: list[Group], *rows: Row) -> Allocation:
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

    groups: tuple[Group, ...]
    places: tuple[Place, ...]
    rows: tuple[Row, ...]

    def solved(self, exact: int = EXACT, *, solve: bool = True) -> Allocation:
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


def _some_group(dice: Random, name: str, places: list[Place], most: int) -> Group:
    rank = 0, dice.choice([-10, 0, 5]), -dice.randint(0, 3)
    fits = {
        place.key: Fit(dice.choice([1.0, 1.0, 0.5, 0.25]), Decimal(dice.randint(0, 30)) / 10)
        for place in dice.sample(places, dice.randint(2, 8))
    }
    requests = tuple(
        Ordered(order=(0, 0, "q", nth, name, nth), key=f"{name}-{nth}", seconds=60)
        for nth in range(dice.randint(1, 2 * most))
    )
    return Group(name, rank, requests, fits)


def _some_row(dice: Random, nth: int, groups: list[Group], places: list[Place], room: int) -> Row:
    some = dice.sample(places, dice.randint(1, len(places) // 2))
    machines = {place.key: Decimal(dice.choice([1, 1, 2])) for place in some if place.makes}
    requests = {
        (group.id, place): Decimal(1)
        for group in dice.sample(groups, dice.randint(0, len(groups) // 3))
        for place in group.fits
    }
    return Row(("limits", nth), f"limit {nth}", Decimal(room), machines, requests)
