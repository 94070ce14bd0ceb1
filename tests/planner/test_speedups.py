"""How much faster a machine is, as far as runs of a package on two machine types are known."""

from decimal import Decimal
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.guard import guard
from fleet.model.facts import TaskRuns, World
from fleet.planner.durations import MIN_RUNS, Durations, Fitted, MachineKind, fit
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_request, a_sim_world, a_worker, ago
from tests.builders.durations import DAY, HOUR, two_sizes
from tests.builders.explaining import explain_request
from tests.builders.sentences import tells

SMALL, BIG, OTHER = MachineKind("norm", 8), MachineKind("mons", 64), MachineKind("mid", 16)
SEVEN = tuple(n * HOUR for n in (18, 19, 20, 20, 21, 22, 90))
FIVE = (2 * HOUR, 3 * HOUR, 3 * HOUR, 4 * HOUR, 60)
CHROMIUM = a_request(id="1", task="sbuild", package="chromium")


def some_runs(machine: str, *seconds: int, package: str = "chromium") -> TaskRuns:
    return TaskRuns(task="sbuild", package=package, machine=machine, seconds=seconds)


def a_world(*runs: TaskRuns) -> World:
    """Return a world where a build of chromium waits and these runs are known."""
    world = a_sim_world(requests=(CHROMIUM,))
    (queue,) = world.queues
    reading = world.queues[queue]
    demand = reading.demand.altered(runs=runs)
    return world.altered(queues={queue: reading.altered(demand=demand)})


BOTH = a_world(some_runs("mons", *FIVE), some_runs("norm", *SEVEN))


def takes(fleet: Fleet, kind: MachineKind, world: World = BOTH, **request: object) -> int | None:
    waiting = CHROMIUM.altered(**request)
    seconds, timing = Durations(fleet, world).of("debian", waiting)
    return timing.on(kind, seconds) if timing else seconds


# the fit


def test_fit_uses_median_run_per_type() -> None:
    assert fit(BOTH) == {
        ("sbuild", "chromium"): (Fitted("norm", 20 * HOUR, 7), Fitted("mons", 3 * HOUR, 5))
    }


@pytest.mark.parametrize(
    "runs",
    [
        (some_runs("norm", *SEVEN),),
        (some_runs("norm", *SEVEN), some_runs("mons", *FIVE[: MIN_RUNS - 1])),
        (some_runs("norm", *SEVEN), some_runs("mons", *FIVE, package="linux")),
    ],
)
def test_fit_is_empty_for_one_type_or_too_few_runs(runs: tuple[TaskRuns, ...]) -> None:
    assert fit(a_world(*runs)) == {}


def test_split_run_records_of_a_type_are_combined() -> None:
    split = (some_runs("norm", *SEVEN[::2]), some_runs("norm", *SEVEN[1::2]))

    assert fit(a_world(*split, some_runs("mons", *FIVE))) == fit(BOTH)


@given(st.permutations(SEVEN), st.integers(1, 30))
def test_fit_recovers_speedup_of_machine(runs: list[int], factor: int) -> None:
    faster = (seconds // factor for seconds in runs)

    ((slow, fast),) = fit(a_world(some_runs("a", *runs), some_runs("b", *faster))).values()

    assert (slow.type, fast.type) == ("a", "b")
    assert abs(slow.seconds - fast.seconds * factor) < factor


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
def test_fit_stays_in_range_when_under_half_of_runs_are_outliers(outliers: list[int]) -> None:
    runs = (*SEVEN[:6], *outliers)

    ((first, *_),) = fit(a_world(some_runs("norm", *runs), some_runs("mons", *FIVE))).values()

    assert min(SEVEN[:6]) <= first.seconds <= max(SEVEN[:6])


# how long


def test_duration_on_unmeasured_type_is_scaled_by_cores() -> None:
    fleet = two_sizes("5h")

    # Amdahl: (10% + 90%/16) of (10% + 90%/8) is 73.5%.
    assert takes(fleet, OTHER) == 52_942


def test_duration_on_unmeasured_type_is_scaled_by_speed() -> None:
    fleet = two_sizes("5h", speeds={"norm": "50%"})

    assert takes(fleet, MachineKind("mid", 16, 200)) == 5 * HOUR


def test_running_work_has_fitted_duration_of_its_machine() -> None:
    work = {"task": "sbuild", "package": "chromium", "started_at": ago(hours=1)}
    worker = a_worker(busy=True, work=work | {"expected_seconds": DAY})

    durations = Durations(two_sizes("5h"), BOTH)

    assert durations.remaining(worker, NOW, SMALL) == 19 * HOUR
    assert durations.remaining(worker, NOW, BIG) == 2 * HOUR


# where, and what explain says


def test_explanation_names_runs_behind_a_fitted_duration() -> None:
    fleet = two_sizes("20h")

    found = explain_request(fleet, BOTH, guard(fleet, reconcile(fleet, BOTH)), "1")

    assert found is not None
    fitted = ("7 runs", "norm", "5", "mons")
    assert [tells(each.source, *fitted) for each in found.places] == [True, True]
    assert [str(each.cost.quantize(Decimal("0.01"))) for each in found.places if each.cost] == [
        "1.68",
        "1.60",
    ]


def test_explanation_names_speed_or_cores_behind_a_duration() -> None:
    fleet = two_sizes([{"takes": "24h", "machine": "norm"}])
    faster = two_sizes("24h", speeds={"mons": "600%"})
    world = a_world()

    explained = (
        explain_request(each, world, guard(each, reconcile(each, world)), "1")
        for each in (fleet, faster)
    )

    own, cores, given, speed = chain(*([p.source for p in e.places] for e in explained if e))
    assert (own, given) == ("", "")
    assert tells(cores, "cores", "64", "8", "90%")
    assert tells(speed, "speed", "600%", "100%")
