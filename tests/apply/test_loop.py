"""The loop: when it runs, what ends it, and with which exit code; its waiter waits no time."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.cli.apply import ApplyResult, Schedule, find_on_the_way, keep_applying
from fleet.errors import FleetError, Locked, StoreMissing
from fleet.guard import guard
from fleet.model.facts import World
from fleet.model.plan import Estimate, Release
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_plan, a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.deciding import fleet_with
from tests.fakes.engine import FixedClock
from tests.fakes.waiter import FakeWaiter

BEGAN = datetime(2026, 11, 21, 8, tzinfo=UTC)
MINUTELY = Schedule(60)
QUIET = ApplyResult(0)
BUSY = ApplyResult(0, ("1 busy worker",))


class Loop:
    """One loop over runs that come to what a test says, each after so many seconds."""

    def __init__(
        self, *results: ApplyResult | Exception, took: float = 0, asked_after: int | None = None
    ) -> None:
        self.clock = FixedClock(BEGAN)
        self.waiter = FakeWaiter(self.clock, asked_after=asked_after)
        self.said: list[str] = []
        self.began: list[float] = []
        self._results = iter(results)
        self._took = took

    def keep(self, rhythm: Schedule) -> int:
        """Return the exit code of the loop."""
        return keep_applying(rhythm, self._run, self.clock, self.waiter, self.said.append)

    def _run(self) -> ApplyResult:
        self.began.append((self.clock.moment - BEGAN).total_seconds())
        self.clock.moment += timedelta(seconds=self._took)
        result = next(self._results)
        if isinstance(result, Exception):
            raise result
        return result


# when it runs


def test_runs_start_at_interval_regardless_of_duration() -> None:
    loop = Loop(BUSY, BUSY, BUSY, took=25, asked_after=2)

    loop.keep(MINUTELY)

    assert loop.began == [0, 60, 120]


def test_next_run_starts_immediately_after_a_long_one() -> None:
    loop = Loop(BUSY, BUSY, BUSY, took=90, asked_after=2)

    loop.keep(MINUTELY)

    assert loop.began == [0, 90, 180]


def test_loop_is_not_delayed_when_clock_is_set_back() -> None:
    loop = Loop(BUSY, BUSY, took=-86_400, asked_after=1)

    loop.keep(MINUTELY)

    assert loop.waiter.waits == [60]


# what ends it


def test_loop_continues_after_quiet_run_without_until() -> None:
    loop = Loop(QUIET, QUIET, QUIET, QUIET, asked_after=3)

    assert loop.keep(MINUTELY) == 0
    assert len(loop.began) == 4


def test_until_quiet_stops_after_first_quiet_run() -> None:
    loop = Loop(BUSY, BUSY, QUIET, BUSY)

    assert loop.keep(Schedule(60, until_quiet=True)) == 0
    assert len(loop.began) == 3
    assert len(loop.said) == 1
    assert "3 runs" in loop.said[0]


def test_run_with_problems_is_not_quiet() -> None:
    loop = Loop(ApplyResult(1), QUIET)

    assert loop.keep(Schedule(60, until_quiet=True)) == 0
    assert "2 runs (1 failed)" in loop.said[0]


def test_no_run_starts_after_timeout() -> None:
    loop = Loop(BUSY, BUSY, BUSY, BUSY)

    assert loop.keep(Schedule(60, 180)) == 0
    assert loop.began == [0, 60, 120]
    assert loop.clock.moment == BEGAN + timedelta(seconds=120), "nothing is left to wait for"
    assert len(loop.said) == 1
    assert "3 runs" in loop.said[0]
    assert "3m" in loop.said[0]


def test_until_quiet_exits_1_with_reason_when_time_is_over() -> None:
    loop = Loop(BUSY, BUSY)

    assert loop.keep(Schedule(60, 120, until_quiet=True)) == 1
    assert len(loop.said) == 1
    assert all(each in loop.said[0] for each in ("2 runs", "2m", "1 busy worker"))


# what does not end it


@pytest.mark.parametrize(
    "failure", [Locked("another apply holds the lock"), FleetError("it is full")]
)
def test_failed_or_locked_run_is_reported_and_loop_continues(failure: FleetError) -> None:
    loop = Loop(QUIET, failure, QUIET, asked_after=2)

    loop.keep(MINUTELY)

    assert len(loop.began) == 3
    assert str(failure) in loop.said[0]


def test_loop_stops_with_init_command_when_store_is_missing() -> None:
    loop = Loop(StoreMissing("create it with `fleet state init`"), QUIET)

    with pytest.raises(StoreMissing, match="fleet state init"):
        loop.keep(MINUTELY)

    assert (loop.began, loop.waiter.waits) == ([0], [])


# with which exit code


def test_loop_waits_longer_after_each_run_with_a_defect() -> None:
    loop = Loop(KeyError("a"), KeyError("b"), BUSY, BUSY, asked_after=3)

    assert loop.keep(MINUTELY) == 0

    assert loop.began == [0, 120, 360, 420]
    assert [text.count("Traceback") for text in loop.said[:2]] == [1, 1]


def test_loop_ends_after_six_consecutive_defects() -> None:
    loop = Loop(*(KeyError("a") for _ in range(9)))

    with pytest.raises(KeyError):
        loop.keep(MINUTELY)

    assert loop.began == [0, 120, 360, 600, 840, 1080]
    assert [text.count("Traceback") for text in loop.said] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ((ApplyResult(5), ApplyResult(0)), 0),
        ((ApplyResult(0), ApplyResult(5)), 5),
        ((ApplyResult(1), ApplyResult(4)), 4),
        ((ApplyResult(0), StoreMissing("gone")), 4),
        ((ApplyResult(0), Locked("taken")), 0),
        ((ApplyResult(5), Locked("taken")), 5),
        ((Locked("taken"), Locked("taken")), 1),
    ],
)
def test_exit_code_is_that_of_last_run_with_lock(
    results: tuple[ApplyResult | FleetError, ...], code: int
) -> None:
    assert Loop(*results).keep(Schedule(60, 120)) == code


def test_loop_exits_0_when_stopped_by_signal() -> None:
    assert Loop(ApplyResult(5), asked_after=0).keep(MINUTELY) == 0


# what is on the way


def on_the_way(fleet: Fleet, world: World) -> list[str]:
    return list(find_on_the_way(guard(fleet, reconcile(fleet, world))))


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (a_sim_world(), []),
        (a_sim_world(requests=(a_request(),)), ["1 action", "1 waiting request"]),
        (a_sim_world(a_worker(), requests=(a_request(),)), ["1 waiting request", "1 idle worker"]),
        (a_sim_world(a_worker(busy=True)), ["1 busy worker"]),
        (a_sim_world(a_worker(busy=True, draining=True)), ["1 busy worker"]),
        (a_sim_world(a_worker(draining=True)), ["1 action"]),
        (a_sim_world(a_worker()), ["1 idle worker"]),
        (a_sim_world(a_worker(since=ago(hours=3))), ["1 action"]),
        (
            a_sim_world(requests=(a_request(),), starting=("debian-ci-builders-0001",)),
            ["1 waiting request", "1 starting worker"],
        ),
        (a_sim_world(requests=(a_request(required=("riscv",)),)), []),
    ],
)
def test_world_lists_pending_work_of_later_runs(world: World, expected: list[str]) -> None:
    assert on_the_way(a_sim_fleet(), world) == expected


def test_request_is_pending_when_pool_is_at_max() -> None:
    full = fleet_with(max=1)
    world = a_sim_world(a_worker(busy=True), requests=(a_request(),))

    assert on_the_way(full, world) == ["1 waiting request", "1 busy worker"]


@pytest.mark.parametrize("kept", [{"min": 1}, {"spare": 1}, {"mode": "pause"}])
def test_machine_kept_by_min_spare_or_pause_is_not_pending(kept: dict[str, object]) -> None:
    assert on_the_way(fleet_with(**kept), a_sim_world(a_worker(since=ago(hours=3)))) == []


def test_pool_in_mode_observe_has_no_pending_work() -> None:
    fleet = fleet_with(mode="observe")

    assert on_the_way(fleet, a_sim_world(requests=(a_request(),))) == []
    assert on_the_way(fleet, a_sim_world(a_worker())) == []


def test_throttled_actions_are_pending() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk")},
        guards={"throttle": {"create": {"share": "100%", "free_below": 1, "count": 1}}},
    )
    requests = tuple(a_request(id=str(number)) for number in range(3))

    assert on_the_way(fleet, a_sim_world(requests=requests)) == ["3 actions", "3 waiting requests"]


def test_static_machine_is_not_pending() -> None:
    fleet = a_sim_fleet(pools={"legacy": {"static": ["builder-01"]}})
    world = a_sim_world()
    reading = world.queues["debian"].altered(
        workers=(a_worker(name="builder-01", machine=None, pool=None, busy=True),)
    )

    assert on_the_way(fleet, world.altered(queues={"debian": reading})) == []


def test_worker_to_disable_is_pending() -> None:
    release = Release(pool="builders", worker="w", registry="debian", because="it is gone")

    assert list(find_on_the_way(a_plan(releases=(release,)))) == ["1 action"]


def test_sampled_queue_is_pending() -> None:
    estimate = Estimate(queue="debian", listed=9, because="it is long")

    assert len([*find_on_the_way(a_plan(estimates=(estimate,)))]) == 1
