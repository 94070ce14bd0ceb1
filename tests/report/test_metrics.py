"""Metrics: what is exported, in a format that every reader of it takes."""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import pytest

from fleet.guard import guard
from fleet.model.history import LastRun
from fleet.model.orders import Freeze, Hold
from fleet.model.plan import Plan
from fleet.model.price_lists import PriceSource
from fleet.reconcile import reconcile
from fleet.report.metrics import MetricsInputs, metrics_to_text
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_fleet,
    a_guard_result,
    a_listing,
    a_machine,
    a_notice,
    a_plan,
    a_pool,
    a_pool_verdict,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_worker,
    a_world,
    ago,
    an_attempt,
)
from tests.builders.budgeting import a_budget_verdict
from tests.builders.past import a_past_fleet, a_past_plan, a_past_world, versions
from tests.builders.telling import a_blind_plan
from tests.report.conftest import Golden
from tests.rigs.openmetrics import read_metrics

HOSTILE = 'x"} 1\n# TYPE y counter\\\x1b[2J\u202e'


def metrics_of(fleet: Fleet, plan: Plan, **seen: object) -> dict[tuple[str, ...], float]:
    world = seen.pop("world", a_world())
    return read_metrics(metrics_to_text(fleet, None, MetricsInputs(world, plan, **seen)))  # type: ignore[arg-type]  # any of it


def test_complete_fleet_has_every_metric(golden: Golden) -> None:
    past = a_past_fleet()
    rule = {"match": "debian/.*/chromium", "ask": ["big"], "reason": "large"}
    approval = {"guard": "delete", "pool": "builders", "count": 3, "reason": "move"}
    fleet = a_fleet(
        pools=past.pools,
        images=past.images,
        powerful=[rule | {"expires": "2026-12-24"}],
        approvals=[approval | {"expires": "2026-11-28"}],
    )
    plan = a_past_plan().altered(
        guards=(a_guard_result(withheld=2), a_guard_result(guard="cost", result="passed")),
        attention=("debian-ci-builders-0001: its machine is stopped",),
        notices=(a_notice(), a_notice(kind="image", path=("images", "trixie"))),
        orders=(
            Freeze(by="ada", at=ago(hours=1), until=NOW, reason="slow", stops=("creates",)),
            Freeze(by="bob", at=ago(hours=1), until=NOW, reason="bad", pool="builders"),
            Freeze(
                by="ada",
                at=ago(hours=2),
                until=NOW,
                reason="bad",
                pool="builders",
                stops=("deletes",),
            ),
            Hold(by="ada", at=NOW, until=NOW, reason="look", machine="debian-ci-builders-0001"),
        ),
        prices=(PriceSource(provider="hetzner", own=True, as_of="today", age_seconds=7200),),
    )
    expired = a_machine(expires=ago(hours=1))
    world = a_past_world().altered(providers={"hetzner": a_listing(expired)})
    last = LastRun(ago(minutes=2), succeeded=True)

    text = metrics_to_text(fleet, last, MetricsInputs(world, plan, versions()), wrong_tokens=3)

    assert read_metrics(text)
    golden("metrics.txt", text)


def test_metrics_before_first_run_have_cadence_only() -> None:
    assert read_metrics(metrics_to_text(a_fleet(), None)) == {("fleet_cadence_seconds",): 600}


def test_unknown_figures_are_omitted_from_metrics() -> None:
    plan = a_blind_plan().altered(
        unread=("debian",), budgets=(a_budget_verdict(spent={"unknown": "x"}),)
    )

    metrics = metrics_of(a_fleet(), plan)

    blind = {pool.pool for pool in plan.pools if "machines" in pool.not_known}
    assert blind
    told = {key[:2] for key in metrics}
    for pool in blind:
        assert ("fleet_pool_machines_expired", pool) not in told
    assert ("fleet_budget_spent", "pools.builders.budget", "day", "EUR") not in metrics
    assert ("fleet_queue_requests_waiting", "debian") not in metrics
    assert metrics["fleet_queue_unread", "debian"] == 1
    assert metrics["fleet_budget_limit", "pools.builders.budget", "day", "EUR"] == 10


def test_budget_of_pool_and_budget_of_equal_name_are_separate() -> None:
    own = a_budget_verdict()
    named = a_budget_verdict(path=("budgets", "builders", "per_day"), spent="7")
    coming = a_budget_verdict(coming=True, spent="0")

    metrics = metrics_of(a_fleet(), a_plan(budgets=(own, named, coming)))

    assert metrics["fleet_budget_spent", "pools.builders.budget", "day", "EUR"] == 3.5
    assert metrics["fleet_budget_spent", "builders", "day", "EUR"] == 7


def test_labels_contain_no_request_worker_or_user() -> None:
    """Ten times as much of everything that comes and goes are as many series."""

    def text(count: int) -> str:
        names = [f"debian-ci-builders-{number:04}" for number in range(1, count + 1)]
        requests = [
            a_request(id=f"rq{number}", requester=f"ada{number}", package=f"package-{number}")
            for number in range(1, 10 * count)
        ]
        fleet = a_sim_fleet(pools={"builders": a_pool(provider="desk", max=count + 5)})
        world = a_sim_world(
            *(a_worker(name=name, busy=True) for name in names), requests=tuple(requests)
        )
        plan = guard(fleet, reconcile(fleet, world))
        return metrics_to_text(fleet, LastRun(NOW, succeeded=True), MetricsInputs(world, plan))

    few, many = text(1), text(10)

    assert list(read_metrics(few)) == list(read_metrics(many))
    assert not re.search(r"rq\d|ada\d|package-\d|builders-0", many)


def test_expired_machines_are_counted_in_their_pool_or_as_other() -> None:
    gone = {"expires": ago(hours=1)}
    machines = (
        a_machine(id="1", **gone),
        a_machine(id="2", expires=NOW + timedelta(hours=1)),
        a_machine(id="3", pool=HOSTILE, **gone),
        a_machine(id="4", pool="elsewhere", **gone),
    )
    world = a_world(providers={"hetzner": a_listing(*machines)})

    metrics = metrics_of(a_fleet(), a_plan(pools=(a_pool_verdict(),)), world=world)

    assert metrics["fleet_pool_machines_expired", "builders"] == 1
    assert metrics["fleet_pool_machines_expired", "(other)"] == 2


def test_recent_attempts_are_counted_by_result() -> None:
    attempts = (
        an_attempt(at=ago(hours=4), result="failed"),
        an_attempt(at=ago(hours=2), result="failed"),
        an_attempt(at=ago(hours=1), result="failed"),
        an_attempt(),
    )
    world = a_world(attempts=attempts)

    metrics = metrics_of(a_fleet(), a_plan(pools=(a_pool_verdict(),)), world=world)

    assert metrics["fleet_pool_recent_attempts", "builders", "failed"] == 2
    assert metrics["fleet_pool_recent_attempts", "builders", "registered"] == 1
    assert metrics["fleet_pool_recent_attempts", "builders", "quota"] == 0


def test_requests_are_counted_by_queue_and_by_pool() -> None:
    fleet = a_sim_fleet(pools={"builders": a_pool(provider="desk", max=1)})
    requests = tuple(a_request(id=str(number)) for number in range(3))
    world = a_sim_world(a_worker(busy=True), requests=requests)
    plan = guard(fleet, reconcile(fleet, world))

    metrics = metrics_of(fleet, plan, world=world)

    assert metrics["fleet_queue_requests_waiting", "debian"] == 3
    assert metrics["fleet_queue_requests_unserved", "debian"] == 3
    assert metrics["fleet_pool_requests_waiting", "builders"] == 3
    assert metrics["fleet_pool_machines_max", "builders"] == 1
    assert metrics["fleet_pool_machines", "builders", "busy"] == 1


@pytest.mark.parametrize(
    ("days", "end"),
    [
        ((), None),
        (("2026-11-20",), None),  # it is over
        (("2026-11-21",), datetime(2026, 11, 22, tzinfo=UTC)),
        (("2027-03-01", "2026-12-01", "2026-11-01"), datetime(2026, 12, 2, tzinfo=UTC)),
        ((str(date.max),), None),
    ],
)
def test_next_expiry_is_end_of_last_day(days: Iterable[str], end: datetime | None) -> None:
    approval = {"guard": "delete", "pool": "builders", "count": 1, "reason": "move"}
    fleet = a_fleet(approvals=[approval | {"expires": day} for day in days])

    metrics = metrics_of(fleet, a_plan())

    assert metrics.get(("fleet_expiry_timestamp_seconds", "approval")) == (end and end.timestamp())
