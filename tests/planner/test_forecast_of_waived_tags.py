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
TWO_BUSY = (busy(FIRST, 60), busy(SECOND, 600))


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
