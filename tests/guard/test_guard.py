"""What the guards hold back, one sentence per test."""

import re

import pytest

from fleet.guard import guard
from fleet.model.decisions import SizeReason
from fleet.model.plan import Cause
from fleet.reconcile import reconcile
from fleet.words.figures import waiting
from fleet.words.pools import size_decision
from tests.builders import a_plan, a_pool_verdict, a_request, a_sim_fleet, a_sim_world
from tests.builders.guarding import creates, drains, with_guards
from tests.builders.sentences import tells


def test_throttle_withholds_last_creations_in_service_order() -> None:
    plan = a_plan(actions=creates(12), pools=(a_pool_verdict(busy=0),))

    guarded = guard(a_sim_fleet(), plan)

    assert guarded.withheld == plan.actions[10:]


def test_throttle_follows_service_order_across_pools() -> None:
    pools = tuple(a_pool_verdict(pool=name, busy=0) for name in ("arm", "builders"))
    late = creates(6, "arm", turn=2)
    early = creates(6, "builders", turn=1)
    plan = a_plan(actions=(*late, *early), pools=pools)

    guarded = guard(a_sim_fleet(), plan)

    assert [action.pool for action in guarded.withheld] == ["arm", "arm"]


def test_pool_without_progress_does_not_block_others() -> None:
    pools = tuple(a_pool_verdict(pool=name, busy=0) for name in ("arm", "builders"))
    sold_out = creates(10, "arm", turn=1)
    plan = a_plan(actions=(*sold_out, *creates(3, "builders", turn=2)), pools=pools)

    guarded = guard(a_sim_fleet(), plan)

    assert [action.pool for action in guarded.actions].count("builders") == 1
    assert len(guarded.actions) == 10


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
