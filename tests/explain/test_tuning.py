"""A search over simulations finds the optimum that a planted history has, and never worsens."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.checks import check_all
from fleet.explain.simulation.demand import Job
from fleet.explain.simulation.knobs import Ladder, find_ladders, fleet_at
from fleet.explain.simulation.trials import Goal, History, Trial, learned, read_history
from fleet.explain.simulation.tuning import Found, Search
from fleet.explain.what_if import value_at
from fleet.model.digests import config_digest
from fleet.model.facts import Unknown
from fleet.schema.findings import has_errors
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_sim_fleet
from tests.builders.recording import a_job, record_fixed

START = datetime(2026, 11, 2, 6, tzinfo=UTC)
MAX, MIN, SPARE = "workers.max", "workers.min", "workers.spare"
IDLE, MACHINE = "retire.idle_after", "machine"


def a_tuned_fleet(**pool: object) -> Fleet:
    pools = {"builders": a_pool(provider="desk", **pool)}
    return a_sim_fleet(fleet="trial", queues={"work": {"kind": "world", "path": "w"}}, pools=pools)


def ladders_of(fleet: Fleet, **most: int) -> tuple[Ladder, ...]:
    """Return the ladders of some keys, each up to a value."""
    found = []
    for key, last in most.items():
        name = f"pools.builders.{key.replace('__', '.')}"
        ladder = next(each for each in find_ladders(fleet) if each.key == name)
        values = ladder.values[: ladder.values.index(last) + 1]
        found.append(Ladder(ladder.path, values, ladder.today))
    return tuple(found)


def a_history(*bursts: tuple[float, int], minutes: int, hours: int) -> History:
    """Return a history of bursts: each so many hours after its begin, and so many jobs."""
    jobs: list[Job] = []
    for hour, count in bursts:
        at = START + timedelta(hours=hour, minutes=1)
        jobs += [a_job(len(jobs) + nth, at, 60 * minutes) for nth in range(count)]
    end = START + timedelta(hours=hours)
    worlds = record_fixed(jobs, START, end, every=timedelta(minutes=10), machines=1)
    history = read_history(worlds, end - timedelta(minutes=10))
    assert not isinstance(history, Unknown), history
    return history


class Remembering:
    """Simulates each fleet once."""

    def __init__(self, history: History, goal: Goal) -> None:
        self._simulate = learned(history, goal)
        self.known: dict[str, Trial] = {}

    def __call__(self, fleet: Fleet) -> Trial:
        key = config_digest(fleet)
        if key not in self.known:
            self.known[key] = self._simulate(fleet)
        return self.known[key]


def settings_of(found: Found) -> list[object]:
    return [value_at(found.proposed, ladder.path) for ladder in found.ladders]


def least_of_all(
    fleet: Fleet, ladders: tuple[Ladder, ...], goal: Goal, simulate: Callable[[Fleet], Trial]
) -> Sequence[float | Decimal]:
    """Return the best rank on the whole grid."""
    grid = product(*(range(len(ladder.values)) for ladder in ladders))
    fleets = (fleet_at(fleet, ladders, places) for places in grid)
    valid = (each for each in fleets if _min_of(each) <= _max_of(each))
    return min(goal.rank(simulate(each)) for each in valid)


def _min_of(fleet: Fleet) -> int:
    return int(value_at(fleet, ("pools", "builders", "workers", "min")))


def _max_of(fleet: Fleet) -> int:
    return int(value_at(fleet, ("pools", "builders", "workers", "max")))


@pytest.mark.slow
def test_workers_are_as_many_as_a_burst_needs() -> None:
    """Three builds of 30 minutes at once: with two machines the third starts after 30 or more.

    Nothing comes for two hours then, so a machine that is kept serves nobody for most of its time.
    """
    fleet = a_tuned_fleet(max=1, min=1)
    history = a_history((0, 3), (2, 3), (4, 3), minutes=30, hours=5)
    goal = Goal(share=95, seconds=25 * 60)
    ladders = ladders_of(fleet, workers__max=4, workers__min=2)
    simulate = Remembering(history, goal)

    found = Search(fleet, ladders, goal, simulate, most=100).run()

    assert goal.rank(found.tried[found.best]) == least_of_all(fleet, ladders, goal, simulate)
    assert goal.is_met(found.tried[found.best])
    assert _max_of(found.proposed) >= 3
    assert _min_of(found.proposed) == 0


@pytest.mark.slow
def test_machines_go_early_where_nothing_comes_after() -> None:
    """One build of ten minutes every two hours: a machine that is kept is never used again."""
    fleet = a_tuned_fleet(max=3, spare=1, retire={"idle_after": "1h"})
    history = a_history((0, 1), (2, 1), (4, 1), minutes=10, hours=5)
    goal = Goal(share=95, seconds=30 * 60)
    ladders = ladders_of(fleet, workers__spare=2, retire__idle_after=3600)
    simulate = Remembering(history, goal)

    found = Search(fleet, ladders, goal, simulate, most=100).run()

    assert goal.rank(found.tried[found.best]) == least_of_all(fleet, ladders, goal, simulate)
    spare, idle = settings_of(found)
    assert spare == 0
    assert isinstance(idle, int)
    assert idle < 3600


@pytest.mark.slow
def test_a_budget_buys_as_many_as_wait_for_work() -> None:
    """Two builds at once every hour: two machines that are kept cost 2 * 24 * 0.0777 EUR a day.

    Then nobody waits. Three cost more and nobody waits less; with one of them the other build
    waits for a machine.
    """
    fleet = a_tuned_fleet(max=4)
    history = a_history((0, 2), (1, 2), (2, 2), (3, 2), minutes=20, hours=4)
    goal = Goal(share=95, budget=Decimal(4))
    ladders = ladders_of(fleet, workers__min=4, workers__spare=2)
    simulate = Remembering(history, goal)

    found = Search(fleet, ladders, goal, simulate, most=100).run()

    assert goal.rank(found.tried[found.best]) == least_of_all(fleet, ladders, goal, simulate)
    assert settings_of(found) == [2, 0]


costs = st.lists(st.integers(0, 6), min_size=64, max_size=64)


@given(costs, st.integers(1, 40), st.integers(0, 63))
def test_a_search_is_never_worse_than_today_and_keeps_its_bound(
    costs: list[int], most: int, today: int
) -> None:
    """Whatever simulations say: two keys of eight values each, in any landscape."""
    fleet = a_tuned_fleet(max=1 + today % 8, spare=today // 8)
    ladders = ladders_of(fleet, workers__max=8, workers__spare=7)
    goal = Goal(share=95, seconds=60)

    def simulate(fleet: Fleet) -> Trial:
        workers = [value_at(fleet, ladder.path) for ladder in ladders]
        cost = Decimal(costs[(workers[0] - 1) + 8 * workers[1]])
        return a_trial(config_digest(fleet), cost)

    found, again = (Search(fleet, ladders, goal, simulate, most).run() for _ in range(2))

    assert found == again
    assert len(found.tried) <= most
    assert goal.rank(found.tried[found.best]) <= goal.rank(found.tried[found.today])
    assert found.is_bounded or is_lowest(found)


@given(costs, st.integers(1, 40))
def test_a_search_whose_time_is_over_says_what_each_change_is_worth(
    costs: list[int], asked: int
) -> None:
    fleet = a_tuned_fleet(max=8, spare=7)
    ladders = ladders_of(fleet, workers__max=8, workers__spare=7)
    goal, clock = Goal(share=95, seconds=60), iter(range(1000))

    def simulate(fleet: Fleet) -> Trial:
        workers = [value_at(fleet, ladder.path) for ladder in ladders]
        return a_trial(config_digest(fleet), Decimal(costs[(workers[0] - 1) + 8 * workers[1]]))

    found = Search(fleet, ladders, goal, simulate, 100, lambda: next(clock) >= asked).run()

    assert found.is_bounded or is_lowest(found)
    for nth, (best, today) in enumerate(zip(found.best, found.today, strict=True)):
        rest = (*found.best[:nth], today, *found.best[nth + 1 :])
        assert best == today or rest in found.tried or not is_valid(fleet_at(fleet, ladders, rest))


def is_valid(fleet: Fleet) -> bool:
    return not has_errors(check_all(fleet, START.date()))


def is_lowest(found: Found) -> bool:
    """Say whether no step along one ladder is better than where a search ended."""
    best = found.goal.rank(found.tried[found.best])
    steps = [(nth, step) for nth in range(len(found.ladders)) for step in (-1, 1)]
    places = [
        tuple(place + step * (nth == at) for at, place in enumerate(found.best))
        for nth, step in steps
    ]
    return all(
        found.goal.rank(found.tried[each]) >= best for each in places if each in found.tried
    )


def a_trial(config: str, money: Decimal) -> Trial:
    return Trial(
        config=config,
        money=money,
        per_day=money,
        requests=1,
        within=1,
        never=0,
        half=0,
        wait=0,
        waited=0,
    )


def test_the_smallest_change_wins_among_equals() -> None:
    fleet = a_tuned_fleet(max=4, spare=4)
    ladders = ladders_of(fleet, workers__max=8, workers__spare=7)
    goal = Goal(share=95, seconds=60)

    found = Search(
        fleet, ladders, goal, lambda each: a_trial(config_digest(each), Decimal(1)), most=50
    ).run()

    assert found.best == found.today


@pytest.mark.parametrize("name", [MAX, MIN, SPARE, IDLE, MACHINE])
def test_a_ladder_has_todays_value_and_rises(name: str) -> None:
    fleet = a_tuned_fleet(max=37, min=9, spare=11, retire={"idle_after": "17m"})
    ladder = next(each for each in find_ladders(fleet) if each.key == f"pools.builders.{name}")

    assert ladder.values[ladder.today] == value_at(fleet, ladder.path)
    assert ladder.is_type or [*ladder.values] == sorted(set(ladder.values), key=int)


def test_machine_types_are_tried_where_a_pool_names_one_and_states_no_figures() -> None:
    plain = a_tuned_fleet(machine="ccx33")
    typed = a_tuned_fleet(machine={"type": "ccx33", "swap": "4GiB"})
    stated = a_tuned_fleet(machine={"type": "ccx33", "price": "0.10 EUR/h"})

    keys = [
        [each.key for each in find_ladders(fleet) if each.is_type]
        for fleet in (plain, typed, stated)
    ]

    assert keys == [["pools.builders.machine"], ["pools.builders.machine.type"], []]
