"""The simulation turns recorded worlds into jobs, and runs a fleet on them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fleet.model.facts import Ledger, Request, Unknown, Worker, WorkerState, World
from fleet.model.plan import PoolVerdict
from fleet.model.values import FOR_PEOPLE
from fleet.planner.inventory import take_inventory
from fleet.schema.model import Fleet
from fleet.simulate.farm import Farm
from fleet.simulate.figures import Simulation, WaitCounter
from fleet.simulate.recorded_demand import (
    HORIZON,
    BootDuration,
    KnownHistory,
    Lost,
    PastRequest,
    Refused,
)
from fleet.simulate.replay import SimulationInputs, decide, read_events, simulate
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_reading,
    a_request,
    a_sim_fleet,
    a_stack,
    a_worker,
    a_world,
    an_attempt,
    some_inputs,
)
from tests.builders.recording import a_job, record, record_fixed
from tests.rigs.golden_plans import FOLDERS, load_fleet, load_world, plan_of

MINUTE = timedelta(minutes=1)
EVERY = 10 * MINUTE


def worlds_of(*moments: tuple[Sequence[Request], Sequence[Worker]]) -> list[World]:
    """Return worlds ten minutes apart: what waits, and the workers."""
    return [
        a_world(
            time=NOW + nth * EVERY,
            queues={"debian": a_reading(*waiting, workers=tuple(workers))},
        )
        for nth, (waiting, workers) in enumerate(moments)
    ]


def jobs_of(worlds: Sequence[World]) -> dict[str, PastRequest]:
    return {
        event.key: event
        for event in KnownHistory().events(worlds)
        if isinstance(event, PastRequest)
    }


def runs(request: str, since: datetime) -> Worker:
    return a_worker(state=WorkerState.BUSY, running=request, since=since)


def test_job_has_duration_of_busy_time_of_its_worker() -> None:
    came, began, ended = NOW + 2 * MINUTE, NOW + 13 * MINUTE, NOW + 34 * MINUTE
    worlds = worlds_of(
        ([], []),
        ([a_request(id="7", pending_since=came)], [a_worker(since=NOW)]),
        ([], [runs("7", began)]),
        ([], [runs("7", began)]),
        ([], [a_worker(since=ended)]),
    )

    job = jobs_of(worlds)["debian/7"]

    assert (job.at, job.started, job.seconds, job.withdrawn) == (came, began, 21 * 60, None)


def test_job_ends_when_its_worker_starts_the_next_one() -> None:
    worlds = worlds_of(
        ([], [runs("7", NOW)]), ([], [runs("8", NOW + 4 * MINUTE)]), ([], [a_worker()])
    )

    jobs = jobs_of(worlds)

    assert jobs["debian/7"].seconds == 4 * 60
    assert jobs["debian/8"].at == NOW + 4 * MINUTE


def test_unserved_request_counts_as_withdrawn() -> None:
    worlds = worlds_of(([a_request(id="7")], []), ([], []))

    job = jobs_of(worlds)["debian/7"]

    assert (job.withdrawn, job.seconds, job.since) == (NOW + EVERY, None, NOW - 5 * MINUTE)


def test_short_request_between_two_moments_is_found() -> None:
    worlds = worlds_of(([a_request(id="7", expected_seconds=90)], []), ([], []))

    assert jobs_of(worlds)["debian/7"].seconds == 90


def test_unreadable_queue_ends_no_job() -> None:
    worlds = worlds_of(([a_request(id="7")], []), ([], []), ([a_request(id="7")], []))
    dark = a_reading(workers=()).altered(demand=Unknown(unknown="no answer"))
    worlds[1] = worlds[1].altered(queues={"debian": dark})

    job = jobs_of(worlds)["debian/7"]

    assert (job.withdrawn, job.seconds) == (None, None)


def test_uses_between_worlds_count_as_unseen() -> None:
    past = KnownHistory()
    worlds = worlds_of(([], [a_worker(uses=3)]), ([], [a_worker(uses=5)]))

    list(past.events(worlds))

    assert past.unseen == 2


def test_boot_times_and_shortages_are_replayed() -> None:
    machine = a_machine(created_at=NOW)
    booted = NOW + 3 * MINUTE
    first, then = worlds_of(([], []), ([], [a_worker(since=booted)]))
    listed = {"providers": {"hetzner": a_listing(machine)}}
    refused = an_attempt(worker="debian-ci-builders-0002", at=NOW + MINUTE, result="out-of-stock")
    worlds = [
        first.altered(**listed),
        then.altered(**listed, attempts=(refused,)),
    ]

    found = [
        event
        for event in KnownHistory().events(worlds)
        if isinstance(event, BootDuration | Refused)
    ]

    assert sorted(map(str, found)) == sorted(
        map(
            str,
            [
                BootDuration(NOW + EVERY, "builders", "ccx33", 180),
                Refused(NOW + MINUTE, "builders", "ccx33", "on-demand", is_over=False),
            ],
        )
    )


def test_spot_machine_that_vanished_while_busy_was_taken_back() -> None:
    machine, name = a_machine(), "debian-ci-builders-0001"
    inputs = some_inputs(settings={"market": "spot"})
    there = {
        "providers": {"hetzner": a_listing(machine)},
        "stacks": {"builders": a_stack(workers=(inputs,), ids={name: machine.id})},
    }
    first, then, last = worlds_of(([], [runs("7", NOW)]), ([], [runs("7", NOW)]), ([], []))
    worlds = [first.altered(**there), then.altered(**there), last]

    lost = [event for event in KnownHistory().events(worlds) if isinstance(event, Lost)]

    assert [(each.seconds, each.lost) for each in lost] == [(600, 0), (600, 1)]


@pytest.mark.parametrize("seed", [1, 2])
def test_spot_machines_are_taken_back_as_often_as_in_the_history(seed: int) -> None:
    sold = {"cores": 8, "memory": "32GiB", "disk": "80GiB", "price": "0.09 EUR/h"}
    types = {"quick": sold | {"spot": "0.03 EUR/h"}}
    machine = {"type": "quick", "market": ["spot"]}
    pool = {"provider": "desk", "machine": machine, "image": "trixie", "workers": {"max": 4}}
    fleet = a_sim_fleet(
        fleet="trial",
        providers={"desk": {"kind": "sim", "types": types}},
        queues={"work": {"kind": "world", "path": "world.json"}},
        pools={"builders": pool},
    )
    first = a_world(fleet="trial", providers={}, queues={})
    farm = Farm(fleet, first, seed, lambda _, __: None)
    farm.take(Lost(NOW, 3600, 1))
    for nth in range(3):
        farm.take(a_job(nth, NOW, 10 * 3600))
    world = farm.observe(Ledger())
    plan = decide(fleet, world, take_inventory(fleet, world))
    farm.carry_out(plan)
    made = sorted(farm.boxes)

    farm.advance(NOW + timedelta(hours=9))

    assert made
    assert farm.totals.of("builders").taken > 0
    assert farm.waits > 0  # what they ran waits again


UNEXPLAINED = {"attention", "digests", "estimates", "limits", "notices", "optimum", "prices"}
UNEXPLAINED |= {"rules", "signatures", "unread", "unserved", "warnings"}
OF_POOLS = {name for name, each in PoolVerdict.model_fields.items() if FOR_PEOPLE in each.metadata}
EXCLUDED = dict.fromkeys(UNEXPLAINED, True) | {"pools": {"__all__": OF_POOLS | {"decisions"}}}


def test_simulation_makes_decisions_of_golden_plans() -> None:
    assert FOLDERS
    for folder in FOLDERS:
        fleet, world = load_fleet(folder), load_world(folder)
        decided = decide(fleet, world, take_inventory(fleet, world))
        seen = plan_of(folder).model_dump(exclude=EXCLUDED)
        assert decided.model_dump(exclude=EXCLUDED) == seen, folder.name


def test_events_come_in_order_of_time() -> None:
    jobs = [a_job(n, NOW + n * MINUTE, 60 * (1 + n % 7)) for n in range(100)]
    worlds = record_fixed(jobs, NOW, NOW + timedelta(hours=3), every=EVERY, machines=2)

    times = [event.at for event in KnownHistory().events(worlds)]

    assert times == sorted(times)
    assert len(times) > 50


def test_job_without_end_is_yielded_after_the_horizon() -> None:
    days = HORIZON + timedelta(days=1)
    waiting = a_request(id="7", pending_since=NOW)
    past = KnownHistory()
    kept = []
    for nth in range(days // timedelta(hours=1)):
        own = a_request(id=str(1000 + nth), expected_seconds=1)
        world = a_world(
            time=NOW + nth * timedelta(hours=1), queues={"debian": a_reading(waiting, own)}
        )
        past.see(world)
        list(past.ready(world.time))
        kept.append(past.kept)

    assert max(kept) <= HORIZON / timedelta(hours=1) + 2
    assert kept[-1] == 1


# the fleet that meets it again


QUEUES = (
    {"kind": "world", "path": "world.json"},
    {"kind": "tickets"},
    {"kind": "copr", "url": "https://copr.example.org"},
)


def a_trial(queue: Mapping[str, object] = QUEUES[0], **pool: object) -> Fleet:
    own = {"provider": "desk", "machine": "ccx33", "image": "trixie", "workers": {"max": 4}}
    pools = {"builders": own | pool}
    return a_sim_fleet(
        fleet="trial",
        providers={"desk": {"kind": "sim"}},
        queues={"work": queue},
        pools=pools,
    )


def told(task: SimulationInputs, worlds: Sequence[World]) -> Simulation:
    found = simulate(task, read_events(worlds))
    assert isinstance(found, Simulation), found
    return found


@pytest.mark.slow
@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: queue["kind"])
def test_simulation_of_recorded_fleet_repeats_its_history(queue: Mapping[str, object]) -> None:
    fleet = a_trial(queue, workers={"max": 3})
    end = NOW + timedelta(hours=8)
    jobs = [
        a_job(n, NOW + n * 11 * MINUTE, 60 * (20 + 7 * (n % 5)), expected_seconds=1500)
        for n in range(1, 30)
    ]
    worlds = list(record(fleet, jobs, NOW, end))

    found = told(SimulationInputs(fleet), worlds)

    waits = {
        key: int((job.started - job.at).total_seconds())
        for key, job in jobs_of(worlds).items()
        if job.started is not None
    }
    counted = WaitCounter()
    for wait in waits.values():
        counted.add(wait)
    again = counted.figures("")
    assert found.requests == len(waits) == found.after.waits.requests == 29
    assert found.after.waits.half == again.half
    assert found.after.waits.most == again.most


def test_year_without_requests_has_no_cost() -> None:
    fleet = a_trial()
    worlds = [a_world(fleet="trial", time=NOW + timedelta(days=n), queues={}) for n in range(300)]

    found = told(SimulationInputs(fleet), worlds)

    assert (str(found.after.money), found.after.seconds, found.after.runs) == ("0", 0, 1)


def test_equal_input_gives_equal_bytes() -> None:
    jobs = [a_job(n, NOW + n * 9 * MINUTE, 60 * (20 + n % 9)) for n in range(1, 16)]
    worlds = list(record_fixed(jobs, NOW, NOW + timedelta(hours=3), every=EVERY))
    task = SimulationInputs(a_trial(workers={"max": 4}))

    first, second = (told(task, worlds).model_dump_json() for _ in range(2))

    assert first == second


def test_fewer_machines_make_requests_wait_longer() -> None:
    jobs = [a_job(n, NOW + MINUTE, 3000) for n in range(1, 7)]
    worlds = list(record_fixed(jobs, NOW, NOW + timedelta(hours=6), every=EVERY, machines=6))
    before, after = (SimulationInputs(a_trial(workers={"max": most})) for most in (6, 1))

    found = simulate(after, read_events(worlds), before)

    assert isinstance(found, Simulation)
    assert found.before is not None
    assert found.before.waits.most is not None
    assert found.after.waits.most is not None
    assert found.before.waits.most < found.after.waits.most
    assert found.worse_count > 0
    assert found.worse[0].request.startswith("work/")
    assert (found.worse[0].after or 10**9) > (found.worse[0].before or 0)


def test_simulation_is_unknown_without_complete_moment() -> None:
    dark = a_world(fleet="trial", stacks={"builders": Unknown(unknown="no answer")})

    assert isinstance(simulate(SimulationInputs(a_trial()), read_events([dark])), Unknown)


POOLS = st.fixed_dictionaries(
    {
        "workers": st.sampled_from([{"max": 2}, {"max": 3, "min": 1}, {"max": 3, "spare": 1}]),
        "retire": st.sampled_from(
            [{"idle_after": "15m"}, {"idle_after": "1h"}, {"idle_after": "5m", "max_age": "3h"}]
        ),
    }
)
JOBS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 90), st.booleans()), min_size=1, max_size=8
)


@pytest.mark.slow
@given(pool=POOLS, asked=JOBS)
@settings(phases=[Phase.explicit, Phase.generate])
def test_skipped_runs_do_not_change_the_result(
    pool: dict[str, Any], asked: list[tuple[int, int, bool]]
) -> None:
    """Law: what is left out would have done nothing."""
    fleet = a_trial(**pool)
    jobs = [
        a_job(n, NOW + at * MINUTE, minutes * 60, **({"expected_seconds": 600} if known else {}))
        for n, (at, minutes, known) in enumerate(sorted(asked), 1)
    ]
    worlds = list(record_fixed(jobs, NOW, NOW + 40 * EVERY, every=2 * EVERY, machines=2))

    short, long = (told(SimulationInputs(fleet, skips=skips), worlds) for skips in (True, False))

    dropped = {"after": {"runs": True}}
    assert short.model_dump(exclude=dropped) == long.model_dump(exclude=dropped)
    assert short.after.runs <= long.after.runs


@pytest.mark.parametrize("seconds", [0, 7, 999, 1000, 123_456])
def test_wait_has_three_digits(seconds: int) -> None:
    counter = WaitCounter()

    counter.add(seconds)

    known = counter.figures("").longest
    assert known is not None
    assert 0 <= seconds - known <= seconds / 100


def test_machine_only_in_a_stack_exists_at_first_moment() -> None:
    """What exists at first is there, and goes when it is idle for long."""
    inputs = {"name": "trial-builders-0001", "type": "ccx33", "image": "trixie"}
    machine = a_machine(name="trial-builders-0001", id="sim-1", created_at=NOW - EVERY)
    worker = a_worker(name="trial-builders-0001", since=NOW - MINUTE)
    world = a_world(
        fleet="trial",
        queues={"work": a_reading(workers=None)},
        providers={"desk": a_listing(machine, workers=(worker,))},
        stacks={
            "builders": a_stack(provider="desk", workers=(inputs,), ids={inputs["name"]: "sim-1"})
        },
    )
    later = world.altered(time=NOW + timedelta(hours=5))

    found = told(
        SimulationInputs(a_trial(retire={"idle_after": "10m", "at": "once"})), [world, later]
    )

    pool = found.after.pools[0]
    assert (pool.pool, pool.most, pool.busy_seconds) == ("builders", 1, 0)
    assert 600 <= pool.seconds <= 2400


@pytest.mark.parametrize("requires", [("sandbox:ann/one",), ()])
@pytest.mark.parametrize(("opportunity", "idle_after"), [("10m", "3h"), ("2h", "10m")])
def test_skipped_runs_keep_the_end_of_a_sandbox(
    opportunity: str, idle_after: str, requires: tuple[str, ...]
) -> None:
    """A machine that a sandbox had goes after `reuse.opportunity`, not after `idle_after`."""
    reuse = {"opportunity": opportunity, "max_age": None}
    fleet = a_trial({"kind": "tickets"}, reuse=reuse, retire={"idle_after": idle_after})
    machine = a_machine(name="trial-builders-0001", id="sim-1", created_at=NOW - EVERY)
    sandbox = {"uses": 1, "requires": requires}
    worker = a_worker(name="trial-builders-0001", since=NOW - MINUTE, **sandbox)
    inputs = {"name": "trial-builders-0001", "type": "ccx33", "image": "trixie"}
    worlds = [
        a_world(
            fleet="trial",
            time=at,
            providers={"desk": a_listing(machine)},
            queues={"work": a_reading(workers=(worker,))},
            stacks={
                "builders": a_stack(
                    provider="desk", workers=(inputs,), ids={inputs["name"]: "sim-1"}
                )
            },
        )
        for at in (NOW, NOW + timedelta(hours=8))
    ]

    short, long = (told(SimulationInputs(fleet, skips=skips), worlds) for skips in (True, False))

    dropped = {"after": {"runs": True}}
    assert short.model_dump(exclude=dropped) == long.model_dump(exclude=dropped)
    assert short.after.runs < long.after.runs
    is_long = long.after.pools[0].seconds > timedelta(minutes=90).total_seconds()
    assert is_long == (opportunity == "2h")
