"""What the guards hold back, one sentence per test."""

import re
from decimal import Decimal

import pytest

from fleet.guard import guard
from fleet.model.decisions import SizeReason
from fleet.model.plan import Cause, Reason
from fleet.reconcile import reconcile
from fleet.words.figures import waiting
from fleet.words.pools import size_decision
from tests.builders import (
    a_create,
    a_delete,
    a_plan,
    a_pool_verdict,
    a_request,
    a_sim_fleet,
    a_sim_world,
)
from tests.builders.guarding import creates, drains, said, with_guards
from tests.builders.sentences import tells


def test_plan_within_every_limit_is_unchanged() -> None:
    plan = a_plan(actions=creates(3), pools=(a_pool_verdict(),))

    guarded = guard(a_sim_fleet(), plan)

    assert guarded.actions == plan.actions
    assert guarded.guards == ()


def test_creations_by_demand_beyond_limit_are_delayed_to_next_run() -> None:
    plan = a_plan(actions=creates(12), pools=(a_pool_verdict(busy=0),))

    guarded = guard(a_sim_fleet(), plan)

    assert (len(guarded.actions), len(guarded.withheld)) == (10, 2)
    assert said(guarded) == [("throttle-create", "builders", "throttled")]
    assert not guarded.is_refused


def test_throttle_withholds_last_creations_in_service_order() -> None:
    plan = a_plan(actions=creates(12), pools=(a_pool_verdict(busy=0),))

    guarded = guard(a_sim_fleet(), plan)

    assert guarded.withheld == plan.actions[10:]


def test_pool_may_start_from_zero_up_to_free_below() -> None:
    fleet = with_guards(throttle={"create": {"share": "100%", "free_below": 4, "count": 50}})
    plan = a_plan(actions=creates(5), pools=(a_pool_verdict(busy=0),))

    assert len(guard(fleet, plan).actions) == 4


def test_growth_share_is_relative_to_current_machines() -> None:
    fleet = with_guards(throttle={"create": {"share": "50%", "free_below": 2, "count": 50}})
    plan = a_plan(actions=creates(9), pools=(a_pool_verdict(busy=8),))

    assert len(guard(fleet, plan).actions) == 4


def test_creations_are_throttled_across_pools() -> None:
    pools = tuple(a_pool_verdict(pool=name, busy=0) for name in ("arm", "builders"))
    plan = a_plan(actions=(*creates(8, "arm"), *creates(8)), pools=pools)

    guarded = guard(a_sim_fleet(), plan)

    assert len(guarded.actions) == 10
    assert said(guarded) == [("throttle-create", None, "throttled")]


def test_throttle_follows_service_order_across_pools() -> None:
    pools = tuple(a_pool_verdict(pool=name, busy=0) for name in ("arm", "builders"))
    late = creates(6, "arm", turn=2)
    early = creates(6, "builders", turn=1)
    plan = a_plan(actions=(*late, *early), pools=pools)

    guarded = guard(a_sim_fleet(), plan)

    assert [action.pool for action in guarded.withheld] == ["arm", "arm"]


def test_creations_by_config_are_throttled() -> None:
    warm = creates(12, cause=Cause.CONFIG, reason=Reason.BELOW_MIN)
    plan = a_plan(actions=warm, pools=(a_pool_verdict(busy=0),))

    assert len(guard(a_sim_fleet(), plan).actions) == 10


def test_drains_by_demand_are_throttled() -> None:
    plan = a_plan(actions=drains(25, Cause.DEMAND), pools=(a_pool_verdict(busy=0, idle=40),))

    guarded = guard(a_sim_fleet(), plan)

    assert len(guarded.actions) == 20
    assert not guarded.is_refused


def test_removals_by_config_above_the_share_are_refused() -> None:
    plan = a_plan(actions=drains(4, Cause.CONFIG), pools=(a_pool_verdict(busy=0, idle=10),))

    guarded = guard(a_sim_fleet(), plan)

    assert guarded.actions == ()
    assert tells(guarded.guards[0].because, "4", "10", "builders", "40%", "30%", "10")


def test_removals_by_config_above_the_count_are_refused() -> None:
    plan = a_plan(actions=drains(11, Cause.CONFIG), pools=(a_pool_verdict(busy=89, idle=11),))

    assert guard(a_sim_fleet(), plan).is_refused


def test_small_pool_is_not_exempt_from_removal_guard() -> None:
    plan = a_plan(actions=drains(1, Cause.CONFIG), pools=(a_pool_verdict(busy=0, idle=1),))

    assert guard(a_sim_fleet(), plan).is_refused


def test_removals_by_config_within_share_and_count_pass() -> None:
    plan = a_plan(actions=drains(3, Cause.CONFIG), pools=(a_pool_verdict(busy=7, idle=3),))

    assert guard(a_sim_fleet(), plan).actions == plan.actions


def test_removals_by_config_are_counted_across_pools() -> None:
    pools = tuple(a_pool_verdict(pool=name, busy=27, idle=3) for name in ("a", "b", "c", "d"))
    actions = tuple(drain for pool in pools for drain in drains(3, Cause.CONFIG, pool.pool))

    guarded = guard(a_sim_fleet(), a_plan(actions=actions, pools=pools))

    assert said(guarded) == [("delete", None, "refused")]


def test_refusal_withholds_only_actions_of_its_pool() -> None:
    pools = (a_pool_verdict(pool="arm", idle=1, busy=0), a_pool_verdict(busy=50))
    plan = a_plan(actions=(*drains(1, Cause.CONFIG, "arm"), *creates(1)), pools=pools)

    guarded = guard(a_sim_fleet(), plan)

    assert [action.pool for action in guarded.actions] == ["builders"]
    assert [action.pool for action in guarded.withheld] == ["arm"]


def test_deletions_after_a_drain_by_demand_are_never_refused() -> None:
    deletes = tuple(a_delete(worker=f"builders-{n}") for n in range(10))
    plan = a_plan(actions=deletes, pools=(a_pool_verdict(busy=0, idle=10),))

    assert not guard(a_sim_fleet(), plan).is_refused


def test_too_expensive_creations_by_config_are_refused() -> None:
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"})
    warm = creates(9, cause=Cause.CONFIG, reason=Reason.BELOW_MIN, cost=Decimal("0.12"))
    plan = a_plan(actions=warm, pools=(a_pool_verdict(),))

    guarded = guard(fleet, plan)

    assert tells(guarded.guards[0].because, "9", "1.08 EUR/h", "builders", "1 EUR/h")
    assert guarded.actions == ()


def test_creations_by_demand_never_count_as_a_cost_increase() -> None:
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"})
    plan = a_plan(actions=creates(9), pools=(a_pool_verdict(),))

    assert not guard(fleet, plan).is_refused


def test_pool_in_mode_observe_only_shows_its_actions() -> None:
    plan = a_plan(actions=creates(2), pools=(a_pool_verdict(mode="observe"),))

    guarded = guard(a_sim_fleet(), plan)

    assert guarded.actions == ()
    assert said(guarded) == [("mode", "builders", "throttled")]


def test_cost_after_omits_withheld_actions() -> None:
    plan = a_plan(
        actions=creates(12), pools=(a_pool_verdict(busy=0, cost_before=0, cost_after="1.44"),)
    )

    guarded = guard(a_sim_fleet(), plan)

    assert guarded.cost_after == Decimal("1.2")


def test_small_growth_share_permits_first_machine() -> None:
    fleet = with_guards(throttle={"create": {"share": "5%", "free_below": 10, "count": 50}})
    plan = a_plan(actions=creates(3), pools=(a_pool_verdict(busy=0),))

    assert len(guard(fleet, plan).actions) == 1


def test_share_or_count_of_zero_permits_no_action() -> None:
    for limit in ({"share": "0%"}, {"count": 0}):
        fleet = with_guards(throttle={"create": limit})
        plan = a_plan(actions=creates(3), pools=(a_pool_verdict(busy=0),))

        assert guard(fleet, plan).actions == ()


def test_cost_limit_in_unknown_currency_has_no_effect_without_actions() -> None:
    fleet = with_guards(refuse={"cost_increase": "1 USD/h"})

    assert guard(fleet, a_plan(pools=(a_pool_verdict(),))).guards == ()


def test_permitted_removals_by_config_are_not_throttled() -> None:
    fleet = with_guards(throttle={"delete": {"count": 1}})
    plan = a_plan(actions=drains(3, Cause.CONFIG), pools=(a_pool_verdict(busy=10),))

    assert len(guard(fleet, plan).actions) == 3


# growth


def test_pool_without_progress_does_not_block_others() -> None:
    pools = tuple(a_pool_verdict(pool=name, busy=0) for name in ("arm", "builders"))
    sold_out = creates(10, "arm", turn=1)
    plan = a_plan(actions=(*sold_out, *creates(3, "builders", turn=2)), pools=pools)

    guarded = guard(a_sim_fleet(), plan)

    assert [action.pool for action in guarded.actions].count("builders") == 1
    assert len(guarded.actions) == 10


def test_interrupted_actions_are_never_throttled() -> None:
    fleet = with_guards(throttle={"create": {"count": 1}, "delete": {"count": 0}})
    begun = (*creates(3, reason=Reason.INTERRUPTED, cause=Cause.KNOWLEDGE),)
    ended = (a_delete(worker="builders-9", reason=Reason.INTERRUPTED),)
    plan = a_plan(actions=(*begun, *ended), pools=(a_pool_verdict(busy=0),))

    assert guard(fleet, plan).actions == plan.actions


# figures


def test_guard_has_figures_and_remedy() -> None:
    plan = a_plan(actions=drains(4, Cause.CONFIG), pools=(a_pool_verdict(busy=0, idle=10),))

    result = guard(a_sim_fleet(), plan).guards[0]

    assert (result.count, result.of, result.approved, result.withheld) == (4, 10, 0, 4)
    assert tells(result.limit, "30%", "10")
    line = '- {guard: delete, pool: builders, count: 4, reason: "WHY", expires: 2026-12-05}'
    assert result.approve == (line,)
    assert tells(result.way_out, "approvals")
    assert result.way_out.endswith(line)


def test_remedy_for_removed_pool_names_previously() -> None:
    gone = a_pool_verdict(busy=0, idle=10, mode="removed")
    plan = a_plan(actions=drains(4, Cause.CONFIG), pools=(gone,))

    result = guard(a_sim_fleet(), plan).guards[0]

    assert tells(result.way_out, "previously: builders", "approvals")


def test_remedy_for_removed_pools_names_previously_of_each() -> None:
    gone = tuple(
        a_pool_verdict(pool=each, idle=30, mode="removed") for each in ("arm", "builders")
    )
    both = (*drains(6, Cause.CONFIG, "arm"), *drains(6, Cause.CONFIG))

    (across,) = guard(a_sim_fleet(), a_plan(actions=both, pools=gone)).guards

    assert tells(across.way_out, "`previously: arm`", "or", "`previously: builders`")


def test_pool_shows_number_of_withheld_deletions() -> None:
    actions = (*creates(2), *drains(1, Cause.DEMAND))
    size = (
        size_decision(SizeReason.SERVES, "builders", 2),
        size_decision(SizeReason.SPARE, "builders", 1, message="workers.spare is 1"),
    )
    pools = (a_pool_verdict(busy=2, create=2, drain=1, mode="observe", served=2, decisions=size),)

    (pool,) = guard(a_sim_fleet(), a_plan(actions=actions, pools=pools)).pools

    assert tells(pool.because, "workers.spare", "1", "2", "2", "1")
    assert pool.served == 0


@pytest.mark.parametrize("more", [1, 2])
def test_pool_counts_candidate_requests_when_guard_serves_none(more: int) -> None:
    size = (
        size_decision(SizeReason.SERVES, "builders", 2),
        size_decision(SizeReason.COULD_SERVE, "builders", more),
    )
    served = a_pool_verdict(create=2, served=2, decisions=size)
    plan = a_plan(actions=creates(2), pools=(served,))

    (none,) = guard(with_guards(throttle={"create": {"count": 0}}), plan).pools
    (one,) = guard(with_guards(throttle={"create": {"count": 1}}), plan).pools

    assert (none.served, one.served) == (0, 1)
    assert [(each.code, each.figures.count) for each in none.decisions] == [
        (SizeReason.COULD_SERVE, more),
        (SizeReason.GUARD_WITHHOLDS, 2),
    ]
    assert none.decisions[-1].figures.waiting == 2
    assert tells(none.because, more, "2", "2")
    assert tells(one.because, "1", more)


def test_request_is_unserved_when_its_machine_is_withheld() -> None:
    fleet = a_sim_fleet(guards={"throttle": {"create": {"count": 1}}})
    world = a_sim_world(requests=tuple(a_request(id=str(number)) for number in (1, 2, 3)))

    plan = guard(fleet, reconcile(fleet, world))

    (pool,) = plan.pools
    assert (pool.served, pool.create) == (1, 1)
    assert tells(pool.because, "1", "2", "2")
    assert re.findall(r"\d+", waiting(plan)) == ["3", "1"]


def test_withheld_machines_without_requests_are_only_withheld() -> None:
    warm = a_create(serves=(), reason=Reason.BELOW_SPARE)
    size = (size_decision(SizeReason.SPARE, "builders", 1, message="workers.spare is 1"),)
    pools = (a_pool_verdict(create=1, mode="observe", decisions=size),)

    (pool,) = guard(a_sim_fleet(), a_plan(actions=(warm,), pools=pools)).pools

    assert tells(pool.because, "workers.spare", "guard", "1")
