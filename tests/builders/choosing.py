"""This module makes places, groups and limits for tests of allocation, and solves them."""

from collections.abc import Mapping
from decimal import Decimal

from fleet.allocate import Allocation, allocate
from fleet.demand import Ordered
from fleet.demand.choices import Fit, Group, Place, Row

CHEAP, DEAR, FREE = "cheap/m/on-demand", "dear/m/on-demand", "cheap"


def a_place(key: str, setup: str = "1", **overrides: object) -> Place:
    values: dict[str, object] = {"pool": key.partition("/")[0], "makes": True}
    return Place(key, **(values | {"setup": Decimal(setup)} | overrides))  # type: ignore[arg-type]  # any field


def free_workers(key: str, room: float) -> Place:
    return Place(key, key, makes=False, room=room)


def a_group(name: str, count: int, *places: str, share: float = 1.0, rank: int = 0) -> Group:
    requests = tuple(
        Ordered(order=(0, "", "q", nth, name, nth), key=f"{name}{nth}", seconds=600)
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
