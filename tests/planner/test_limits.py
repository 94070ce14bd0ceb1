"""Limits of tags, classes, target_wait and `otherwise`, as a whole decision shows them."""

from datetime import timedelta

from fleet.model.facts import Demand, QueueReading, Request, Worker, World
from fleet.model.plan import Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world, a_worker
from tests.builders.sentences import tells

POWER = "extra_powerful"


def powerful(max: int = 9, **rule: object) -> Fleet:  # noqa: A002 - the key of fleet.yaml
    """Return a fleet with everyday builders and giants that provide a tag of this rule."""
    giants = a_pool(provider="desk", machine="ccx63", provides=[POWER], max=max)
    return a_sim_fleet(
        pools={"builders": a_pool(provider="desk"), "giants": giants}, tags={POWER: rule}
    )


def asking(count: int, **overrides: object) -> tuple[Request, ...]:
    first = overrides.pop("first", 1)
    assert isinstance(first, int)
    return tuple(
        a_request(id=str(number), required=(POWER,), **overrides)
        for number in range(first, first + count)
    )


def a_busy_giant(number: int = 1, **work: object) -> Worker:
    """Return a giant that runs what `work` says; its work is unknown if that says nothing."""
    said = {"required": (POWER,)} | work if work else None
    return a_worker(name=f"debian-ci-giants-{number:04}", pool="giants", busy=True, work=said)


def waiting(fleet: Fleet, hours: float, *, stored: bool = False) -> Plan:
    requests = asking(1, pending_since=NOW - timedelta(hours=hours))
    demand = Demand(read_at=NOW, requests=requests, stored=stored)
    reading = QueueReading(demand=demand)
    return reconcile(fleet, a_sim_world(queues={"debian": reading}))


OTHERWISE = {"on_demand": True, "otherwise": {"after": "2h", "drop": True}}


def test_stored_tag_is_not_waived() -> None:
    assert waiting(powerful(max=0, **OTHERWISE), 99, stored=True).is_quiet


def patient(target_wait: str | None, **overrides: object) -> Fleet:
    pool = a_pool(provider="desk", max=9, **({"target_wait": target_wait} if target_wait else {}))
    return a_sim_fleet(pools={"builders": pool}, **overrides)


def five(**overrides: object) -> World:
    requests = (a_request(id=str(n), **overrides) for n in range(1, 6))
    return a_sim_world(requests=tuple(requests))


def budgeted(**durations: str) -> Fleet:
    pool = a_pool(provider="desk", budget={"per_month": "800 EUR"})
    return a_sim_fleet(pools={"builders": pool}, durations=durations)


def test_work_of_unknown_duration_is_reported_if_it_costs_a_budget() -> None:
    plan = reconcile(budgeted(), five())

    (warning,) = plan.warnings
    assert warning.rule == "unknown-duration"
    assert tells(warning.message, "5 requests", "debian")


def test_ineffective_target_wait_is_reported() -> None:
    (warning,) = reconcile(patient("1h"), five()).warnings

    assert warning.rule == "unknown-duration"
    assert tells(warning.message, "target_wait", "builders", "5")


def decided(*workers: Worker, requests: tuple[Request, ...] = (), **limits: object) -> Plan:
    """Return the plan where a tag of giants has these limits."""
    return reconcile(powerful(limits=limits), a_sim_world(*workers, requests=requests))


def asked(number: int, who: str | None) -> Request:
    return a_request(id=str(number), required=(POWER,), requester=who)


def figures(plan: Plan) -> list[tuple[str | None, int, int, int]]:
    return [(each.who, each.in_use, each.given, each.waiting) for each in plan.limits]


def test_limit_verdict_includes_payer_without_requests() -> None:
    plan = decided(
        a_busy_giant(1, requester="eve"), a_busy_giant(2, requester="eve"), per={"submitter": 2}
    )

    assert figures(plan) == [("eve", 2, 0, 0)]


def test_work_of_unknown_owner_counts_for_each() -> None:
    plan = decided(
        a_busy_giant(1),
        a_busy_giant(2, task="sbuild"),
        requests=(asked(1, "ada"),),
        per={"submitter": 3},
    )

    assert figures(plan) == [("ada", 2, 1, 0)]
