"""Limits of tags, classes, target_wait and `otherwise`, as a whole decision shows them."""

from datetime import timedelta

import pytest

from fleet.model.facts import Demand, QueueReading, Request, Worker, World
from fleet.model.plan import Create, LimitVerdict, Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago
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


def made(plan: Plan, pool: str) -> int:
    return sum(isinstance(action, Create) and action.pool == pool for action in plan.actions)


def why_not(plan: Plan) -> set[tuple[str, tuple[str | int, ...]]]:
    return {(b.because, b.path) for unserved in plan.unserved for b in unserved.blocked}


def a_busy_giant(number: int = 1, **work: object) -> Worker:
    """Return a giant that runs what `work` says; its work is unknown if that says nothing."""
    said = {"required": (POWER,)} | work if work else None
    return a_worker(name=f"debian-ci-giants-{number:04}", pool="giants", busy=True, work=said)


def test_total_limit_of_tag_is_respected_within_one_batch() -> None:
    plan = reconcile(powerful(limits={"total": 2}), a_sim_world(requests=asking(5)))

    assert made(plan, "giants") == 2
    ((because, path),) = why_not(plan)
    assert path == ("tags", POWER, "limits", "total")
    assert tells(because, "limits.total", POWER, "2", "0")


def test_running_work_counts_to_limit_of_tag() -> None:
    world = a_sim_world(a_busy_giant(requester="ada"), requests=asking(5))

    assert made(reconcile(powerful(limits={"total": 2}), world), "giants") == 1


@pytest.mark.parametrize(
    ("key", "field"),
    [("submitter", "requester"), ("owner", "owner"), ("scope", "scope"), ("team", "team")],
)
def test_limit_applies_separately_to_each_payer(key: str, field: str) -> None:
    requests = (*asking(3, **{field: "ada"}), *asking(3, first=4, **{field: "bob"}))
    world = a_sim_world(a_busy_giant(1, **{field: "ada"}), requests=requests)

    plan = reconcile(powerful(limits={"per": {key: 2}}), world)

    served = [key for signature in plan.signatures for key in signature.by_create]
    assert sorted(served) == ["debian/1", "debian/4", "debian/5"]
    assert {path for _, path in why_not(plan)} == {("tags", POWER, "limits", "per", key)}


def test_requests_of_unknown_submitters_count_together() -> None:
    plan = reconcile(
        powerful(limits={"per": {"submitter": 2}}), a_sim_world(requests=asking(5, requester=None))
    )

    assert made(plan, "giants") == 2


def test_busy_worker_with_unknown_work_counts_to_every_limit() -> None:
    world = a_sim_world(a_busy_giant(), requests=asking(3, requester="ada"))

    assert made(reconcile(powerful(limits={"per": {"submitter": 2}}), world), "giants") == 1


def test_busy_worker_counts_only_to_limits_of_its_work() -> None:
    world = a_sim_world(a_busy_giant(requester="ada", required=()), requests=asking(5))

    assert made(reconcile(powerful(limits={"total": 2}), world), "giants") == 2


@pytest.mark.parametrize(("requester", "whom"), [("ada", "ada"), (None, "unknown submitter")])
def test_per_submitter_limit_names_submitter(requester: str | None, whom: str) -> None:
    plan = reconcile(
        powerful(limits={"per": {"submitter": 1}}),
        a_sim_world(a_busy_giant(requester="ada"), requests=asking(2, requester=requester)),
    )

    taken = 1 if requester else 0
    ((because, _),) = why_not(plan)
    assert tells(because, "limits.per.submitter", POWER, "1", whom, str(taken))


def test_lowered_limit_creates_and_deletes_no_machine() -> None:
    world = a_sim_world(a_busy_giant(requester="ada"), requests=asking(1, requester="ada"))

    plan = reconcile(powerful(limits={"total": 0}), world)

    assert plan.is_quiet


def test_low_tag_is_served_last_at_any_priority() -> None:
    low = asking(3, priority=100)
    normal = tuple(a_request(id=str(number), priority=0) for number in (7, 8))
    fleet = a_sim_fleet(
        pools={"giants": a_pool(provider="desk", provides=[POWER], max=2)},
        tags={POWER: {"priority": "low"}},
    )

    plan = reconcile(fleet, a_sim_world(requests=(*low, *normal)))

    served = [key for signature in plan.signatures for key in signature.by_create]
    assert sorted(served) == ["debian/7", "debian/8"]


def test_longer_waiting_request_is_served_first() -> None:
    young = a_request(id="1", required=(POWER,), pending_since=ago(minutes=1))
    old = a_request(id="2", required=(POWER,), pending_since=ago(hours=5))

    plan = reconcile(powerful(max=1), a_sim_world(requests=(young, old)))

    assert [key for s in plan.signatures for key in s.by_create] == ["debian/2"]


def waiting(fleet: Fleet, hours: float, *, stored: bool = False) -> Plan:
    requests = asking(1, pending_since=NOW - timedelta(hours=hours))
    demand = Demand(read_at=NOW, requests=requests, stored=stored)
    reading = QueueReading(demand=demand)
    return reconcile(fleet, a_sim_world(queues={"debian": reading}))


OTHERWISE = {"on_demand": True, "otherwise": {"after": "2h", "drop": True}}


def test_unavailable_tag_is_waived_after_otherwise() -> None:
    fleet = powerful(max=0, **OTHERWISE)

    assert waiting(fleet, 1.9).is_quiet
    assert made(waiting(fleet, 2.1), "builders") == 1


def test_waived_tag_is_reported() -> None:
    signature, *_ = waiting(powerful(max=0, **OTHERWISE), 2.1).signatures

    assert (signature.required, signature.dropped) == ((POWER,), (POWER,))


def test_stored_tag_is_not_waived() -> None:
    assert waiting(powerful(max=0, **OTHERWISE), 99, stored=True).is_quiet


def test_request_waits_for_its_tag_without_otherwise() -> None:
    assert waiting(powerful(max=0, on_demand=True), 99).is_quiet


def patient(target_wait: str | None, **overrides: object) -> Fleet:
    pool = a_pool(provider="desk", max=9, **({"target_wait": target_wait} if target_wait else {}))
    return a_sim_fleet(pools={"builders": pool}, **overrides)


def five(**overrides: object) -> World:
    requests = (a_request(id=str(n), **overrides) for n in range(1, 6))
    return a_sim_world(requests=tuple(requests))


def test_each_request_gets_a_machine_when_boot_takes_target_wait() -> None:
    ten = a_sim_world(requests=tuple(a_request(id=str(n), expected_seconds=60) for n in range(10)))

    plan = reconcile(patient("90s"), ten)

    assert made(plan, "builders") == 9
    assert [unserved.count for unserved in plan.unserved] == [1]


def test_plan_proves_optimal_cost() -> None:
    optimum = reconcile(patient(None), five()).optimum

    assert optimum is not None
    assert optimum.cost == optimum.bound > 0
    assert optimum.gap == 0


def test_plan_proves_no_cost_without_creations_for_requests() -> None:
    assert reconcile(patient(None), a_sim_world()).optimum is None


def budgeted(**durations: str) -> Fleet:
    pool = a_pool(provider="desk", budget={"per_month": "800 EUR"})
    return a_sim_fleet(pools={"builders": pool}, durations=durations)


def test_work_of_unknown_duration_is_reported_if_it_costs_a_budget() -> None:
    plan = reconcile(budgeted(), five())

    (warning,) = plan.warnings
    assert warning.rule == "unknown-duration"
    assert tells(warning.message, "5 requests", "debian")


def test_known_durations_cause_no_warning() -> None:
    assert reconcile(budgeted(any="20m"), five()).warnings == ()
    assert reconcile(patient(None), five()).warnings == ()


def test_ineffective_target_wait_is_reported() -> None:
    (warning,) = reconcile(patient("1h"), five()).warnings

    assert warning.rule == "unknown-duration"
    assert tells(warning.message, "target_wait", "builders", "5")


def test_spare_machine_respects_limit_used_by_requests() -> None:
    pool = a_pool(provider="desk", provides=[POWER], max=9, spare=1)
    fleet = a_sim_fleet(pools={"giants": pool}, tags={POWER: {"limits": {"total": 1}}})

    assert made(reconcile(fleet, a_sim_world(requests=asking(3))), "giants") == 1
    assert made(reconcile(fleet, a_sim_world()), "giants") == 1


PATH = ("tags", POWER, "limits")


def decided(*workers: Worker, requests: tuple[Request, ...] = (), **limits: object) -> Plan:
    """Return the plan where a tag of giants has these limits."""
    return reconcile(powerful(limits=limits), a_sim_world(*workers, requests=requests))


def asked(number: int, who: str | None) -> Request:
    return a_request(id=str(number), required=(POWER,), requester=who)


def figures(plan: Plan) -> list[tuple[str | None, int, int, int]]:
    return [(each.who, each.in_use, each.given, each.waiting) for each in plan.limits]


def test_limit_verdict_counts_in_use_given_and_waiting() -> None:
    requests = (asked(1, "ada"), asked(2, "ada"), asked(3, "ben"))

    plan = decided(a_busy_giant(1, requester="ada"), requests=requests, per={"submitter": 2})

    assert figures(plan) == [("ada", 1, 1, 1), ("ben", 0, 1, 0)]
    assert plan.limits[0] == LimitVerdict(
        path=(*PATH, "per", "submitter"), who="ada", limit=2, in_use=1, given=1, waiting=1
    )


def test_total_limit_has_no_payer() -> None:
    plan = decided(a_busy_giant(1, requester="eve"), requests=(asked(1, "ada"),), total=1)

    assert figures(plan) == [(None, 1, 0, 1)]
    assert plan.limits[0].path == (*PATH, "total")


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


def test_work_without_the_tag_does_not_count_to_its_limit() -> None:
    plan = decided(
        a_busy_giant(1, required=("other",), requester="ada"), per={"submitter": 1}, total=1
    )

    assert plan.limits == ()
