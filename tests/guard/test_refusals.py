"""What the guards refuse, judged by the state and not by the run: one sentence per test."""

from decimal import Decimal

from fleet.guard import guard
from fleet.model.plan import Cause, Reason
from tests.builders import (
    a_delete,
    a_drain,
    a_plan,
    a_pool,
    a_pool_verdict,
    a_sim_fleet,
    a_worker_verdict,
)
from tests.builders.guarding import creates, drains, said, with_guards
from tests.builders.sentences import tells

# what config no longer wants counts, not only what this run would do


def test_removed_busy_pool_is_not_drained_step_by_step() -> None:
    pool = a_pool_verdict(mode="removed", busy=7, idle=3, unwanted=10)
    plan = a_plan(actions=drains(3, Cause.CONFIG), pools=(pool,))

    guarded = guard(a_sim_fleet(), plan)

    assert guarded.actions == ()
    assert tells(guarded.guards[0].because, "10", "10", "builders")


def test_guard_refuses_before_first_machine_of_removed_pool_is_idle() -> None:
    pool = a_pool_verdict(mode="removed", busy=10, unwanted=10)

    assert guard(a_sim_fleet(), a_plan(pools=(pool,))).is_refused


def test_pool_in_mode_observe_is_not_evaluated() -> None:
    pool = a_pool_verdict(mode="observe", busy=10, unwanted=10)

    assert guard(a_sim_fleet(), a_plan(pools=(pool,))).guards == ()


def test_permitted_drain_may_finish() -> None:
    pool = a_pool_verdict(mode="removed", busy=7, other=3, unwanted=10, draining=3)
    deletes = tuple(a_delete(worker=f"builders-{n}", cause=Cause.CONFIG) for n in range(3))
    seen = tuple(a_worker_verdict(worker=each.worker, state="draining") for each in deletes)

    guarded = guard(a_sim_fleet(), a_plan(actions=deletes, pools=(pool,), workers=seen))

    assert guarded.actions == deletes
    assert guarded.is_refused  # for the seven that are still busy


def test_plan_is_not_refused_when_all_removals_are_approved() -> None:
    pool = a_pool_verdict(mode="removed", busy=0, other=3, unwanted=3, draining=3)
    deletes = tuple(a_delete(worker=f"builders-{n}", cause=Cause.CONFIG) for n in range(3))
    seen = tuple(a_worker_verdict(worker=each.worker, state="draining") for each in deletes)

    guarded = guard(a_sim_fleet(), a_plan(actions=deletes, pools=(pool,), workers=seen))

    assert (guarded.actions, guarded.guards) == (deletes, ())


def test_deletions_caused_by_lost_state_are_refused() -> None:
    lost = tuple(
        a_delete(worker=f"builders-{n}", reason=Reason.BOOT_FAILED, cause=Cause.KNOWLEDGE)
        for n in range(4)
    )

    guarded = guard(a_sim_fleet(), a_plan(actions=lost, pools=(a_pool_verdict(busy=10),)))

    assert guarded.actions == ()
    assert tells(guarded.guards[0].because, "lost", "40%")


def test_replacement_at_its_pace_is_not_refused() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", replace={"at_a_time": "20%"}, max=12)}
    )
    outdated = drains(2, Cause.CONFIG, reason=Reason.OUTDATED)
    plan = a_plan(actions=outdated, pools=(a_pool_verdict(busy=0, idle=2),))

    assert guard(fleet, plan).actions == outdated[:1]
    assert guard(fleet, a_plan(actions=outdated, pools=(a_pool_verdict(busy=10),))).guards == ()


def test_replacement_faster_than_its_pace_counts_as_removal() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", replace={"at_a_time": "20%"}, max=12)}
    )
    outdated = drains(9, Cause.CONFIG, reason=Reason.OUTDATED)
    plan = a_plan(actions=outdated, pools=(a_pool_verdict(busy=0, idle=10),))

    guarded = guard(fleet, plan)

    assert guarded.actions == outdated[:2]
    assert tells(guarded.guards[0].because, "7", "10", "builders")


# cost


def test_later_creations_for_min_count_now() -> None:
    pools = {"builders": a_pool(provider="desk", min=20, max=20)}
    fleet = a_sim_fleet(pools=pools, guards={"refuse": {"cost_increase": "1 EUR/h"}})
    warm = creates(2, cause=Cause.CONFIG, reason=Reason.BELOW_MIN, cost=Decimal("0.12"))

    guarded = guard(fleet, a_plan(actions=warm, pools=(a_pool_verdict(busy=0),)))

    assert guarded.actions == ()
    assert tells(guarded.guards[0].because, "20 machines", "config", "2.40 EUR/h")


def test_cost_increase_is_refused_only_in_its_pool() -> None:
    pools = {
        name: a_pool(provider="desk", min=least, max=20)
        for name, least in (("arm", 2), ("builders", 20))
    }
    fleet = a_sim_fleet(pools=pools, guards={"refuse": {"cost_increase": "1 EUR/h"}})
    warm = {"cause": Cause.CONFIG, "reason": Reason.BELOW_MIN, "cost": Decimal("0.12")}
    plan = a_plan(
        actions=(*creates(2, "arm", **warm), *creates(10, "builders", **warm)),
        pools=(a_pool_verdict(pool="arm", busy=0), a_pool_verdict(busy=0)),
    )

    guarded = guard(fleet, plan)

    assert {action.pool for action in guarded.actions} == {"arm"}
    assert said(guarded) == [("cost_increase", "builders", "refused")]


def test_cost_increase_is_refused_across_pools() -> None:
    names = ("arm", "builders", "ppc")
    pools = {name: a_pool(provider="desk", min=4, max=20) for name in names}
    fleet = a_sim_fleet(pools=pools, guards={"refuse": {"cost_increase": "1 EUR/h"}})
    warm = {"cause": Cause.CONFIG, "reason": Reason.BELOW_MIN, "cost": Decimal("0.12")}
    plan = a_plan(
        actions=tuple(action for name in names for action in creates(4, name, **warm)),
        pools=tuple(a_pool_verdict(pool=name, busy=0) for name in names),
    )

    assert said(guard(fleet, plan)) == [("cost_increase", None, "refused")]


def test_more_expensive_type_counts_for_each_replaced_worker() -> None:
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"})
    fresh = creates(1, cause=Cause.CONFIG, reason=Reason.REPLACEMENT, cost=Decimal("0.62"))
    old = tuple(
        a_worker_verdict(worker=f"old-{n}", outdated=True, cost=Decimal("0.12")) for n in range(3)
    )
    plan = a_plan(actions=fresh, pools=(a_pool_verdict(busy=3),), workers=old)

    guarded = guard(fleet, plan)

    assert guarded.actions == ()
    assert tells(guarded.guards[0].because, "3 machines", "config", "1.50 EUR/h")


def test_outdated_workers_are_kept_while_replacements_are_refused() -> None:
    fleet = with_guards(refuse={"cost_increase": "1 EUR/h"})
    out = a_drain(worker="old-0", cause=Cause.CONFIG, reason=Reason.OUTDATED)
    old = tuple(
        a_worker_verdict(worker=f"old-{n}", outdated=True, cost=Decimal("0.12")) for n in range(3)
    )
    pool = a_pool_verdict(busy=3, price=Decimal("0.62"))

    assert guard(fleet, a_plan(actions=(out,), pools=(pool,), workers=old)).actions == ()


def test_new_image_of_same_type_is_not_a_cost_increase() -> None:
    fleet = with_guards(refuse={"cost_increase": "0 EUR/h"})
    fresh = creates(1, cause=Cause.CONFIG, reason=Reason.REPLACEMENT, cost=Decimal("0.12"))
    old = (a_worker_verdict(worker="old", outdated=True, cost=Decimal("0.12")),)
    plan = a_plan(actions=fresh, pools=(a_pool_verdict(busy=1),), workers=old)

    assert guard(fleet, plan).actions == fresh
