"""Allocation: who is served where, at what cost, and what stops the others."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.planner.allocation import Allocation, Proof
from fleet.planner.demand import Fit, LimitRow, RequestGroup
from fleet.planner.formulation import components, open_pairs
from tests.builders.cases import Block, read_blocks
from tests.builders.choosing import (
    CHEAP,
    DEAR,
    FREE,
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


def test_independent_groups_are_separate_components() -> None:
    places = {key: a_place(key) for key in (CHEAP, DEAR)}
    groups = [a_group("a", 1, CHEAP), a_group("b", 1, DEAR)]

    assert len([*components(groups, places, [])]) == 2


def test_unreachable_limit_joins_no_components() -> None:
    places = {key: a_place(key) for key in (CHEAP, DEAR)}
    groups = [a_group("a", 2, CHEAP), a_group("b", 2, DEAR)]

    assert len([*components(groups, places, [a_limit(4, CHEAP, DEAR)])]) == 2
    assert len([*components(groups, places, [a_limit(3, CHEAP, DEAR)])]) == 1


def a_budget(room: str, uses: dict[tuple[str, str], int], **machines: int) -> LimitRow:
    made = {CHEAP: Decimal(machines["cheap"])} if machines else {}
    amounts = {pair: Decimal(amount) for pair, amount in uses.items()}
    return LimitRow(("budgets", "x"), "at x", Decimal(room), made, requests=amounts)


def test_exhausted_limit_joins_no_components() -> None:
    places = {key: a_place(key) for key in (CHEAP, DEAR, "third/m/on-demand")}
    groups = [a_group("a", 2, CHEAP, "third/m/on-demand"), a_group("b", 2, DEAR)]
    row = a_budget("0.5", {("a", CHEAP): 1, ("b", DEAR): 1})

    opened = [*open_pairs(groups, places, [row])]

    assert [[*group.fits] for group in opened] == [["third/m/on-demand"], []]
    assert len([*components([opened[0]], places, [row])]) == 1


def test_pair_closes_if_request_and_machine_exceed_a_limit() -> None:
    row = a_budget("4", {("a", CHEAP): 2, ("b", CHEAP): 1, ("a", FREE): 4}, cheap=3)
    groups = [a_group("a", 1, CHEAP, FREE), a_group("b", 1, CHEAP, "closed")]
    places = {CHEAP: a_place(CHEAP), FREE: free_workers(FREE, 1)}

    opened = [*open_pairs(groups, places, [row])]

    assert [[*group.fits] for group in opened] == [[FREE], [CHEAP]]


def test_older_request_of_rank_is_served_when_all_else_is_equal() -> None:
    young, old = a_group("young", 9, CHEAP, DEAR), a_group("old", 2, CHEAP)
    requests = tuple(
        r._replace(order=(0, 0, "q", -nth, r.key, 1)) for nth, r in enumerate(old.requests, 1)
    )
    old = replace(old, requests=requests)

    allocation = solved(
        [a_place(CHEAP, "1"), a_place(DEAR, "1")],
        [young, old],
        a_limit(3, CHEAP),
        a_limit(6, DEAR),
    )

    assert {"old1", "old2"} <= {r.key for served in allocation.served.values() for _, r in served}
    assert sorted(allocation.unserved) == ["young8", "young9"]


def test_proofs_of_independent_components_add_up() -> None:
    one = Proof(1, 2, 3, unfinished=True)
    other = Proof(10, 20, 30, rounded=True)

    assert one + other == Proof(11, 22, 33, unfinished=True, rounded=True)
    assert not (Proof() + Proof()).unfinished
    assert not (Proof() + Proof()).rounded


def test_group_is_counted_at_the_place_that_serves_it() -> None:
    allocation = solved(
        [a_place(CHEAP), free_workers(FREE, 1)],
        [a_group("a", 2, CHEAP, FREE), a_group("b", 1, CHEAP)],
    )

    assert allocation.counts == {("a", FREE): 1, ("a", CHEAP): 1, ("b", CHEAP): 1}


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
