"""What approvals let pass, one sentence per test."""

from datetime import timedelta

from fleet.guard import guard
from fleet.guard.approvals import approval_digest
from fleet.model.facts import Unknown, World
from fleet.model.plan import Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_sim_fleet, a_sim_world, a_worker
from tests.builders.sentences import tells

TODAY = NOW.date()


def an_approval(**overrides: object) -> dict[str, object]:
    defaults = {"guard": "delete", "pool": "old", "count": 18, "reason": "move to ccx63"}
    return defaults | {"expires": TODAY.isoformat()} | overrides


def a_fleet_without_old(*approvals: dict[str, object], **overrides: object) -> Fleet:
    pools = {"builders": a_pool(provider="desk")}
    return a_sim_fleet(**({"pools": pools, "approvals": list(approvals)} | overrides))


def old_pool(idle: int, busy: int = 0, draining: int = 0, **overrides: object) -> World:
    workers = [
        a_worker(
            name=f"debian-ci-old-{n:04}",
            pool="old",
            busy=n < busy,
            draining=busy <= n < busy + draining,
        )
        for n in range(idle + busy + draining)
    ]
    return a_sim_world(*workers).altered(**overrides)


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


def used(fleet: Fleet, *counts: int) -> dict[str, int]:
    digests = [approval_digest(each) for each in fleet.approvals]
    return dict(zip(digests, counts, strict=True))


def test_approval_permits_removal_of_pool() -> None:
    fleet = a_fleet_without_old(an_approval(count=12))

    plan = planned(fleet, old_pool(idle=12))

    assert len(plan.actions) == 12
    assert not plan.is_refused
    assert plan.guards[0].result == "passed"
    assert tells(plan.guards[0].because, "approved", "0", "12", "12")


def test_partly_used_approval_permits_its_remainder() -> None:
    fleet = a_fleet_without_old(an_approval())

    plan = planned(fleet, old_pool(idle=6, approved=used(fleet, 12)))

    assert len(plan.actions) == 6
    assert tells(plan.guards[0].because, "approved", "12", "18", "6")


def test_approval_permits_at_most_its_count() -> None:
    fleet = a_fleet_without_old(an_approval(count=3))

    plan = planned(fleet, old_pool(idle=5))

    assert (len(plan.actions), len(plan.withheld), plan.is_refused) == (3, 2, True)
    assert plan.approvals[0].passes == tuple(action.worker for action in plan.actions)


def test_draining_machines_need_no_second_approval() -> None:
    fleet = a_fleet_without_old(an_approval(count=5))

    plan = planned(fleet, old_pool(idle=0, busy=2, draining=3, approved=used(fleet, 3)))

    assert [action.action for action in plan.actions] == ["drain"] * 2 + ["delete"] * 3
    assert plan.approvals[0].passes == tuple(action.worker for action in plan.actions[:2])
    assert not plan.is_refused


def test_approvals_of_one_pool_add_up_earliest_expiry_first() -> None:
    later = (TODAY + timedelta(days=9)).isoformat()
    fleet = a_fleet_without_old(an_approval(count=2, expires=later), an_approval(count=2))

    plan = planned(fleet, old_pool(idle=3))

    assert not plan.is_refused
    assert [len(each.passes) for each in plan.approvals] == [1, 2]


def test_duplicate_approval_counts_once() -> None:
    fleet = a_fleet_without_old(an_approval(count=2), an_approval(count=2))

    assert len(planned(fleet, old_pool(idle=4)).actions) == 2


def test_approval_applies_to_one_pool() -> None:
    fleet = a_fleet_without_old(an_approval(pool="other"))

    assert planned(fleet, old_pool(idle=4)).actions == ()


def test_approval_applies_to_one_guard() -> None:
    fleet = a_fleet_without_old(an_approval(guard="cost_increase"))

    assert planned(fleet, old_pool(idle=4)).actions == ()


def test_approval_is_valid_on_its_last_day() -> None:
    fleet = a_fleet_without_old(an_approval(expires=TODAY.isoformat()))

    assert not planned(fleet, old_pool(idle=4)).is_refused


def test_expired_approval_permits_nothing_with_notice() -> None:
    yesterday = TODAY - timedelta(days=1)
    fleet = a_fleet_without_old(an_approval(expires=yesterday.isoformat()))

    plan = planned(fleet, old_pool(idle=4))

    assert plan.actions == ()
    assert f"(expired on {yesterday})" in plan.guards[0].because


def test_used_up_approval_permits_nothing_with_notice() -> None:
    fleet = a_fleet_without_old(an_approval())

    plan = planned(fleet, old_pool(idle=4, approved=used(fleet, 18)))

    assert plan.actions == ()
    assert [warning.rule for warning in plan.warnings] == ["inert-approval"]
    assert tells(plan.warnings[0].message, "used", "18", "18", "used")


def test_approval_for_unknown_pool_is_reported() -> None:
    plan = planned(a_fleet_without_old(an_approval(pool="odl")), old_pool(idle=0))

    assert tells(plan.warnings[0].message, "pool odl")


def test_approval_permits_none_when_its_usage_is_unknown() -> None:
    fleet = a_fleet_without_old(an_approval())

    plan = planned(fleet, old_pool(idle=4, approved=Unknown(unknown="no answer")))

    assert plan.actions == ()
    assert tells(plan.guards[0].because, "approved", "0", "18", "unknown")


def test_guard_explains_expired_and_used_approvals() -> None:
    yesterday = TODAY - timedelta(days=1)
    expired = an_approval(expires=yesterday.isoformat())
    fleet = a_fleet_without_old(expired, an_approval(count=3))

    plan = planned(fleet, old_pool(idle=4, approved=used(fleet, 0, 3)))

    assert tells(plan.guards[0].because, "approved", "3", "21", yesterday, "used up")


def test_edited_approval_is_a_new_one() -> None:
    fleet = a_fleet_without_old(an_approval(count=4))
    edited = a_fleet_without_old(an_approval(count=5))

    plan = planned(edited, old_pool(idle=4, approved=used(fleet, 4)))

    assert not plan.is_refused


def test_approval_does_not_change_share_of_other_pools() -> None:
    gone = {"old": 3, "other": 3}
    workers = [
        a_worker(name=f"debian-ci-{pool}-{n}", pool=pool)
        for pool, count in gone.items()
        for n in range(count)
    ]
    fleet = a_fleet_without_old(an_approval(count=3))

    plan = planned(fleet, a_sim_world(*workers))

    assert {action.pool for action in plan.actions} == {"old"}
    assert {action.pool for action in plan.withheld} == {"other"}


def test_approved_removals_do_not_count_across_pools() -> None:
    pools = {name: a_pool(provider="desk", max=27) for name in ("a", "b", "c", "d")}
    workers = [
        a_worker(name=f"debian-ci-{pool}-{n}", pool=pool, busy=n > 3)
        for pool in pools
        for n in range(1, 31)
    ]
    refused = a_sim_fleet(pools=pools)
    approved = a_sim_fleet(pools=pools, approvals=[an_approval(pool="a", count=3)])
    world = a_sim_world(*workers)

    assert planned(refused, world).actions == ()
    assert len(planned(approved, world).actions) == 12


def test_approval_of_cost_guard_is_counted_in_machines() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", min=5, max=5)},
        guards={"refuse": {"cost_increase": "0.1 EUR/h"}},
        approvals=[an_approval(guard="cost_increase", pool="builders", count=3)],
    )

    plan = planned(fleet, a_sim_world())

    assert (len(plan.actions), len(plan.withheld), plan.is_refused) == (3, 2, True)
    assert len(plan.approvals[0].passes) == 3


def test_action_withheld_by_other_guard_uses_no_approval() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", min=5, max=5)},
        guards={"refuse": {"cost_increase": "0.1 EUR/h"}, "throttle": {"create": {"count": 2}}},
        approvals=[an_approval(guard="cost_increase", pool="builders", count=5)],
    )

    plan = planned(fleet, a_sim_world())

    assert len(plan.actions) == 2
    assert plan.approvals[0].passes == tuple(action.worker for action in plan.actions)
