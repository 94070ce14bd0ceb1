"""Allocation: who is served where, at what cost, and what stops the others."""

from dataclasses import replace
from decimal import Decimal

import pytest

from fleet.planner.allocation import Proof
from fleet.planner.demand import Fit, LimitRow
from fleet.planner.formulation import components, open_pairs
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


def test_cheapest_fitting_place_is_used() -> None:
    allocation = solved([a_place(CHEAP, "1"), a_place(DEAR, "2")], [a_group("a", 2, CHEAP, DEAR)])

    assert allocation.machines == {CHEAP: 2}


def test_free_workers_precede_new_machines() -> None:
    allocation = solved([a_place(CHEAP), free_workers(FREE, 1)], [a_group("a", 2, CHEAP, FREE)])

    assert served(allocation) == {FREE: ["a1"], CHEAP: ["a2"]}


def test_scarce_worker_serves_request_without_alternative() -> None:
    scarce, common = free_workers("scarce", 1), free_workers("common", 1)

    allocation = solved(
        [scarce, common], [a_group("a", 1, "common", "scarce"), a_group("b", 1, "scarce")]
    )

    assert served(allocation) == {"common": ["a1"], "scarce": ["b1"]}


def test_allocation_minimizes_total_cost() -> None:
    allocation = solved(
        [a_place(CHEAP, "1"), a_place(DEAR, "3"), a_place("other/m/on-demand", "1.5")],
        [a_group("a", 1, CHEAP, "other/m/on-demand"), a_group("b", 1, CHEAP, DEAR)],
        a_limit(1, CHEAP),
    )

    assert served(allocation) == {"other/m/on-demand": ["a1"], CHEAP: ["b1"]}


def test_demand_uses_next_pool_when_one_is_full() -> None:
    allocation = solved(
        [a_place(CHEAP, "1"), a_place(DEAR, "2")],
        [a_group("a", 3, CHEAP, DEAR)],
        a_limit(2, CHEAP),
    )

    assert allocation.machines == {CHEAP: 2, DEAR: 1}


def test_earlier_rank_is_served_first_when_many_later_ones_wait() -> None:
    allocation = solved(
        [a_place(CHEAP)],
        [a_group("late", 50, CHEAP, rank=2), a_group("first", 1, CHEAP, rank=0)],
        a_limit(2, CHEAP),
    )

    assert [r.key for _, r in allocation.served[CHEAP]] == ["first1", "late1"]


def test_earlier_rank_displaces_several_requests_of_later_rank() -> None:
    big, small = a_group("big", 1, CHEAP), a_group("small", 3, CHEAP, rank=1)
    budget = LimitRow(
        ("budgets", "b"),
        "budget b is used up",
        Decimal(3),
        requests={("big", CHEAP): Decimal(3), ("small", CHEAP): Decimal(1)},
    )

    allocation = solved([a_place(CHEAP)], [big, small], budget)

    assert served(allocation) == {CHEAP: ["big1"]}


def test_rank_serves_maximum_number_of_requests() -> None:
    dear, cheap = a_group("dear", 1, CHEAP), a_group("cheap", 3, CHEAP)
    budget = LimitRow(
        ("budgets", "b"),
        "budget b is used up",
        Decimal(3),
        requests={("dear", CHEAP): Decimal(3), ("cheap", CHEAP): Decimal(1)},
    )

    assert len(solved([a_place(CHEAP)], [dear, cheap], budget).unserved) == 1


def test_oldest_requests_of_group_are_served_others_have_stop() -> None:
    limit = a_limit(1, CHEAP)

    allocation = solved([a_place(CHEAP)], [a_group("a", 3, CHEAP)], limit)

    assert served(allocation) == {CHEAP: ["a1"]}
    assert {
        key: [(stop.place, stop.rows) for stop in stops]
        for key, stops in allocation.unserved.items()
    } == {"a2": [(CHEAP, (limit,))], "a3": [(CHEAP, (limit,))]}


def test_unserved_request_names_every_limit_that_stops_it() -> None:
    first, second = a_limit(1, CHEAP), a_limit(1, CHEAP, key="max_starting")

    allocation = solved([a_place(CHEAP)], [a_group("a", 2, CHEAP)], first, second)

    assert allocation.unserved["a2"][0].rows == (first, second)


def test_unserved_request_names_no_limit_when_it_fits_no_place() -> None:
    assert solved([a_place(CHEAP)], [a_group("a", 1)]).unserved == {"a1": ()}


def test_short_requests_share_a_machine() -> None:
    allocation = solved([a_place(CHEAP)], [a_group("a", 5, CHEAP, share=0.4)])

    assert allocation.machines == {CHEAP: 2}


def test_remaining_capacity_is_used_before_a_new_machine() -> None:
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


def test_bound_counts_integer_machines() -> None:
    proof = solved([a_place(CHEAP, "2")], [a_group("a", 5, CHEAP, share=0.5)]).proof

    assert proof.cost == pytest.approx(6)
    assert proof.bound == pytest.approx(6)
    assert proof.relaxed == pytest.approx(5, rel=1e-4)


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


def test_each_limit_of_a_closed_place_stops_a_request() -> None:
    exhausted = a_budget("0", {("a", CHEAP): 1, ("a", DEAR): 1})
    full = a_limit(1, CHEAP)

    allocation = solved(
        [a_place(CHEAP), a_place(DEAR), free_workers(FREE, 0)],
        [a_group("a", 1, CHEAP, DEAR, FREE), a_group("b", 1, CHEAP)],
        exhausted,
        full,
    )

    stops = {stop.place: stop.rows for stop in allocation.unserved["a1"]}
    assert stops == {CHEAP: (exhausted, full), DEAR: (exhausted,), FREE: ()}


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


def test_proof_sums_components() -> None:
    proof = solved(
        [a_place(CHEAP, "1"), a_place(DEAR, "2")],
        [a_group("a", 2, CHEAP, share=0.75), a_group("b", 1, DEAR)],
    ).proof

    assert proof.cost == pytest.approx(4)
    assert proof.bound == pytest.approx(4)
    assert proof.relaxed == pytest.approx(3.5, rel=1e-4)
    assert (proof.unfinished, proof.rounded) == (False, False)


def test_group_is_counted_at_the_place_that_serves_it() -> None:
    allocation = solved(
        [a_place(CHEAP), free_workers(FREE, 1)],
        [a_group("a", 2, CHEAP, FREE), a_group("b", 1, CHEAP)],
    )

    assert allocation.counts == {("a", FREE): 1, ("a", CHEAP): 1, ("b", CHEAP): 1}


def test_proof_cost_includes_work() -> None:
    group = a_group("a", 2, CHEAP)
    group = replace(group, fits={CHEAP: Fit(money=Decimal("0.25"))})

    proof = solved([a_place(CHEAP, "1")], [group]).proof

    assert proof.cost == pytest.approx(2.5)
    assert proof.bound == pytest.approx(2.5)


def test_expensive_machine_is_created_when_its_work_is_cheaper() -> None:
    group = a_group("a", 1, CHEAP, DEAR)
    group = replace(group, fits={CHEAP: Fit(money=Decimal(3)), DEAR: Fit(money=Decimal(1))})

    assert solved([a_place(CHEAP, "1"), a_place(DEAR, "2")], [group]).machines == {DEAR: 1}


def test_place_without_creations_has_no_machines() -> None:
    assert solved([a_place(CHEAP)], [a_group("a", 1, CHEAP)], a_limit(0, CHEAP)).machines == {}


def test_full_place_is_a_stop_without_rows() -> None:
    allocation = solved([free_workers(FREE, 1)], [a_group("a", 2, FREE)])

    assert [(stop.place, stop.rows) for stop in allocation.unserved["a2"]] == [(FREE, ())]


def test_fractional_free_worker_serves_only_requests_that_fit() -> None:
    allocation = solved(
        [free_workers(FREE, 1.5)],
        [a_group("half", 2, FREE, share=0.5), a_group("whole", 1, FREE, rank=1)],
    )

    assert served(allocation) == {FREE: ["half1", "half2"]}
    assert list(allocation.unserved) == ["whole1"]


def test_closed_place_serves_no_request() -> None:
    allocation = solved([a_place(CHEAP)], [a_group("a", 1, DEAR), a_group("b", 1, CHEAP, DEAR)])

    assert allocation.unserved == {"a1": ()}
    assert served(allocation) == {CHEAP: ["b1"]}


def test_requests_served_at_a_place_are_listed_in_the_order_of_ranks() -> None:
    allocation = solved(
        [a_place(CHEAP)], [a_group("a", 1, CHEAP, rank=2), a_group("b", 1, CHEAP, rank=1)]
    )

    assert allocation.served[CHEAP] == sorted(allocation.served[CHEAP])
    assert served(allocation) == {CHEAP: ["b1", "a1"]}


def test_machine_uses_limit_by_weight_of_its_place() -> None:
    row = LimitRow(("x",), "at x", Decimal(5), {CHEAP: Decimal(2), DEAR: Decimal("1.25")})

    allocation = solved(
        [a_place(CHEAP, "1"), a_place(DEAR, "2")], [a_group("a", 5, CHEAP, DEAR)], row
    )

    assert allocation.machines == {DEAR: 4}
    assert [stop.rows for stop in allocation.unserved["a5"]] == [(row,), (row,)]


def test_request_is_stopped_by_its_own_use_of_a_limit() -> None:
    row = LimitRow(
        ("x",), "at x", Decimal(3), {CHEAP: Decimal(1)}, requests={("a", CHEAP): Decimal(1)}
    )

    allocation = solved([a_place(CHEAP)], [a_group("a", 4, CHEAP, share=0.5)], row)

    assert served(allocation) == {CHEAP: ["a1", "a2"]}
    assert allocation.unserved["a3"][0].rows == (row,)


def test_fractional_limit_is_not_exceeded_by_a_millionth() -> None:
    row = LimitRow(("x",), "at x", Decimal("0.3"), requests={("a", CHEAP): Decimal("0.1")})

    allocation = solved([a_place(CHEAP)], [a_group("a", 4, CHEAP)], row)

    assert len(allocation.served[CHEAP]) <= 3
    assert allocation.unserved["a4"][0].rows == (row,)


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
