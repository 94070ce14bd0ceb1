"""Allocation: who is served where, at what cost, and what stops the others."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.planner.allocation import Allocation
from fleet.planner.demand import Fit, LimitRow, RequestGroup
from fleet.planner.formulation import components
from tests.builders.cases import Block, read_blocks
from tests.builders.choosing import (
    CHEAP,
    DEAR,
    a_group,
    a_limit,
    a_place,
    free_workers,
    served,
    solved,
)

CASES = [*read_blocks(Path(__file__).parent / "allocations")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_groups_are_served_as_in_their_case(case: Block) -> None:
    allocation = allocation_of(*case.parts)

    assert describe(allocation) == case.result
    for _, figures in case.because:
        cost, bound, relaxed = map(float, figures.split())
        proof = allocation.proof
        assert [proof.cost, proof.bound] == pytest.approx([cost, bound])
        assert proof.relaxed == pytest.approx(relaxed, rel=1e-4)
        assert not proof.unfinished
        assert not proof.rounded


def allocation_of(places: str, groups: str, limits: str) -> Allocation:
    """Return the allocation of groups to places within limits, each as a text."""
    there = [
        free_workers(name, float(rest[1])) if rest[0] == "room" else a_place(key_of(name), rest[0])
        for name, *rest in (each.split() for each in places.split(","))
    ]
    free = {each.key for each in there if not each.makes}
    rows = [limit_of(number, text, free) for number, text in enumerate(limits.split(";")) if text]
    return solved(there, [group_of(each.split(), free) for each in groups.split(",")], *rows)


def key_of(name: str, free: Collection[str] = ()) -> str:
    return name if name in free else f"{name}/m/on-demand"


def group_of(words: list[str], free: Collection[str]) -> RequestGroup:
    """Return `NAME COUNT at PLACES`, with its share, its rank, its cost and its first turn."""
    name, count, *rest = words
    said: defaultdict[str, list[str]] = defaultdict(list)
    for word in rest:
        if word in ("at", "share", "rank", "work", "came"):
            values = said[word]
        else:
            values.append(word)
    places = [key_of(each, free) for each in said["at"]]
    group = a_group(name, int(count), *places, rank=int(said["rank"][0]) if said["rank"] else 0)
    share = float(said["share"][0]) if said["share"] else 1.0
    work = [Decimal(each) for each in said["work"]] or [Decimal(0)] * len(places)
    fits = {place: Fit(share, money) for place, money in zip(places, work, strict=True)}
    first = int(said["came"][0]) if said["came"] else 1
    requests = tuple(
        each._replace(order=(0, 0, "q", turn, each.key, 1))
        for turn, each in enumerate(group.requests, first)
    )
    return replace(group, fits=fits, requests=requests if said["came"] else group.requests)


def limit_of(number: int, text: str, free: Collection[str]) -> LimitRow:
    """Return `ROOM: WEIGHTS`, of machines at a place, or of requests of a group at a place."""
    room, _, weights = text.partition(":")
    machines, requests = {}, {}
    for word in weights.split(","):
        *weight, of = word.split()
        name, _, place = of.rpartition("@")
        amount = Decimal(weight[0] if weight else 1)
        if name:
            requests[name, key_of(place, free)] = amount
        else:
            machines[key_of(place, free)] = amount
    return LimitRow(("limits", number), f"limit {number}", Decimal(room), machines, requests)


def describe(allocation: Allocation) -> str:
    """Return the requests per place, with its new machines, and the limits that stop others."""
    parts = [
        f"{key.partition('/')[0]} {allocation.machines.get(key, 'free')}: {' '.join(keys)}"
        for key, keys in served(allocation).items()
    ]
    stopped: defaultdict[str, list[str]] = defaultdict(list)
    for key, stops in allocation.unserved.items():
        at = (f"{s.place.partition('/')[0]}{[row.path[1] for row in s.rows]}" for s in stops)
        stopped[" ".join(at) or "no place"].append(key)
    for stop, keys in stopped.items():
        who = " ".join(keys) if len(keys) < 5 else f"{len(keys)} requests"
        parts.append(f"{who} stopped by {stop}")
    return "; ".join(parts)


def test_unreachable_limit_joins_no_components() -> None:
    places = {key: a_place(key) for key in (CHEAP, DEAR)}
    groups = [a_group("a", 2, CHEAP), a_group("b", 2, DEAR)]

    assert len([*components(groups, places, [a_limit(4, CHEAP, DEAR)])]) == 2
    assert len([*components(groups, places, [a_limit(3, CHEAP, DEAR)])]) == 1


def test_limits_join_only_groups_they_count() -> None:
    places = {key: a_place(key) for key in (CHEAP, DEAR, "third/m/on-demand")}
    groups = [a_group("a", 2, CHEAP), a_group("b", 2, DEAR), a_group("c", 2, "third/m/on-demand")]
    row = LimitRow(
        ("x",),
        "at x",
        Decimal(3),
        {CHEAP: Decimal(1), "closed": Decimal(1)},
        requests={("b", DEAR): Decimal(1), ("c", "closed"): Decimal(9)},
    )

    parts = [*components(groups, places, [row])]

    assert [[group.id for group in part.groups] for part in parts] == [["a", "b"], ["c"]]
    assert [part.rows for part in parts] == [(row,), ()]
