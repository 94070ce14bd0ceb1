"""What guards count and say, to the last figure."""

from decimal import Decimal
from typing import Any

import pytest

from fleet.guard import guard
from fleet.model.plan import Cause, Plan, Reason
from tests.builders import (
    a_delete,
    a_plan,
    a_pool,
    a_pool_verdict,
    a_signature,
    a_sim_fleet,
)
from tests.builders.guarding import an_approval, creates, drains, said, with_guards
from tests.builders.sentences import tells

WARM: dict[str, Any] = {"cause": Cause.CONFIG, "reason": Reason.BELOW_MIN, "cost": Decimal("0.5")}


def because_of(plan: Plan) -> list[str]:
    return [result.because for result in plan.guards]


# throttled


def test_deletions_by_demand_are_throttled() -> None:
    deletes = tuple(a_delete(worker=f"builders-{n}") for n in range(25))
    guarded = guard(a_sim_fleet(), a_plan(actions=deletes, pools=(a_pool_verdict(idle=25),)))

    assert guarded.actions == deletes[:20]
    assert said(guarded) == [("throttle-delete", "builders", "throttled")]


def test_throttle_names_its_pool_or_the_fleet() -> None:
    names = ("arm", "builders")
    pools = tuple(a_pool_verdict(pool=name, busy=0) for name in names)
    actions = tuple(action for name in names for action in creates(12, name))

    guarded = guard(a_sim_fleet(), a_plan(actions=actions, pools=pools))

    assert [each.pool for each in guarded.guards] == ["arm", "builders", None]
    arm, builders, fleet = because_of(guarded)
    assert tells(arm, "12", "pool arm", "0", "10")
    assert tells(builders, "12", "pool builders", "0", "10")
    assert tells(fleet, "20", "fleet", "0", "10")


def test_interrupted_creations_use_part_of_the_throttle() -> None:
    fleet = with_guards(throttle={"create": {"count": 3}})
    begun = creates(2, reason=Reason.INTERRUPTED)
    fresh = tuple(a.altered(worker=f"n-{a.worker}") for a in creates(5))  # type: ignore[attr-defined]  # builders take any action
    plan = a_plan(actions=(*begun, *fresh), pools=(a_pool_verdict(busy=9),))

    assert guard(fleet, plan).actions == (*begun, fresh[0])


@pytest.mark.parametrize(("share", "made"), [("50%", 1), ("100%", 1), ("300%", 3)])
def test_growth_starts_with_one_machine_without_free_below(share: str, made: int) -> None:
    fleet = with_guards(throttle={"create": {"share": share, "free_below": 0}})
    plan = a_plan(actions=creates(5), pools=(a_pool_verdict(busy=0),))

    assert len(guard(fleet, plan).actions) == made


def test_static_machines_do_not_count_for_growth() -> None:
    fleet = with_guards(throttle={"create": {"free_below": 2}})
    ours = tuple(a_pool_verdict(pool=name, busy=0) for name in ("arm", "builders"))
    pools = (*ours, a_pool_verdict(pool="old", mode="static", busy=9))
    plan = a_plan(actions=(*creates(2, "arm"), *creates(2)), pools=pools)

    assert len(guard(fleet, plan).actions) == 2


def test_pool_verdict_counts_only_unthrottled_actions() -> None:
    deletes = tuple(a_delete(worker=f"builders-{n}", saves=Decimal("0.1")) for n in range(25))
    pool = a_pool_verdict(idle=24, delete=25, cost_before=Decimal("2.5"), cost_after=Decimal(0))

    (verdict,) = guard(a_sim_fleet(), a_plan(actions=deletes, pools=(pool,))).pools

    assert (verdict.delete, verdict.cost_after) == (20, Decimal("0.5"))


def test_plan_without_pools_is_valid_json() -> None:
    plan = guard(a_sim_fleet(), a_plan())

    assert Plan.model_validate_json(plan.model_dump_json()) == plan


# only shown


def test_mode_observe_is_reported_with_its_key() -> None:
    pool = a_pool_verdict(mode="observe", idle=2)
    guarded = guard(a_sim_fleet(), a_plan(actions=creates(2), pools=(pool,)))

    (result,) = guarded.guards
    assert tells(result.because, "builders", "mode", "observe", "2 actions", "applied")
    assert result.path == ("pools", "builders", "mode")
    assert (result.count, result.of, result.withheld) == (2, 3, 2)


def test_requests_withheld_by_two_guards_are_listed_by_guard() -> None:
    pools = (a_pool_verdict(pool="arm", mode="observe"), a_pool_verdict(busy=1))
    actions = (*creates(1, "arm"), *creates(2))
    names = [action.worker for action in actions]  # type: ignore[attr-defined]  # builders take any action
    signature = a_signature(
        requests=("1", "2", "3"), by_create=dict(zip(("1", "2", "3"), names, strict=True))
    )
    fleet = with_guards(throttle={"create": {"count": 1}})

    guarded = guard(fleet, a_plan(actions=actions, pools=pools, signatures=(signature,)))

    assert [(each.requests, each.path) for each in guarded.unserved] == [
        (("1",), ("pools", "arm", "mode")),
        (("3",), ("guards", "throttle", "create")),
    ]


# refused


def test_removals_up_to_the_count_are_permitted() -> None:
    pool = a_pool_verdict(busy=40)

    assert (
        guard(a_sim_fleet(), a_plan(actions=drains(10, Cause.CONFIG), pools=(pool,))).guards == ()
    )


def test_refusal_across_pools_lists_an_approval_per_pool() -> None:
    names = ("arm", "builders", "ppc", "s390x")
    pools = tuple(a_pool_verdict(pool=name, busy=9) for name in names)
    actions = tuple(drain for name in names for drain in drains(3, Cause.CONFIG, name))
    fleet = with_guards(refuse={"delete": {"share": "40%"}})

    (result,) = guard(fleet, a_plan(actions=actions, pools=pools)).guards

    assert tells(result.because, "12", "36", "33%", "40%", "10")
    assert (result.count, result.of, result.withheld) == (12, 36, 12)
    assert [f"pool: {name}, count: 3" in result.way_out for name in names] == [True] * 4
    assert result.way_out.count(" and - {guard: delete") == 3


def test_refusal_of_a_pool_counts_machines_of_that_pool() -> None:
    pools = (a_pool_verdict(idle=4, busy=0), a_pool_verdict(pool="arm", busy=20))

    (result,) = guard(a_sim_fleet(), a_plan(actions=drains(4, Cause.CONFIG), pools=pools)).guards

    assert (result.count, result.of) == (4, 4)


def test_refusal_names_both_causes() -> None:
    lost = drains(2, Cause.KNOWLEDGE, "lost")
    moved = tuple(each.altered(pool="builders") for each in lost)  # type: ignore[attr-defined]  # builders take any action
    plan = a_plan(actions=(*drains(2, Cause.CONFIG), *moved), pools=(a_pool_verdict(busy=4),))

    (because,) = because_of(guard(a_sim_fleet(), plan))

    assert tells(because, "config", "and", "lost")


def test_observed_pool_does_not_end_evaluation_of_guards() -> None:
    pools = (a_pool_verdict(pool="arm", mode="observe"), a_pool_verdict(busy=4))
    plan = a_plan(actions=drains(4, Cause.CONFIG), pools=pools)

    assert said(guard(a_sim_fleet(), plan)) == [("delete", "builders", "refused")]


def test_static_machines_are_never_removals() -> None:
    pool = a_pool_verdict(mode="static", busy=4, unwanted=4)

    assert guard(a_sim_fleet(), a_plan(pools=(pool,))).guards == ()


def test_approved_actions_do_not_count_across_pools() -> None:
    names = ("arm", "builders", "ppc", "s390x")
    pools = tuple(a_pool_verdict(pool=name, busy=9) for name in names)
    actions = tuple(drain for name in names for drain in drains(3, Cause.CONFIG, name))
    approvals = tuple(an_approval(name, "delete", 3) for name in ("arm", "ppc"))
    fleet = with_guards(refuse={"delete": {"share": "40%", "count": 5}})

    guarded = guard(fleet, a_plan(actions=actions, pools=pools, approvals=approvals))

    assert {action.pool for action in guarded.actions} == {"arm", "ppc"}
    assert [len(each.passes) for each in guarded.approvals] == [3, 3]


def test_delete_guard_passes_when_all_deletions_are_approved() -> None:
    names = ("arm", "builders", "ppc", "s390x")
    pools = tuple(a_pool_verdict(pool=name, busy=9) for name in names)
    actions = tuple(drain for name in names for drain in drains(3, Cause.CONFIG, name))
    approvals = tuple(an_approval(name, "delete", 3) for name in ("arm", "ppc"))
    fleet = with_guards(refuse={"delete": {"share": "40%", "count": 6}})

    guarded = guard(fleet, a_plan(actions=actions, pools=pools, approvals=approvals))

    assert guarded.actions == actions


def test_refused_removal_by_config_withholds_no_creation() -> None:
    plan = a_plan(actions=(*drains(4, Cause.CONFIG), *creates(2)), pools=(a_pool_verdict(busy=4),))

    assert guard(a_sim_fleet(), plan).actions == creates(2)


def test_pool_replaced_at_100_percent_may_drain_all_machines() -> None:
    pool = a_pool(provider="desk", max=101, replace={"at_a_time": "100%"})
    outdated = drains(101, Cause.CONFIG, reason=Reason.OUTDATED)
    plan = a_plan(actions=outdated, pools=(a_pool_verdict(busy=101),))

    assert guard(a_sim_fleet(pools={"builders": pool}), plan).guards == ()


def test_replacement_share_rounds_up_when_above_one_machine() -> None:
    pool = a_pool(provider="desk", max=101, replace={"at_a_time": "1%"})
    guards = {"refuse": {"delete": {"share": "0%", "count": 0}}}
    outdated = drains(2, Cause.CONFIG, reason=Reason.OUTDATED)
    plan = a_plan(actions=outdated, pools=(a_pool_verdict(busy=101),))

    assert guard(a_sim_fleet(pools={"builders": pool}, guards=guards), plan).guards == ()


def test_pool_names_guard_that_delays_one_of_two_deletions() -> None:
    fleet = with_guards(throttle={"delete": {"count": 1}})
    two = tuple(a_delete(worker=f"debian-ci-builders-{n:04}", cause=Cause.DEMAND) for n in (1, 2))
    pools = (a_pool_verdict(idle=2, delete=2, because="nothing waits"),)

    (pool,) = guard(fleet, a_plan(actions=two, pools=pools)).pools

    assert tells(pool.because, "1 machine")
