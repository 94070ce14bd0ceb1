"""Samples of plans, and how they fold into slots: what is unknown stays unknown."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.explain.history import SlotGrid, fold, history_of, sample_of
from fleet.model.history import MomentFigures, RunSample
from fleet.model.plan import Estimate
from tests.builders import NOW, a_fleet, a_plan, a_pool, a_pool_verdict, a_signature

NOTHING = MomentFigures(busy=0, idle=0, starting=0, other=0, waiting=0, nanos=0)
UNREAD = MomentFigures(None, None, None, None, None, None)
HOUR = timedelta(hours=1)


def minutes(count: int) -> timedelta:
    return timedelta(minutes=count)


def days(count: int) -> timedelta:
    return timedelta(days=count)


FOUR_HOURS = SlotGrid(NOW, HOUR, 4, timedelta(hours=2))


def test_sample_has_each_pool_and_their_sum() -> None:
    plan = a_plan(
        pools=(
            a_pool_verdict(busy=2, idle=1, cost_before=Decimal("0.1234")),
            a_pool_verdict(pool="arm", busy=1, starting=3, other=1, cost_before=Decimal("0.5")),
        ),
        signatures=(a_signature(pools=("builders", "arm")), a_signature(id="b", pools=())),
    )

    sample = sample_of(a_fleet(), plan)

    waiting = plan.signatures[0].count
    assert sample.pools["builders"] == MomentFigures(2, 1, 0, 0, waiting, 123_400_000)
    assert sample.pools["arm"] == MomentFigures(1, 0, 3, 1, waiting, 500_000_000)
    assert sample.fleet == MomentFigures(3, 1, 3, 1, 2 * waiting, 623_400_000)


def test_sum_is_unknown_when_a_pool_is_unknown() -> None:
    unknown = a_pool_verdict(pool="far", not_known=("machines", "workers", "cost"))

    sample = sample_of(a_fleet(), a_plan(pools=(a_pool_verdict(busy=2), unknown)))

    assert sample.pools["far"] == UNREAD._replace(waiting=0)
    assert sample.fleet == UNREAD._replace(waiting=0)
    assert sample.pools["builders"].busy == 2


def test_waiting_is_unknown_when_a_served_queue_is_unread() -> None:
    fleet = a_fleet(pools={"builders": a_pool(serves=["debian"]), "rest": a_pool(serves=["copr"])})
    plan = a_plan(pools=(a_pool_verdict(), a_pool_verdict(pool="rest")), unread=("debian",))

    sample = sample_of(fleet, plan)

    assert (sample.pools["builders"].waiting, sample.pools["rest"].waiting) == (None, 0)
    assert sample.fleet.waiting is None


def test_waiting_is_unknown_when_queue_was_partly_read() -> None:
    part = Estimate(queue="debian", listed=1, unlisted=None, longest=None, because="long")

    sample = sample_of(a_fleet(), a_plan(pools=(a_pool_verdict(),), estimates=(part,)))

    assert sample.pools["builders"].waiting is None


def test_slot_has_average_machines_and_maximum_waiting() -> None:
    half = NOW + HOUR / 2
    samples = [(NOW, NOTHING._replace(busy=2, waiting=9)), (half, NOTHING._replace(nanos=10**9))]

    first, second, third, fourth = fold(samples, FOUR_HOURS)

    assert (first.busy, first.waiting, first.rate) == (1.0, 9, 0.5)
    assert (second.busy, second.waiting, second.rate) == (0.0, 0, 1.0)
    assert third.rate == 1.0
    assert (fourth.busy, fourth.waiting, fourth.rate) == (None, None, None)


def test_slot_average_omits_unknown_part() -> None:
    samples = [(NOW, NOTHING._replace(busy=6)), (NOW + HOUR / 4, UNREAD)]

    first, second, *_ = fold(samples, FOUR_HOURS)

    assert (first.busy, second.busy) == (6.0, None)


def test_history_ends_with_plan_and_has_each_of_its_pools() -> None:
    plan = a_plan(time=NOW + HOUR / 4, pools=(a_pool_verdict(busy=2), a_pool_verdict(pool="new")))
    at = [NOW - HOUR, NOW]
    samples = [
        RunSample(at=each, fleet=NOTHING, pools={"builders": NOTHING._replace(busy=4)})
        for each in at
    ]

    found = history_of(a_fleet(cadence="1h"), plan, samples)

    builders = found.pools["builders"]
    assert [slot.busy for slot in builders.fine] == [4.0] * 15
    assert [slot.busy for slot in builders.coarse] == [4.0] * 3
    assert (builders.now.busy, builders.span.start) == (2, NOW - HOUR)
    assert {slot.busy for slot in found.pools["new"].fine} == {None}
    assert found.fleet.fine[-1].busy == 0.0


@pytest.mark.parametrize(
    ("at", "average"),
    [
        ([(0, 4), (5, 9), (12, 4)], 5.75),
        ([(18, 0), (19, 26)], 13.0),  # the first run of a young fleet creates its machines
        ([(10, 0), (11, 20), (12, 20)], 18.0),
        ([(0, 10), (1, None), (19, 10)], 10.0),
    ],
)
def test_every_sample_counts_when_runs_are_minutes_apart(
    at: list[tuple[int, int | None]], average: float
) -> None:
    minute = timedelta(minutes=1)
    samples = [
        RunSample(at=NOW + nth * minute, fleet=NOTHING._replace(busy=busy)) for nth, busy in at
    ]

    found = history_of(a_fleet(), a_plan(time=NOW + 20 * minute), samples)

    assert found.fleet.coarse[-1].busy == average


@pytest.mark.parametrize(
    ("age", "slots", "length"),
    [(minutes(3), 2, minutes(5)), (minutes(50), 11, minutes(5)), (days(2), 97, minutes(30))],
)
def test_history_starts_with_the_first_sample(
    age: timedelta, slots: int, length: timedelta
) -> None:
    now = NOW + minutes(1)

    found = history_of(a_fleet(), a_plan(time=now), [RunSample(at=now - age, fleet=NOTHING)])

    span = found.fleet.span
    assert (span.slots, span.length) == (slots, length)
    assert span.start <= now - age < span.start + length
    assert found.fleet.fine[0].busy == 0


figures = st.builds(
    MomentFigures, *[st.none() | st.integers(0, 10**6)] * len(MomentFigures._fields)
)
moments = st.integers(-300, 300).map(lambda minutes: NOW + timedelta(minutes=minutes))
histories = st.dictionaries(moments, figures, max_size=20).map(lambda found: sorted(found.items()))


@given(histories)
def test_repeated_equal_sample_changes_no_slot(
    history: list[tuple[datetime, MomentFigures]],
) -> None:
    again = [(at + timedelta(seconds=30), each) for at, each in history]
    span = FOUR_HOURS._replace(hold=timedelta(days=1))

    once, twice = fold(history, span), fold(sorted([*history, *again]), span)

    for one, two in zip(once, twice, strict=True):
        assert [each is None for each in one] == [each is None for each in two]
        assert one.waiting == two.waiting
