"""What reconcile makes of a queue that only partly read: scale-down paused."""

from fleet.explain.case import Case
from fleet.explain.objects import explain_pool
from fleet.model.facts import Demand, QueueSample, Request, Worker, World
from fleet.model.plan import Plan
from fleet.planner.forecast import forecast
from fleet.reconcile import reconcile
from fleet.report.json import plan_to_json
from fleet.report.plan import plan_to_markdown
from fleet.schema.model import Fleet
from tests.builders import NOW, a_reading, a_request, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.deciding import FIRST, actions_of, fleet_with
from tests.builders.decisions import SAMPLE
from tests.builders.sentences import tells
from tests.rigs.shown import plan_to_text

LONG_IDLE = a_worker(since=ago(days=1))


def sampled(*requests: Request, sample: QueueSample | None = SAMPLE) -> Demand:
    return Demand(read_at=NOW, requests=requests, stored=True, estimate=True, sample=sample)


def a_sampled_world(*workers: Worker, demand: Demand, starting: tuple[str, ...] = ()) -> World:
    queues = {"debian": a_reading(workers=None).altered(demand=demand)}
    return a_sim_world(*workers, queues=queues, starting=starting)


def planned(world: World, fleet: Fleet | None = None) -> Plan:
    return reconcile(fleet or a_sim_fleet(), world)


def test_plan_names_queue_length_that_requires_sql() -> None:
    plan = planned(a_sampled_world(LONG_IDLE, demand=sampled()))
    shown = plan_to_text(plan, colour=False)

    (estimate,) = plan.estimates

    assert (estimate.queue, estimate.listed, estimate.unlisted, estimate.longest) == (
        "debian",
        1_400,
        98_600,
        1_400,
    )
    assert tells(shown, "1,400", "100,000")
    assert tells(shown, "90,000 in debian", "8,600 in kali")
    assert tells(shown, "above", "1,400")
    assert "queues.debian.read" in shown
    assert tells(plan_to_markdown(plan), "1,400", "100,000")
    assert Plan.model_validate_json(plan_to_json(plan)) == plan


def test_estimate_is_reported_without_a_sample() -> None:
    plan = planned(a_sampled_world(demand=sampled(a_request(count=3), sample=None)))

    (estimate,) = plan.estimates
    assert (estimate.listed, estimate.longest) == (3, None)
    assert tells(plan_to_text(plan, colour=False), "debian", "partly")


def test_old_sample_is_unknown_without_estimate() -> None:
    stale = sampled().altered(read_at=ago(hours=1))

    plan = planned(a_sampled_world(demand=stale))

    assert plan.unread == ("debian",)
    assert plan.estimates == ()


def test_forecast_of_sampled_queue_orders_listed_requests() -> None:
    requests = (a_request(id="7", expected_seconds=600), a_request(id="8"))
    world = a_sampled_world(a_worker(), demand=sampled(*requests))
    fleet = fleet_with(workers={"max": 1})

    found = forecast(fleet, world, planned(world, fleet))

    assert found.starts == {}
    assert sorted(found.not_known) == ["debian/7", "debian/8"]
    assert tells(found.not_known["debian/7"], "0s", "partly read")
    assert tells(found.not_known["debian/8"], "10m", "partly read")


def test_explanation_of_pool_is_unknown_when_queue_is_sampled() -> None:
    world = a_sampled_world(demand=sampled())

    explained = explain_pool(Case(a_sim_fleet(), world, planned(world)), "builders")

    assert explained is not None
    assert tells(explained.headline, "unknown")
    assert tells(explained.reasons[-1].because, "known request")


def test_pools_of_other_queues_shrink_when_one_is_sampled() -> None:
    demand = sampled()
    readings = {
        "debian": a_reading(workers=None),
        "kali": a_reading(workers=None).altered(demand=demand),
    }
    world = a_sim_world(LONG_IDLE, queues=readings)

    plan = planned(world, fleet_with(serves=["debian"]))

    assert actions_of(plan) == [("drain", FIRST)]
