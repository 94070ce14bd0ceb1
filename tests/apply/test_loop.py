"""The loop: when it runs, what ends it, and with which exit code; its waiter waits no time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.cli.apply import ApplyResult, Schedule, find_on_the_way, keep_applying
from fleet.errors import FleetError, Locked, StoreMissing
from fleet.guard import guard
from fleet.model.facts import World
from fleet.model.plan import Estimate, Release
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_plan, a_sim_fleet, a_sim_world, a_worker
from tests.builders.cases import Block, read_blocks
from tests.builders.decisions import Case, read_cases, world_of
from tests.fakes.engine import FixedClock
from tests.fakes.waiter import FakeWaiter

BEGAN = datetime(2026, 11, 21, 8, tzinfo=UTC)
RESULTS: dict[str, ApplyResult | Exception] = {
    "quiet": ApplyResult(0),
    "busy": ApplyResult(0, ("1 busy worker",)),
    "locked": Locked("another apply holds the lock"),
    "full": FleetError("it is full"),
    "no-store": StoreMissing("create it with `fleet state init`"),
    "defect": KeyError("a"),
    "another": KeyError("b"),
}
LOOPS = [*read_blocks(Path(__file__).parent / "loops")]
PENDING = [*read_cases(Path(__file__).parent / "pending")]


class Loop:
    """One loop over runs that come to what a test says, each after so many seconds."""

    def __init__(self, results: list[str], terms: dict[str, str]) -> None:
        self.clock = FixedClock(BEGAN)
        asked = int(terms["asked"]) if "asked" in terms else None
        self.waiter = FakeWaiter(self.clock, asked_after=asked)
        self.said: list[str] = []
        self.began: list[float] = []
        self._results = iter(results)
        self._took = float(terms.get("took", 0))

    def keep(self, rhythm: Schedule) -> str:
        """Return the exit code of the loop, or the exception that ends it."""
        try:
            code = keep_applying(rhythm, self._run, self.clock, self.waiter, self.said.append)
        except (StoreMissing, KeyError) as error:
            return f"{type(error).__name__}: {error}"
        return f"exits {code}"

    def _run(self) -> ApplyResult:
        self.began.append((self.clock.moment - BEGAN).total_seconds())
        self.clock.moment += timedelta(seconds=self._took)
        name = next(self._results)
        result = RESULTS[name] if name in RESULTS else ApplyResult(int(name))
        if isinstance(result, Exception):
            raise type(result)(*result.args)
        return result


@pytest.mark.parametrize("case", LOOPS, ids=lambda case: case.sentence)
def test_loop_runs_and_ends_as_in_its_case(case: Block) -> None:
    results, text = case.parts
    terms = dict(each.partition("=")[::2] for each in text.split())
    loop = Loop(results.split(), terms)
    rhythm = Schedule(60, int(terms.get("for", 0)) or None, until_quiet="until-quiet" in terms)

    ended = loop.keep(rhythm)

    assert f"{ended}; began {' '.join(f'{each:g}' for each in loop.began)}" == case.result
    assert bool(case.because) <= bool(loop.said)
    for number, words in case.because:
        assert all(word in loop.said[int(number)] for word in words.strip().split(", ")), loop.said
    if "silent" in terms:
        assert loop.said == []


def test_loop_is_not_delayed_when_clock_is_set_back() -> None:
    loop = Loop(["busy", "busy"], {"took": "-86400", "asked": "1"})

    loop.keep(Schedule(60))

    assert loop.waiter.waits == [60]


def test_nothing_is_waited_for_when_no_run_follows() -> None:
    loop = Loop(["busy"] * 4, {})

    loop.keep(Schedule(60, 180))

    assert loop.clock.moment == BEGAN + timedelta(seconds=120)


def test_only_the_first_of_consecutive_defects_has_a_traceback() -> None:
    loop = Loop(["defect"] * 9, {})

    loop.keep(Schedule(60))

    assert [text.count("Traceback") for text in loop.said] == [1, 0, 0, 0, 0]


def on_the_way(fleet: Fleet, world: World) -> list[str]:
    return list(find_on_the_way(guard(fleet, reconcile(fleet, world))))


@pytest.mark.parametrize("case", PENDING, ids=lambda case: case.sentence)
def test_later_runs_have_the_work_of_their_case(case: Case) -> None:
    assert (", ".join(on_the_way(case.fleet, world_of(case.world))) or "nothing") == case.decisions


def test_static_machine_is_not_pending() -> None:
    fleet = a_sim_fleet(pools={"legacy": {"static": ["builder-01"]}})
    world = a_sim_world()
    busy = a_worker(name="builder-01", machine=None, pool=None, busy=True)
    reading = world.queues["debian"].altered(workers=(busy,))

    assert on_the_way(fleet, world.altered(queues={"debian": reading})) == []


def test_worker_to_disable_and_sampled_queue_are_pending() -> None:
    release = Release(pool="builders", worker="w", registry="debian", because="it is gone")
    estimate = Estimate(queue="debian", listed=9, because="it is long")

    assert list(find_on_the_way(a_plan(releases=(release,)))) == ["1 action"]
    assert len([*find_on_the_way(a_plan(estimates=(estimate,)))]) == 1
