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


def test_start_is_on_busy_worker_when_missing_tag_is_waived_by_then() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD,))

    assert starts(a_fleet_that_waives(fast="30m"), world) == {"1": 60}


def test_older_request_starts_first_when_it_waives_its_tag_in_time() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD, YOUNG))

    assert starts(a_fleet_that_waives(fast="30m"), world) == {"1": 60, "2": 70}


def test_younger_request_starts_first_when_the_tag_is_waived_late() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD, YOUNG))

    assert starts(a_fleet_that_waives(fast="75m"), world) == {"2": 60, "1": 70}


def test_start_is_the_waiver_when_the_worker_is_idle_by_then() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD, YOUNG))

    assert starts(a_fleet_that_waives(fast="100m"), world) == {"2": 60, "1": 90}


def test_start_is_the_waiver_when_an_idle_worker_fits_then() -> None:
    world = a_sim_world(a_worker(), requests=(OLD.altered(count=2),))

    assert starts(a_fleet_that_waives(fast="30m"), world) == {"1#1": 20, "1#2": 30}


def test_start_follows_the_last_waiver_when_two_tags_are_missing() -> None:
    both = OLD.altered(required=("fast", "near"))
    world = a_sim_world(*TWO_BUSY, requests=(both,))

    assert starts(a_fleet_that_waives(fast="30m", near="2h"), world) == {"1": 110}


def test_start_is_unknown_when_the_queue_stored_the_tag() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD,))
    reading = world.queues["debian"]
    assert isinstance(reading.demand, Demand)
    stored = reading.altered(demand=reading.demand.altered(stored=True))

    assert starts(a_fleet_that_waives(fast="30m"), world.altered(queues={"debian": stored})) == {}


def test_work_has_no_tag_when_its_request_waived_it() -> None:
    fleet, world = a_fleet_that_waives(fast="30m"), a_sim_world(*TWO_BUSY, requests=(OLD,))
    plan = guard(fleet, reconcile(fleet, world))
    found = forecast(fleet, world, plan)

    after = step(fleet, world, plan, NOW + timedelta(minutes=65), found)

    assert [w.work.required for _, w in after.registered() if w.running == "1" and w.work] == [()]


def test_start_is_unknown_when_the_age_is_unknown() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD.altered(pending_since=None),))

    assert starts(a_fleet_that_waives(fast="30m"), world) == {}


def test_starts_are_in_turn_when_equal_requests_waive_their_tag() -> None:
    world = a_sim_world(*TWO_BUSY, requests=(OLD.altered(count=3), YOUNG))

    assert starts(a_fleet_that_waives(fast="30m"), world) == {
        "1#1": 60,
        "1#2": 70,
        "1#3": 80,
        "2": 90,
    }
