"""Expected starts of requests that will waive a tag (`otherwise`), and of those behind them."""

from datetime import timedelta

from fleet.guard import guard
from fleet.model.facts import Demand, Worker, World
from fleet.planner.forecast import forecast
from fleet.planner.step import step
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago

FIRST, SECOND = "debian-ci-builders-0001", "debian-ci-builders-0002"


def a_fleet_that_waives(**after: str) -> Fleet:
    """Return a fleet with one full pool; requests waive each tag after this wait."""
    tags = {tag: {"otherwise": {"after": wait, "drop": True}} for tag, wait in after.items()}
    pools = {"builders": a_pool(provider="desk", max=2, provides=["amd64"])}
    return a_sim_fleet(pools=pools, tags=tags, durations={"any": "10m"})


def busy(name: str = FIRST, minutes: int = 60) -> Worker:
    work = {"task": "sbuild", "started_at": NOW, "expected_seconds": minutes * 60}
    return a_worker(name=name, busy=True, work=work)


def starts(fleet: Fleet, world: World) -> dict[str, int]:
    """Return the minutes until each start that is known."""
    found = forecast(fleet, world, guard(fleet, reconcile(fleet, world)))
    return {key.partition("/")[2]: seconds // 60 for key, seconds in found.starts.items()}


OLD = a_request(id="1", required=["fast"], pending_since=ago(minutes=10))
YOUNG = a_request(id="2", pending_since=ago(minutes=1))
TWO_BUSY = (busy(FIRST, 60), busy(SECOND, 600))


def test_a_request_starts_on_a_worker_that_fits_once_it_waives_its_tag() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD,))

    assert starts(a_fleet_that_waives(fast="30m"), world) == {"1": 60}


def test_a_request_that_waives_its_tag_in_time_goes_before_a_younger_one() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD, YOUNG))

    assert starts(a_fleet_that_waives(fast="30m"), world) == {"1": 60, "2": 70}


def test_a_request_that_waives_its_tag_too_late_goes_after_a_younger_one() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD, YOUNG))

    assert starts(a_fleet_that_waives(fast="75m"), world) == {"2": 60, "1": 70}


def test_a_request_starts_when_it_waives_its_tag_on_a_worker_that_is_idle_by_then() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD, YOUNG))

    assert starts(a_fleet_that_waives(fast="100m"), world) == {"2": 60, "1": 90}


def test_a_request_waits_for_the_last_tag_that_it_has_to_waive() -> None:
    both = OLD.altered(required=("fast", "near"))
    world = a_sim_world(*TWO_BUSY, requests=(both,))

    assert starts(a_fleet_that_waives(fast="30m", near="2h"), world) == {"1": 110}


def test_a_queue_that_stored_the_tag_starts_no_request_without_it() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD,))
    reading = world.queues["debian"]
    assert isinstance(reading.demand, Demand)
    stored = reading.altered(demand=reading.demand.altered(stored=True))

    assert starts(a_fleet_that_waives(fast="30m"), world.altered(queues={"debian": stored})) == {}


def test_a_request_runs_without_the_tag_that_it_waived() -> None:
    fleet, world = a_fleet_that_waives(fast="30m"), a_sim_world(*TWO_BUSY, requests=(OLD,))
    plan = guard(fleet, reconcile(fleet, world))
    found = forecast(fleet, world, plan)

    after = step(fleet, world, plan, NOW + timedelta(minutes=65), found)

    assert [w.work.required for _, w in after.registered() if w.running == "1" and w.work] == [()]


def test_a_request_of_unknown_age_has_no_expected_start() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD.altered(pending_since=None),))

    assert starts(a_fleet_that_waives(fast="30m"), world) == {}


def test_equal_requests_waive_their_tag_one_after_the_other() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD.altered(count=3), YOUNG))

    assert starts(a_fleet_that_waives(fast="30m"), world) == {
        "1#1": 60,
        "1#2": 70,
        "1#3": 80,
        "2": 90,
    }
