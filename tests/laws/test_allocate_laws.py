"""Laws of allocation: no limit is passed, no better answer exists, and order never matters."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.model.prices import Tariff, bill
from fleet.planner.allocation import Allocation, allocate
from fleet.planner.demand import Fit, LimitRow, Ordered, Place, Rank, RequestGroup
from fleet.planner.formulation import EXACT_PAIRS
from tests.builders.choosing import Problem, a_middling_problem, lost

_ROUNDING = 1e-6
_LARGE = 0
"""Every component is solved as large ones are."""


@st.composite
def problems(draw: st.DrawFn, *, by_step: bool = False) -> Problem:
    places = draw(
        st.lists(
            _places(by_step=by_step), min_size=1, max_size=3, unique_by=lambda place: place.key
        )
    )
    keys = [place.key for place in places]
    groups = [_group(draw, f"g{number}", keys) for number in range(draw(st.integers(1, 3)))]
    rows = [_row(draw, number, places, groups) for number in range(draw(st.integers(0, 3)))]
    return Problem(tuple(groups), tuple(places), tuple(rows))


@st.composite
def _places(draw: st.DrawFn, *, by_step: bool) -> Place:
    key = draw(st.sampled_from("abc"))
    if by_step and draw(st.booleans()):
        tariff = Tariff(Decimal(1), increment=draw(st.sampled_from((3600, 7200))))
        return _billed_by_step(key, tariff, seconds=draw(st.integers(1, 9)) * 1800)
    if draw(st.booleans()):
        setup = Decimal(draw(st.integers(1, 9)))
        return Place(f"{key}/made", key, makes=True, setup=setup)
    return Place(key, key, makes=False, room=float(draw(st.integers(0, 2))))


def _billed_by_step(key: str, tariff: Tariff, *, seconds: int) -> Place:
    return Place(
        f"{key}/made",
        key,
        makes=True,
        setup=bill(tariff, seconds),
        setup_seconds=seconds,
        price=tariff.price,
        tariff=tariff,
    )


def _group(draw: st.DrawFn, name: str, keys: Sequence[str]) -> RequestGroup:
    fits = draw(st.lists(st.sampled_from(keys), unique=True, max_size=3))
    requests = tuple(
        Ordered(order=(0, 0, "q", nth, name, nth), key=f"{name}-{nth}", seconds=60)
        for nth in range(draw(st.integers(1, 3)))
    )
    return RequestGroup(
        id=name,
        rank=(draw(st.integers(0, 2)),),
        requests=requests,
        fits={
            key: Fit(draw(st.sampled_from((1.0, 0.5, 0.25))), Decimal(draw(st.integers(0, 3))))
            for key in fits
        },
    )


def _row(
    draw: st.DrawFn, number: int, places: Sequence[Place], groups: Sequence[RequestGroup]
) -> LimitRow:
    made = [place.key for place in places if place.makes]
    chosen = draw(st.lists(st.sampled_from(made), unique=True)) if made else []
    counted = draw(st.lists(st.sampled_from(groups), unique_by=lambda group: group.id))
    return LimitRow(
        path=("limits", number),
        because=f"limit {number}",
        room=Decimal(draw(st.integers(0, 4))),
        machines={key: Decimal(draw(st.integers(1, 2))) for key in chosen},
        requests={
            (group.id, place): Decimal(draw(st.integers(1, 3)))
            for group in counted
            for place in group.fits
        },
    )


def _answers(problem: Problem) -> Iterator[dict[tuple[str, str], int]]:
    """Yield every way to serve requests, limits aside."""
    pairs = [(group, place) for group in problem.groups for place in group.fits]
    for counts in product(*(range(len(group.requests) + 1) for group, _ in pairs)):
        answer = {(g.id, p): count for (g, p), count in zip(pairs, counts, strict=True)}
        if all(
            sum(answer[group.id, place] for place in group.fits) <= len(group.requests)
            for group in problem.groups
        ):
            yield answer


def _machines(problem: Problem, answer: dict[tuple[str, str], int]) -> dict[str, int] | None:
    """Return the machines that an answer needs; None where workers that exist are too few."""
    shares: defaultdict[str, float] = defaultdict(float)
    for group in problem.groups:
        for place, fit in group.fits.items():
            shares[place] += fit.share * answer[group.id, place]
    if any(shares[p.key] > p.room + _ROUNDING for p in problem.places if not p.makes):
        return None
    return {p.key: ceil(shares[p.key] - _ROUNDING) for p in problem.places if p.makes}


def _holds(row: LimitRow, machines: dict[str, int], answer: dict[tuple[str, str], int]) -> bool:
    made = sum(factor * machines.get(place, 0) for place, factor in row.machines.items())
    return made + sum(f * answer.get(at, 0) for at, f in row.requests.items()) <= row.room


def _by_rank(problem: Problem, answer: dict[tuple[str, str], int]) -> tuple[int, ...]:
    served: Counter[Rank] = Counter()
    for group in problem.groups:
        served[group.rank] += sum(answer[group.id, place] for place in group.fits)
    return tuple(served[rank] for rank in sorted({group.rank for group in problem.groups}))


def _cost(problem: Problem, machines: dict[str, int], answer: dict[tuple[str, str], int]) -> float:
    setup = sum(float(p.setup) * machines.get(p.key, 0) for p in problem.places)
    return setup + sum(
        float(fit.money) * answer[group.id, place]
        for group in problem.groups
        for place, fit in group.fits.items()
    )


def _given(problem: Problem, allocation: Allocation) -> dict[tuple[str, str], int]:
    return {(g.id, p): allocation.counts.get((g.id, p), 0) for g in problem.groups for p in g.fits}


def _billed(
    problem: Problem, machines: dict[str, int], answer: dict[tuple[str, str], int]
) -> float:
    """Return what an answer costs where time is billed in whole steps, machines taken together."""
    shared = {
        (group.id, place): fit.money * answer[group.id, place]
        for group in problem.groups
        for place, fit in group.fits.items()
        if fit.share < 1
    }
    more = 0.0
    for place in (each for each in problem.places if each.tariff):
        money = sum((m for (_, at), m in shared.items() if at == place.key), Decimal(0))
        alone = sum(
            answer[group.id, place.key]
            for group in problem.groups
            if place.key in group.fits and (group.id, place.key) not in shared
        )
        step = Decimal(place.tariff.increment if place.tariff else 0) / 3600
        paid = place.setup - Decimal(place.setup_seconds) / 3600
        left = money - paid * (machines.get(place.key, 0) - alone)
        more += float(max(0, ceil(left / step)) * step - money)
    return _cost(problem, machines, answer) + more


@given(problems(by_step=True))
def test_allocation_is_optimal_with_billed_steps_by_enumeration(
    problem: Problem,
) -> None:
    allocation = problem.solved()
    ours = _given(problem, allocation)

    best = min(
        (tuple(-count for count in _by_rank(problem, answer)), _billed(problem, machines, answer))
        for answer in _answers(problem)
        if (machines := _machines(problem, answer)) is not None
        and all(_holds(row, machines, answer) for row in problem.rows)
    )

    assert tuple(-count for count in _by_rank(problem, ours)) == best[0]
    cost = _billed(problem, allocation.machines, ours)
    assert abs(cost - best[1]) <= 1e-4 * best[1] + 1e-6
    assert abs(allocation.proof.cost - cost) <= _ROUNDING
    assert allocation.proof.bound <= best[1] + 1e-6


@given(
    st.lists(st.lists(st.integers(0, 9_000), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from((600, 3600, 7200)),
    st.integers(0, 9_000),
)
def test_no_assignment_costs_less_than_proven_bound(
    crews: list[list[int]], increment: int, seconds: int
) -> None:
    tariff = Tariff(Decimal(1), increment=increment)
    place = _billed_by_step("a", tariff, seconds=max(1, seconds))
    groups = [
        RequestGroup(
            id=f"g{nth}",
            rank=(0,),
            requests=(Ordered(order=(0, 0, "q", nth, "", nth), key=f"r{nth}", seconds=length),),
            fits={place.key: Fit(0.25, Decimal(length) / 3600)},
        )
        for nth, length in enumerate(length for executor in crews for length in executor)
    ]

    allocation = allocate(groups, {place.key: place}, ())

    billed = sum((place.billed(sum(executor)) or Decimal(0) for executor in crews), Decimal(0))
    assert allocation.proof.bound <= float(billed) + 1e-6


@given(problems())
def test_allocation_without_solver_respects_limits_and_fills_capacity(
    problem: Problem,
) -> None:
    allocation = problem.solved(solve=False)
    ours = _given(problem, allocation)

    machines = _machines(problem, ours)

    assert machines == {
        p.key: allocation.machines.get(p.key, 0) for p in problem.places if p.makes
    }
    assert all(_holds(row, machines or {}, ours) for row in problem.rows)
    for group in problem.groups:
        if sum(ours[group.id, place] for place in group.fits) < len(group.requests):
            for place in group.fits:
                more = ours | {(group.id, place): ours[group.id, place] + 1}
                needed = _machines(problem, more)
                assert needed is None or not all(_holds(r, needed, more) for r in problem.rows)
    assert allocation.proof.bound == 0
    assert allocation.proof.cost >= problem.solved().proof.bound - 1e-6 or allocation.unserved


@st.composite
def _preferring(draw: st.DrawFn) -> Problem:
    """Return a problem in which groups prefer pools, before money or where it is equal."""
    problem = draw(problems())
    priorities = st.sampled_from((-40, 0, 10))
    groups = tuple(
        replace(
            group,
            by_priority=draw(st.booleans()),
            fits={at: fit._replace(priority=draw(priorities)) for at, fit in group.fits.items()},
        )
        for group in problem.groups
    )
    return replace(problem, groups=groups)


def _behind(problem: Problem, answer: dict[tuple[str, str], int], *, first: bool) -> int:
    """Return how many priorities those requests are behind their best pools, all together."""
    made = {place.key for place in problem.places if place.makes}
    priorities = {
        g.id: {at: fit.priority for at, fit in g.fits.items() if at in made}
        for g in problem.groups
    }
    levels = sorted({n for own in priorities.values() for n in own.values()}, reverse=True)
    return sum(
        (levels.index(n) - levels.index(max(priorities[g.id].values()))) * answer[g.id, at]
        for g in problem.groups
        for at, n in priorities[g.id].items()
        if g.by_priority is first and len(levels) > 1
    )


@given(_preferring())
def test_priorities_of_pools_precede_or_break_ties_of_cost(problem: Problem) -> None:
    allocation = problem.solved()

    def badness(
        machines: dict[str, int], answer: dict[tuple[str, str], int]
    ) -> tuple[object, ...]:
        return (
            tuple(-count for count in _by_rank(problem, answer)),
            _behind(problem, answer, first=True),
            round(_cost(problem, machines, answer), 6),
            _behind(problem, answer, first=False),
        )

    best = min(
        badness(machines, answer)
        for answer in _answers(problem)
        if (machines := _machines(problem, answer)) is not None
        and all(_holds(row, machines, answer) for row in problem.rows)
    )

    assert badness(allocation.machines, _given(problem, allocation)) == best


@given(problems(), st.sampled_from((EXACT_PAIRS, _LARGE)))
def test_allocation_respects_every_limit(problem: Problem, exact: int) -> None:
    allocation = problem.solved(exact)
    ours = _given(problem, allocation)

    assert all(_holds(row, allocation.machines, ours) for row in problem.rows)
    needed = _machines(problem, ours)
    assert needed is not None
    assert all(allocation.machines.get(place, 0) >= count for place, count in needed.items())


@given(problems(), st.sampled_from((EXACT_PAIRS, _LARGE)))
def test_each_request_is_served_once_or_has_stop_reasons(problem: Problem, exact: int) -> None:
    allocation = problem.solved(exact)

    told = [request.key for served in allocation.served.values() for _, request in served]
    told += allocation.unserved
    assert sorted(told) == sorted(r.key for group in problem.groups for r in group.requests)
    for group in problem.groups:
        for request in group.requests:
            if request.key in allocation.unserved:
                stops = {stop.place: stop.rows for stop in allocation.unserved[request.key]}
                made = {place.key for place in problem.places if place.makes}
                assert set(stops) == set(group.fits)
                assert all(stops[place] for place in made & set(group.fits))


@given(problems())
def test_bounds_of_large_component_contain_the_optimum(
    problem: Problem,
) -> None:
    large = problem.solved(_LARGE)
    ours = _given(problem, large)
    alike = {group.id: sum(ours[group.id, p] for p in group.fits) for group in problem.groups}

    best = min(
        _cost(problem, machines, answer)
        for answer in _answers(problem)
        if all(
            sum(answer[group.id, place] for place in group.fits) == alike[group.id]
            for group in problem.groups
        )
        and (machines := _machines(problem, answer)) is not None
        and all(_holds(row, machines, answer) for row in problem.rows)
    )

    assert large.proof.bound <= best + _ROUNDING
    assert best <= large.proof.cost + _ROUNDING


@given(problems())
def test_proof_cost_equals_cost_of_machines_and_requests(
    problem: Problem,
) -> None:
    large = problem.solved(_LARGE)

    cost = _cost(problem, large.machines, _given(problem, large))
    assert abs(large.proof.cost - cost) <= _ROUNDING


@given(problems())
def test_requests_of_equal_needs_are_served_in_order_of_rank(problem: Problem) -> None:
    allocation = problem.solved()
    group_of = {r.key: group for group in problem.groups for r in group.requests}
    waiting = [r for g in problem.groups for r in g.requests if r.key in allocation.unserved]

    for first, place in ((r, place) for r in waiting for place in group_of[r.key].fits):
        mine = group_of[first.key]
        for _, later in allocation.served[place]:
            other = group_of[later.key]
            if (mine.rank, mine.fits[place]) == (other.rank, other.fits[place]):
                takes = [
                    [row.requests.get((group.id, place)) for row in problem.rows]
                    for group in (mine, other)
                ]
                assert later < first or takes[0] != takes[1]


@pytest.mark.slow
@given(st.one_of(problems(), st.builds(a_middling_problem, st.integers(0, 10**9))))
def test_shortfall_of_large_component_is_within_proof(problem: Problem) -> None:
    large = problem.solved(_LARGE)
    ours, best = problem.lacking(large), problem.lacking(problem.solved(EXACT_PAIRS))

    worse = (rank for rank in ours if ours[rank] != best[rank])
    rank = next(worse, None)
    if rank is not None:
        assert 0 < ours[rank] - best[rank] <= dict(large.proof.longer).get(rank, 0)


@given(
    st.one_of(problems(), st.builds(a_middling_problem, st.integers(0, 10**9))),
    st.sampled_from((EXACT_PAIRS, _LARGE)),
)
def test_unserved_request_fits_only_after_unserving_earlier_ranks(
    problem: Problem, exact: int
) -> None:
    places = {place.key: place for place in problem.places}
    assert lost(problem.groups, places, problem.rows, problem.solved(exact)) == 0


@given(problems(), st.randoms(use_true_random=False), st.sampled_from((EXACT_PAIRS, _LARGE)))
def test_allocation_is_independent_of_input_order(
    problem: Problem, dice: object, exact: int
) -> None:
    groups, places = list(problem.groups), list(problem.places)
    dice.shuffle(groups)  # type: ignore[attr-defined]  # Hypothesis types its Random as object
    dice.shuffle(places)  # type: ignore[attr-defined]  # see above
    shuffled = Problem(tuple(groups), tuple(places), problem.rows).solved(exact)

    as_it_was = problem.solved(exact)
    assert shuffled.machines == as_it_was.machines
    assert shuffled.served == as_it_was.served
