"""What is said of requests that may run without a tag once they have waited long enough."""

from datetime import timedelta

from fleet.explain.values import Explanation
from fleet.guard import guard
from fleet.model.decisions import Unfit
from fleet.model.facts import Demand, World
from fleet.planner.step import move_time
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_reading, a_request, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.explaining import explain_request
from tests.builders.sentences import tells

FLEET = a_sim_fleet(
    pools={
        "normal": a_pool(provider="desk", max=1),
        "power": a_pool(provider="desk", max=0, provides=["power"]),
    },
    tags={"power": {"on_demand": True, "otherwise": {"after": "30m", "drop": True}}},
)


def waiting(minutes: int, *, stored: bool = False) -> World:
    """Return a world in which a build has waited so long for the tag."""
    request = a_request(id="1", required=("power",), pending_since=ago(minutes=minutes))
    world = a_sim_world(requests=(request,))
    reading = world.queues["debian"]
    assert isinstance(reading.demand, Demand)
    demand = reading.demand.altered(stored=stored)
    queues = {"debian": reading.altered(demand=demand)}
    return world.altered(queues=queues)


def told(world: World, fleet: Fleet = FLEET) -> Explanation:
    plan = guard(fleet, reconcile(fleet, world))
    found = explain_request(fleet, world, plan, "1")
    assert found is not None
    return found


def test_next_waiver_is_equal_in_each_plan() -> None:
    world = waiting(10)

    looks = [told(move_time(world, world.time + timedelta(minutes=m))) for m in (0, 3, 7)]

    (sentence,) = {look.suggestions[0].sentence for look in looks}
    assert tells(sentence, "2026-11-21 08:20 UTC")


def test_plan_and_explain_report_tag_stored_by_queue() -> None:
    world = waiting(40, stored=True)

    answer = told(world)
    (warning,) = reconcile(FLEET, world).warnings

    assert "no effect" in answer.reasons[0].because
    assert answer.reasons[0].path == ("tags", "power", "otherwise")
    assert warning.rule == "otherwise-without-effect"
    assert "tags.power.otherwise" in warning.message
    assert tells(warning.message, "1 request", "queue debian")


STATIC = a_sim_fleet(
    pools={"normal": {"static": ["old-1"]}},
    tags={"power": {"otherwise": {"after": "30m", "drop": True}}},
    durations={"any": "10m"},
)


def busy_static(*required: str) -> World:
    """Return a world whose only worker is busy, with a request that waives tag power."""
    request = a_request(id="1", required=required, pending_since=ago(minutes=40))
    worker = a_worker(name="old-1", machine=None, pool=None, busy=True)
    return a_sim_world(queues={"debian": a_reading(request, workers=(worker,))})


def test_request_starts_on_busy_worker_without_waived_tag() -> None:
    answer = told(busy_static("power"), STATIC)

    assert not answer.never
    assert answer.assumed is not None
    assert not tells(answer.headline, "power")


def test_waived_tag_is_not_a_reason_against_a_pool() -> None:
    world = busy_static("power", "gpu")
    answer = told(world, STATIC)

    (reason,) = [each for each in answer.reasons if each.path == ("pools", "normal")]
    assert "gpu" in reason.because
    assert "power" not in reason.because
    (decision,) = reason.decisions
    assert (decision.code, decision.figures.tags) == (Unfit.TAG_MISSING, ("gpu",))
    assert "gpu" in decision.message
