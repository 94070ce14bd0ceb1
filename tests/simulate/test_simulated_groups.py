"""Jobs out of worlds in which a queue counts alike requests, and names the oldest alone."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.model.facts import Demand, World
from fleet.planner.demand import ordered
from fleet.simulate.recorded_demand import KnownHistory, PastRequest
from tests.builders import NOW
from tests.builders.recording import QUEUE, a_job, record_fixed

EVERY = timedelta(minutes=10)
TASKS = ("sbuild", "autopkgtest")
ASKED = st.lists(
    st.tuples(st.integers(0, 40), st.integers(11, 90), st.sampled_from(TASKS)),
    min_size=1,
    max_size=30,
)


def grouped(worlds: Iterable[World]) -> Iterator[World]:
    """Yield the worlds as a database tells them."""
    for world in worlds:
        demand = world.queues[QUEUE].demand
        assert isinstance(demand, Demand)
        groups = [[r for r in demand.requests if r.task == task] for task in TASKS]
        told = tuple(group[0].altered(count=len(group)) for group in groups if group)
        reading = world.queues[QUEUE].altered(demand=demand.altered(requests=told))
        yield world.altered(queues={QUEUE: reading})


def jobs_of(worlds: Iterable[World]) -> list[PastRequest]:
    return [event for event in KnownHistory().events(worlds) if isinstance(event, PastRequest)]


@pytest.mark.slow
@given(asked=ASKED)
def test_group_has_same_jobs_as_list(asked: list[tuple[int, int, str]]) -> None:
    """Law: each job is found once, began and ended as it did, and came when it did, about."""
    minute, jobs = 0, []
    for number, (after, minutes, task) in enumerate(asked, 100):
        minute += after
        at = NOW + timedelta(minutes=minute, seconds=7)
        jobs.append(a_job(number, at, 60 * minutes, task=task))
    worlds = [*record_fixed(jobs, NOW, NOW + timedelta(days=3), every=EVERY, machines=3)]

    listed, counted = jobs_of(worlds), jobs_of(grouped(worlds))

    runs, again = (
        sorted((each.request.task, each.started or NOW, each.seconds or 0) for each in found)
        for found in (listed, counted)
    )
    assert again == runs
    assert len(runs) == len(asked)
    assert [each.key for each in counted if each.withdrawn] == []
    for one, other in zip(
        sorted(each.at for each in listed), sorted(each.at for each in counted), strict=True
    ):
        assert abs(one - other) <= EVERY


def test_request_removed_from_group_counts_as_withdrawn() -> None:
    jobs = [a_job(number, NOW, 60 * 60) for number in range(101, 106)]
    worlds = [*record_fixed(jobs, NOW, NOW + 2 * EVERY, every=EVERY, machines=2)]
    last = worlds[-1].queues[QUEUE].demand
    assert isinstance(last, Demand)
    fewer = last.altered(requests=last.requests[:2])
    reading = worlds[-1].queues[QUEUE].altered(demand=fewer)
    worlds[-1] = worlds[-1].altered(queues={QUEUE: reading})

    found = jobs_of(grouped(worlds))

    assert len(found) == 5
    assert len([each for each in found if each.withdrawn]) == 1


def test_simultaneous_requests_keep_their_group_order() -> None:
    """Ids that are numbers come after all others where the time is the same."""
    jobs = [a_job(number, NOW, 60 * 60) for number in range(1, 6)]
    worlds = [*record_fixed(jobs, NOW, NOW + 30 * EVERY, every=EVERY, machines=1)]

    found = sorted(jobs_of(grouped(worlds)), key=lambda job: ordered(QUEUE, job.request)[0].order)

    assert [each.started for each in found] == sorted(each.started or NOW for each in found)
    assert None not in [each.started for each in found]
