"""How others decide, in the figures of their own sources."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from bench.policies import (
    POLICIES,
    debusine,
    first_fit,
    fixed,
    nodepool,
    resalloc,
    taskcluster,
)
from bench.scaling import View, Waiting, Wanted
from fleet.model.facts import Demand, QueueReading, World
from fleet.schema.model import Fleet
from fleet.simulate.replay import Replay, SimulationInputs
from tests.builders import NOW
from tests.builders.recording import QUEUE, a_job
from tests.simulate.test_simulation import a_trial

BOTH = ("small", "big")


def small(busy: int = 0, idle: int = 0, starting: int = 0, most: int = 10) -> View:
    return View("small", Decimal("0.10"), False, busy, idle, starting, most, most)


def big(busy: int = 0, idle: int = 0, starting: int = 0, *, on_demand: bool = False) -> View:
    return View("big", Decimal("0.90"), on_demand, busy, idle, starting, 4, 4)


def created(wanted: Mapping[str, Wanted]) -> dict[str, int]:
    return {pool: want.create for pool, want in wanted.items() if want.create}


def test_fixed_fleet_has_maximum_size() -> None:
    assert created(fixed([small(busy=3, idle=2)], [])) == {"small": 5}
    assert fixed([small()], [])["small"].keep == 10


def test_resalloc_policy_keeps_two_free_machines() -> None:
    waiting = [Waiting(50, ("small",))]

    assert created(resalloc([small()], waiting)) == {"small": 2}
    assert created(resalloc([small(busy=5, idle=1)], waiting)) == {"small": 1}
    assert created(resalloc([small(idle=1, starting=1)], waiting)) == {}


def test_resalloc_policy_starts_a_machine_per_on_demand_ticket() -> None:
    views = [small(idle=2), big(starting=1, on_demand=True)]

    assert created(resalloc(views, [Waiting(3, ("big",))])) == {"big": 2}
    assert created(resalloc(views, [Waiting(9, ("big",))])) == {"big": 3}
    assert created(resalloc(views, [])) == {}


def test_taskcluster_policy_starts_a_machine_per_unserved_task() -> None:
    assert created(taskcluster([small(idle=3)], [Waiting(10, ("small",))])) == {"small": 7}
    assert created(taskcluster([small(starting=12)], [Waiting(10, ("small",))])) == {}


@pytest.mark.parametrize(("tasks", "workers"), [(1, 1), (7, 1), (8, 2), (13, 2), (40, 7)])
def test_debusine_policy_clears_its_queue_within_an_hour(tasks: int, workers: int) -> None:
    assert created(debusine([small()], [Waiting(tasks, ("small",))])) == {"small": workers}


def test_debusine_policy_counts_workers_of_same_kind() -> None:
    waiting = [Waiting(40, BOTH)]

    assert created(debusine([small(busy=4), big(idle=2)], waiting)) == {"small": 1}


def test_nodepool_policy_starts_a_machine_per_request_and_spares() -> None:
    assert created(nodepool([small()], [])) == {"small": 2}
    assert created(nodepool([small(idle=2)], [Waiting(5, ("small",))])) == {"small": 5}
    assert nodepool([small(busy=4)], [])["small"].keep == 6


def test_first_fit_prefers_free_capacity_then_cheapest_pool() -> None:
    views = [small(busy=7, idle=1), big()]

    assert created(first_fit(views, [Waiting(2, BOTH)])) == {"small": 1}
    assert created(first_fit(views, [Waiting(5, BOTH)])) == {"small": 2, "big": 2}
    assert created(first_fit(views, [Waiting(20, BOTH)])) == {"small": 2, "big": 4}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_each_policy_serves_all_requests_within_max(name: str) -> None:
    fleet = a_trial(workers={"max": 3})
    replay = a_replay(fleet, name)
    for number in range(12):
        replay.feed(a_job(number, NOW + timedelta(minutes=number), 600))

    side = replay.finish(NOW + timedelta(hours=8))

    assert side.waits.requests == 12
    assert side.waits.never == 0
    assert 1 <= side.most <= 3


def a_replay(fleet: Fleet, name: str, start: datetime = NOW) -> Replay:
    empty = QueueReading(demand=Demand(read_at=start), workers=None)
    first = World(fleet=fleet.fleet, time=start, queues={QUEUE: empty})
    return Replay(SimulationInputs(fleet), first, lambda _, __: None, POLICIES[name])
