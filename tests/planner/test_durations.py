"""How long work runs on which machine, what it costs there, and where it ends in time."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet.guard import guard
from fleet.model.facts import TaskRuns
from fleet.model.plan import Create, Plan
from fleet.planner.durations import Durations, MachineKind, Timing, kind_at
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_fleet,
    a_reading,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_worker,
    a_world,
    ago,
)
from tests.builders.cases import Block, read_blocks
from tests.builders.deciding import with_machines
from tests.builders.durations import DAY, HOUR, two_sizes
from tests.builders.explaining import explain_request
from tests.builders.sentences import tells

MEASURED = [
    {"match": "chromium", "takes": "24h", "machine": "norm"},
    {"match": "chromium", "takes": "3h", "machine": "mons"},
    {"takes": "30m"},
]


def planned(fleet: Fleet, **request: object) -> Plan:
    waiting = a_request(**{"id": "1", "task": "sbuild", "package": "chromium"} | request)
    return guard(fleet, reconcile(fleet, a_sim_world(requests=(waiting,))))


def made(plan: Plan) -> list[tuple[str, Decimal | None]]:
    return [(a.inputs.type, a.until_idle) for a in plan.actions if isinstance(a, Create)]


# how long


CASES = [*read_blocks(Path(__file__).parent / "lengths")]
RUNS = (("norm", (18, 19, 20, 20, 21, 22, 90)), ("mons", (2, 3, 3, 4, 1)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_build_takes_as_long_as_in_its_case(case: Block) -> None:
    assert lengths_of(*case.parts) == case.result


def lengths_of(of_fleet: str, request: str) -> str:
    """Return how long a build takes on each machine, as text."""
    said, waiting = (yaml.safe_load(f"{{{text}}}") for text in (of_fleet, request))
    fleet = two_sizes(said["stated"], speeds=said.get("speeds", {}))
    if "any" in said:
        usual = a_fleet(durations={"any": said["any"]}).durations
        fleet = fleet.model_copy(update={"durations": {**fleet.durations, **usual}})
    runs = [
        TaskRuns(
            task="sbuild", package="chromium", machine=kind, seconds=tuple(h * HOUR for h in hours)
        )
        for kind, hours in RUNS
        if said.get("runs")
    ]
    reading = a_reading()
    demand = reading.demand.altered(runs=tuple(runs))
    world = a_world(queues={"debian": reading.altered(demand=demand)})
    build = a_request(**({"task": "sbuild", "package": "chromium"} | waiting))
    seconds, timing = Durations(fleet, world).of("debian", build)
    kinds = {"norm": kind_at(fleet, "normal", "norm"), "mons": kind_at(fleet, "powerful", "mons")}
    return ", ".join(
        f"{name} {timing.on(kind, seconds) if timing else seconds}" for name, kind in kinds.items()
    )


def test_running_work_has_duration_of_its_whole_name() -> None:
    fleet = two_sizes([{"match": "debian/base/any/chromium", "takes": "20h"}, {"takes": "5m"}])
    work = {"task": "sbuild", "package": "chromium", "names": ["debian/base/any/chromium"]}
    worker = a_worker(busy=True, work=work | {"started_at": ago(hours=1)})

    assert Durations(fleet, a_world()).remaining(worker, NOW) == 19 * HOUR


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 100), st.integers(0, 10 * DAY))
def test_speedup_by_cores_is_at_least_one_and_at_most_linear(
    before: int, after: int, parallel: int, seconds: int
) -> None:
    timing = Timing(cores=min(before, after), parallel=parallel)

    found = timing.on(MachineKind("x", max(before, after)), seconds)

    assert found is not None
    assert seconds * min(before, after) // max(before, after) <= found <= seconds
    assert timing.on(MachineKind("x", min(before, after)), seconds) == seconds


# where


def test_fast_machine_is_created_when_build_is_cheaper_by_duration() -> None:
    # 24 h and the rest are 25 h of 0.08 EUR; 3 h and the rest are 4 h of 0.40 EUR.
    assert made(planned(two_sizes(MEASURED))) == [("mons", Decimal("1.60"))]
    assert made(planned(two_sizes(MEASURED), package="hello")) == [("norm", Decimal("0.16"))]


def test_target_wait_counts_parallel_share_of_build() -> None:
    fleet = two_sizes([{"takes": "2h", "machine": "norm", "parallel": "100%"}], target_wait="2h")
    requests = tuple(a_request(id=f"{n}", task="sbuild") for n in range(7))

    plan = reconcile(fleet, a_sim_world(requests=requests))

    # Seven builds of 15 minutes on one powerful machine, or seven small ones of 3 hours.
    assert [kind for kind, _ in made(plan)] == ["mons"]


@pytest.mark.parametrize(
    ("deadline", "expected"), [("48h", ["mons"]), ("24h", []), (None, ["norm"])]
)
def test_build_gets_only_machines_that_meet_its_deadline(
    deadline: str | None, expected: list[str]
) -> None:
    # 55 h on the small machine, 29.6 h on the powerful one, where it costs more.
    stated = [{"takes": "55h", "machine": "norm"}]

    plan = planned(two_sizes(stated, deadline))

    assert [kind for kind, _ in made(plan)] == expected


def test_unserved_build_has_duration_and_deadline_per_pool() -> None:
    plan = planned(two_sizes([{"takes": "55h", "machine": "norm"}], "24h"))

    (unserved,) = plan.unserved
    assert tells(
        unserved.because,
        "normal",
        "2d",
        "7h",
        "debian",
        "1d",
        "powerful",
        "1d",
        "5h",
        "debian",
        "1d",
    )
    assert unserved.path == ("queues", "debian", "deadline")
    assert [each.pool for each in unserved.blocked] == ["normal", "powerful"]


def test_build_does_not_wait_for_worker_that_misses_its_deadline() -> None:
    fleet = two_sizes([{"takes": "55h", "machine": "norm"}], "48h")
    worker = a_worker(name="debian-ci-normal-0001", pool="normal")
    waiting = a_request(id="1", task="sbuild")

    world = with_machines(a_sim_world(worker, requests=(waiting,)), type="norm")

    assert [kind for kind, _ in made(reconcile(fleet, world))] == ["mons"]


def test_build_at_copr_has_deadline_of_48_hours_by_default() -> None:
    copr = {"kind": "copr", "url": "https://copr.example"}
    fleet = a_sim_fleet(queues={"copr": copr, "own": copr | {"deadline": "72h"}})

    found = [Durations(fleet, a_world()).of(queue, a_request())[1] for queue in ("copr", "own")]

    assert [each.deadline for each in found if each] == [2 * DAY, 3 * DAY]


def test_deadline_of_request_precedes_deadline_of_queue() -> None:
    # 55 h on the small machine, 29.6 h on the powerful one, where it costs more.
    fleet = two_sizes([{"takes": "55h", "machine": "norm"}], "24h")

    assert [kind for kind, _ in made(planned(fleet, deadline_seconds=48 * HOUR))] == ["mons"]
    assert [kind for kind, _ in made(planned(fleet, deadline_seconds=72 * HOUR))] == ["norm"]
    assert made(planned(fleet, deadline_seconds=HOUR)) == []


# what explain says


def test_explanation_has_end_and_cost_per_place() -> None:
    fleet = two_sizes(MEASURED, "48h")
    waiting = a_request(id="1", task="sbuild", package="chromium")
    world = a_sim_world(requests=(waiting,))

    found = explain_request(fleet, world, guard(fleet, reconcile(fleet, world)), "1")

    assert found is not None
    begin = NOW + timedelta(seconds=90)
    assert [(p.pool, p.type, p.start, p.seconds, p.cost) for p in found.places] == [
        ("normal", "norm", begin, DAY, Decimal("2.00")),
        ("powerful", "mons", begin, 3 * HOUR, Decimal("1.60")),
    ]
    assert [p.end for p in found.places] == [begin + timedelta(seconds=n) for n in (DAY, 3 * HOUR)]
    assert found.expected is not None
