"""Allocation: who is served where, at what cost, and what stops the others."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest

from fleet.allocate import Allocation, allocate
from fleet.choices import Fit, Group, Place, Row
from fleet.components import components
from fleet.demand import Ordered

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


def test_the_cheapest_place_that_fits_is_taken() -> None:
    allocation = solved([a_place(CHEAP, "1"), a_place(DEAR, "2")], [a_group("a", 2, CHEAP, DEAR)])

    assert allocation.machines == {CHEAP: 2}


def test_free_workers_come_before_machines() -> None:
    allocation = solved([a_place(CHEAP), free_workers(FREE, 1)], [a_group("a", 2, CHEAP, FREE)])

    assert served(allocation) == {FREE: ["a1"], CHEAP: ["a2"]}


def test_a_scarce_worker_is_left_to_who_fits_nothing_else() -> None:
    scarce, common = free_workers("scarce", 1), free_workers("common", 1)

    allocation = solved(
        [scarce, common], [a_group("a", 1, "common", "scarce"), a_group("b", 1, "scarce")]
    )

    assert served(allocation) == {"common": ["a1"], "scarce": ["b1"]}


def test_what_is_cheap_for_one_is_given_up_where_all_together_cost_less() -> None:
    allocation = solved(
        [a_place(CHEAP, "1"), a_place(DEAR, "3"), a_place("other/m/on-demand", "1.5")],
        [a_group("a", 1, CHEAP, "other/m/on-demand"), a_group("b", 1, CHEAP, DEAR)],
        a_limit(1, CHEAP),
    )

    assert served(allocation) == {"other/m/on-demand": ["a1"], CHEAP: ["b1"]}


def test_demand_falls_through_to_the_next_pool_when_one_is_full() -> None:
    allocation = solved(
        [a_place(CHEAP, "1"), a_place(DEAR, "2")],
        [a_group("a", 3, CHEAP, DEAR)],
        a_limit(2, CHEAP),
    )

    assert allocation.machines == {CHEAP: 2, DEAR: 1}


def test_an_earlier_rank_is_served_first_however_many_wait_behind() -> None:
    allocation = solved(
        [a_place(CHEAP)],
        [a_group("late", 50, CHEAP, rank=2), a_group("first", 1, CHEAP, rank=0)],
        a_limit(2, CHEAP),
    )

    assert [r.key for _, r in allocation.served[CHEAP]] == ["first1", "late1"]


def test_an_earlier_rank_takes_what_it_needs_from_several_of_a_later_one() -> None:
    big, small = a_group("big", 1, CHEAP), a_group("small", 3, CHEAP, rank=1)
    budget = Row(
        ("budgets", "b"),
        "budget b is used up",
        Decimal(3),
        requests={("big", CHEAP): Decimal(3), ("small", CHEAP): Decimal(1)},
    )

    allocation = solved([a_place(CHEAP)], [big, small], budget)

    assert served(allocation) == {CHEAP: ["big1"]}


def test_in_one_rank_as_many_as_possible_are_served() -> None:
    dear, cheap = a_group("dear", 1, CHEAP), a_group("cheap", 3, CHEAP)
    budget = Row(
        ("budgets", "b"),
        "budget b is used up",
        Decimal(3),
        requests={("dear", CHEAP): Decimal(3), ("cheap", CHEAP): Decimal(1)},
    )

    assert len(solved([a_place(CHEAP)], [dear, cheap], budget).unserved) == 1


def test_the_oldest_of_a_group_are_served_and_the_others_told_why() -> None:
    limit = a_limit(1, CHEAP)

    allocation = solved([a_place(CHEAP)], [a_group("a", 3, CHEAP)], limit)

    assert served(allocation) == {CHEAP: ["a1"]}
    assert {
        key: [(stop.place, stop.rows) for stop in stops]
        for key, stops in allocation.unserved.items()
    } == {"a2": [(CHEAP, (limit,))], "a3": [(CHEAP, (limit,))]}


def test_every_limit_that_stops_a_request_is_named() -> None:
    first, second = a_limit(1, CHEAP), a_limit(1, CHEAP, key="max_starting")

    allocation = solved([a_place(CHEAP)], [a_group("a", 2, CHEAP)], first, second)

    assert allocation.unserved["a2"][0].rows == (first, second)


def test_a_request_that_fits_nowhere_is_unserved_without_a_limit() -> None:
    assert solved([a_place(CHEAP)], [a_group("a", 1)]).unserved == {"a1": ()}


def test_short_requests_share_a_machine() -> None:
    allocation = solved([a_place(CHEAP)], [a_group("a", 5, CHEAP, share=0.4)])

    assert allocation.machines == {CHEAP: 2}


def test_what_is_left_of_a_machine_is_used_before_another_is_made() -> None:
    limit = a_limit(1, CHEAP)

    allocation = solved(
        [a_place(CHEAP)],
        [a_group("a", 1, CHEAP, share=0.5), a_group("b", 2, CHEAP, share=0.3, rank=1)],
        limit,
    )

    assert served(allocation) == {CHEAP: ["a1", "b1"]}


def test_ties_are_broken_by_name() -> None:
    places = [a_place(f"p{nth}/m/on-demand") for nth in (3, 1, 2)]

    allocation = solved(places, [a_group("a", 1, *(place.key for place in places))])

    assert allocation.machines == {"p1/m/on-demand": 1}


def test_the_bound_is_what_whole_machines_cost_at_least() -> None:
    proof = solved([a_place(CHEAP, "2")], [a_group("a", 5, CHEAP, share=0.5)]).proof

    assert proof.cost == pytest.approx(6)
    assert proof.bound == pytest.approx(6)
    assert proof.relaxed == pytest.approx(5, rel=1e-4)


def test_what_shares_neither_demand_nor_a_limit_is_solved_apart() -> None:
    places = {key: a_place(key) for key in (CHEAP, DEAR)}
    groups = [a_group("a", 1, CHEAP), a_group("b", 1, DEAR)]

    assert len([*components(groups, places, [])]) == 2


def test_a_limit_that_cannot_be_reached_joins_nothing() -> None:
    places = {key: a_place(key) for key in (CHEAP, DEAR)}
    groups = [a_group("a", 2, CHEAP), a_group("b", 2, DEAR)]

    assert len([*components(groups, places, [a_limit(4, CHEAP, DEAR)])]) == 2
    assert len([*components(groups, places, [a_limit(3, CHEAP, DEAR)])]) == 1


def test_of_one_rank_the_older_are_served_where_nothing_else_tells() -> None:
    young, old = a_group("young", 9, CHEAP, DEAR), a_group("old", 2, CHEAP)
    requests = tuple(
        r._replace(order=(0, "", "q", -nth, r.key, 1)) for nth, r in enumerate(old.requests, 1)
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
