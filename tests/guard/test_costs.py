"""What the guard of costs counts and says, to the last figure."""

from decimal import Decimal
from typing import Any

from fleet.guard import guard
from fleet.model.plan import Cause, Plan, Reason
from tests.builders import (
    a_plan,
    a_pool,
    a_pool_verdict,
    a_sim_fleet,
    a_worker_verdict,
)
from tests.builders.guarding import an_approval, creates, drains, said, with_guards
from tests.builders.sentences import tells

WARM: dict[str, Any] = {"cause": Cause.CONFIG, "reason": Reason.BELOW_MIN, "cost": Decimal("0.5")}


def because_of(plan: Plan) -> list[str]:
    return [result.because for result in plan.guards]


def test_removed_pool_is_not_a_cost_increase() -> None:
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"}).model_copy(update={"pools": {}})
    plan = a_plan(actions=drains(1, Cause.CONFIG), pools=(a_pool_verdict(mode="removed", busy=9),))

    assert guard(fleet, plan).guards == ()


def test_cost_guard_counts_later_creations_without_existing_machines() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", min=20, max=20)},
        guards={"refuse": {"cost_increase": "1 EUR/h"}},
    )
    plan = a_plan(actions=creates(3, **WARM), pools=(a_pool_verdict(busy=5),))

    (result,) = guard(fleet, plan).guards

    assert result.count == 15
    assert tells(result.because, "15 machines", "config", "7.50 EUR/h")


def test_only_replacements_count_without_creations_for_min() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", min=5, max=9)},
        guards={"refuse": {"cost_increase": "0.1 EUR/h"}},
    )
    fresh = creates(1, cause=Cause.CONFIG, reason=Reason.REPLACEMENT, cost=Decimal("0.62"))
    old = tuple(
        a_worker_verdict(worker=f"old-{n}", outdated=True, cost=Decimal(cost))
        for n, cost in enumerate(("0.12", "0.12", "0.62"))
    )
    plan = a_plan(actions=fresh, pools=(a_pool_verdict(busy=3),), workers=old)

    assert [result.count for result in guard(fleet, plan).guards] == [2]


def test_demand_next_to_outdated_workers_is_not_a_cost_increase() -> None:
    fleet = with_guards(refuse={"cost_increase": "0.1 EUR/h"})
    old = (a_worker_verdict(worker="old", outdated=True, cost=Decimal("0.12")),)
    pool = a_pool_verdict(busy=3, price=Decimal("0.62"))
    for actions in (creates(1, cost=Decimal("0.62")), drains(1, Cause.DEMAND)):
        plan = a_plan(actions=actions, pools=(pool,), workers=old)

        assert guard(fleet, plan).actions == actions


def test_replacement_at_equal_cost_continues_while_min_is_refused() -> None:
    fleet = with_guards(refuse={"cost_increase": "0.1 EUR/h"})
    old = (a_worker_verdict(worker="old", outdated=True, cost=Decimal("0.5")),)
    fresh = creates(1, **(WARM | {"reason": Reason.REPLACEMENT}))
    warm = tuple(a.altered(worker=f"n-{a.worker}") for a in creates(1, **WARM))  # type: ignore[attr-defined]  # builders take any action
    plan = a_plan(actions=(*fresh, *warm), pools=(a_pool_verdict(busy=3),), workers=old)

    assert guard(fleet, plan).actions == fresh


def test_old_workers_are_drained_when_cost_increase_is_approved() -> None:
    fleet = with_guards(refuse={"cost_increase": "0.1 EUR/h"})
    old = (a_worker_verdict(worker="builders-0", outdated=True, cost=Decimal("0.12")),)
    pool = a_pool_verdict(busy=9, price=Decimal("0.62"))
    out = drains(1, Cause.CONFIG, reason=Reason.OUTDATED)
    approvals = (an_approval("builders", "cost_increase", 1),)

    assert (
        guard(fleet, a_plan(actions=out, pools=(pool,), workers=old, approvals=approvals)).actions
        == out
    )


def test_cost_increase_equal_to_its_limit_passes() -> None:
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"})
    plan = a_plan(actions=creates(2, **WARM), pools=(a_pool_verdict(),))

    assert guard(fleet, plan).guards == ()


def test_cost_increase_across_pools_has_figures() -> None:
    pools = tuple(a_pool_verdict(pool=name, busy=0) for name in ("arm", "ppc", "s390x"))
    actions = tuple(each for pool in pools for each in creates(1, pool.pool, **WARM))
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"})
    fleet = fleet.model_copy(
        update={"pools": {pool.pool: a_pool(provider="desk", min=1) for pool in pools}}
    )

    (because,) = because_of(guard(fleet, a_plan(actions=actions, pools=pools)))

    assert tells(because, "3", "1.50 EUR/h", "1 EUR/h")


def test_approved_cost_increase_does_not_count_across_pools() -> None:
    pools = tuple(a_pool_verdict(pool=name, busy=0) for name in ("arm", "ppc", "s390x"))
    actions = tuple(each for pool in pools for each in creates(1, pool.pool, **WARM))
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"})
    fleet = fleet.model_copy(
        update={"pools": {pool.pool: a_pool(provider="desk", min=1) for pool in pools}}
    )
    approvals = (an_approval("ppc", "cost_increase", 1),)

    assert guard(fleet, a_plan(actions=actions, pools=pools, approvals=approvals)).guards == ()


def test_text_of_one_machine_is_in_singular() -> None:
    fleet = with_guards(refuse={"cost_increase": "0.1 EUR/h"})

    (because,) = because_of(
        guard(fleet, a_plan(actions=creates(1, **WARM), pools=(a_pool_verdict(),)))
    )

    assert tells(because, "1 machine", "config", "0.50 EUR/h")


def test_observed_pool_is_not_a_cost_increase() -> None:
    fleet = with_guards(refuse={"cost_increase": "0.1 EUR/h"})
    plan = a_plan(actions=creates(1, **WARM), pools=(a_pool_verdict(mode="observe"),))

    assert said(guard(fleet, plan)) == [("mode", "builders", "throttled")]


def test_outdated_workers_of_other_pools_do_not_offset_cost() -> None:
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"})
    fresh = creates(1, cause=Cause.CONFIG, reason=Reason.REPLACEMENT, cost=Decimal("0.62"))
    old = tuple(
        a_worker_verdict(worker=f"{pool}-{n}", pool=pool, outdated=True, cost=Decimal("0.12"))
        for pool, count in (("builders", 1), ("arm", 9))
        for n in range(count)
    )
    plan = a_plan(actions=fresh, pools=(a_pool_verdict(busy=3),), workers=old)

    assert guard(fleet, plan).guards == ()


def test_approval_of_cost_increase_covers_most_expensive_first() -> None:
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"})
    fleet = fleet.model_copy(
        update={"pools": {n: a_pool(provider="desk") for n in ("arm", "ppc")}}
    )
    made: dict[str, Any] = {
        "cause": Cause.CONFIG,
        "reason": Reason.REPLACEMENT,
        "cost": Decimal("0.9"),
    }
    old = tuple(
        a_worker_verdict(worker=f"{pool}-{cost}", pool=pool, outdated=True, cost=Decimal(cost))
        for pool in ("arm", "ppc")
        for cost in ("0.8", "0.1")
    )
    pools = tuple(a_pool_verdict(pool=name, busy=2) for name in ("arm", "ppc"))
    plan = a_plan(
        actions=(*creates(1, "arm", **made), *creates(1, "ppc", **made)),
        pools=pools,
        workers=old,
        approvals=(an_approval("arm", "cost_increase", 1),),
    )

    assert guard(fleet, plan).guards == ()
