"""What explain says of unknown figures: never a zero."""

from fleet.explain.case import Case
from fleet.explain.objects import explain_pool, explain_worker
from fleet.explain.request import FIRST_READ
from fleet.model.facts import Unknown
from fleet.model.plan import NotKnown
from fleet.model.values import UnknownFigure
from fleet.reconcile import reconcile
from tests.builders import (
    a_fleet,
    a_plan,
    a_pool_verdict,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_worker_verdict,
    a_world,
)
from tests.builders.sentences import tells


def facts_of(*not_known: NotKnown) -> tuple[str, ...]:
    plan = a_plan(pools=(a_pool_verdict(not_known=not_known),))
    explained = explain_pool(Case(a_fleet(), a_world(), plan), "builders")
    assert explained is not None
    return explained.facts[:2]


def test_explanation_has_every_known_figure() -> None:
    machines, cost = facts_of()
    assert tells(machines, "1 busy", "0 idle", "0 starting", "0 other", "0", "0", "0")
    assert tells(cost, "0.12 EUR/h", "0.12", "0.12 EUR/h")


def test_machines_and_demand_of_pool_are_unknown_without_store() -> None:
    fleet = a_sim_fleet()
    missing = Unknown(unknown="there is no store at fleet.db; create it with `fleet state init`")
    for requests in ((), (a_request(),)):
        world = a_sim_world(requests=requests).altered(stacks=missing)

        explained = explain_pool(Case(fleet, world, reconcile(fleet, world)), "builders")

        assert explained is not None
        assert tells(explained.facts[0], "machines", "unknown")
        assert tells(explained.facts[1], "cost", "unknown")
        said = [reason.because for reason in explained.reasons]
        assert any(tells(each, "1", "unknown", missing.unknown) for each in said)
        assert not any("idle" in because for because in said)
        assert explained.next_steps[0] == FIRST_READ


def test_worker_without_price_has_unknown_cost() -> None:
    plan = a_plan(workers=(a_worker_verdict(cost=UnknownFigure(unknown="no price is known")),))
    explained = explain_worker(Case(a_fleet(), a_world(), plan), "debian-ci-builders-0001")

    assert explained is not None
    assert any(fact.endswith(", price unknown") for fact in explained.facts)
