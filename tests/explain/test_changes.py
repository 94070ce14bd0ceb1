"""What a change of fleet.yaml does, one sentence per test: both plans are made of one world."""

from decimal import Decimal

import pytest

from fleet.explain.changes import Changes, compare, find_renames, find_unseen, rename_pools
from fleet.guard import guard
from fleet.model.digests import config_digest
from fleet.model.facts import Demand, Unknown, World
from fleet.model.plan import Create, Plan, Reason
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    a_create,
    a_listing,
    a_plan,
    a_pool,
    a_reading,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
)
from tests.builders.deciding import fleet_with, with_machines
from tests.builders.sentences import tells

PRICE = Decimal("0.0777")


def waiting(count: int) -> World:
    return a_sim_world(requests=tuple(a_request(id=str(100 + n)) for n in range(count)))


def holding(*names: str, idle: int = 5) -> World:
    """Return a world in which these workers of `builders` are idle and nothing waits."""
    workers = (a_worker(name=name, machine=name, since=ago(minutes=idle)) for name in names)
    return a_sim_world(*workers)


def made_by(fleet: Fleet, count: int) -> World:
    """Return a world with a worker of this fleet.yaml for each request that waits."""
    world = waiting(count)
    created = [a for a in planned(fleet, world).actions if isinstance(a, Create)]
    workers = [a_worker(name=a.worker, machine=a.worker, since=ago(minutes=1)) for a in created]
    there = a_sim_world(*workers).altered(queues=world.queues)
    made = created[0].inputs
    return with_machines(there, type=made.type, digest=made.labels["digest"])


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


def changes(base: Fleet, head: Fleet, world: World) -> Changes:
    return compare(planned(base, world), planned(head, world))


def counted(change: Changes) -> list[tuple[str, str, Reason, bool, int, int]]:
    return [
        (each.pool, each.action, each.reason, each.withheld, each.before, each.after)
        for each in change.actions
    ]


def differences(change: Changes) -> list[tuple[str, str, str, str]]:
    return [
        (pool.pool, each.key, each.before, each.after)
        for pool in change.pools
        for each in pool.differences
    ]


# nothing


def test_comparison_is_quiet_when_only_demand_acts() -> None:
    change = changes(fleet_with(), fleet_with(), waiting(2))

    assert change.is_quiet
    assert change.same_config
    assert (change.actions, change.requests, change.pools) == ((), (), ())


def test_change_without_immediate_effect_names_the_limit() -> None:
    change = changes(fleet_with(max=3), fleet_with(max=9), waiting(1))

    assert change.is_quiet
    assert not change.same_config
    assert differences(change) == [("builders", "max", "3", "9")]


def test_comparison_ignores_names_of_new_machines() -> None:
    base = a_plan(actions=(a_create(worker="debian-ci-builders-0001"),))
    head = a_plan(actions=(a_create(worker="debian-ci-builders-0007"),))

    assert compare(base, head).is_quiet


def test_comparison_names_base_by_digest() -> None:
    base = fleet_with(max=1)

    assert changes(base, fleet_with(max=2), waiting(0)).base == config_digest(base)


# more and fewer machines


def test_raised_max_creates_withheld_machines() -> None:
    change = changes(fleet_with(max=1), fleet_with(max=3), waiting(3))

    (made,) = change.actions
    assert counted(change) == [("builders", "create", Reason.REQUESTS_WAIT, False, 1, 3)]
    assert (made.type, made.cost) == ("ccx33", 2 * PRICE)
    assert (change.cost_before, change.cost_after) == (PRICE, 3 * PRICE)


def test_raised_max_serves_waiting_requests() -> None:
    change = changes(fleet_with(max=1), fleet_with(max=3), waiting(3))

    (served,) = change.requests
    assert (served.served, served.requests) == (True, ("debian/101", "debian/102"))
    assert "pool builders" in served.because


def test_lowered_max_names_requests_without_a_machine() -> None:
    change = changes(fleet_with(max=3), fleet_with(max=1), waiting(3))

    (unserved,) = change.requests
    assert (unserved.served, unserved.requests) == (False, ("debian/101", "debian/102"))
    assert tells(unserved.because, "builders", "workers.max", "1")
    assert unserved.path == ("pools", "builders", "workers", "max")
    assert counted(change) == [("builders", "create", Reason.REQUESTS_WAIT, False, 3, 1)]


def test_lowered_max_names_drained_workers() -> None:
    limits = {"refuse": {"delete": {"share": "100%", "count": 10}}}
    pools = {"builders": a_pool(provider="desk", max=1)}
    head = a_sim_fleet(pools=pools, guards=limits)

    change = changes(fleet_with(max=3), head, holding("old", "new"))

    (drained,) = change.actions
    assert counted(change) == [("builders", "drain", Reason.ABOVE_MAX, False, 0, 1)]
    assert drained.workers == ("new",)
    assert tells(drained.because, "2", "workers.max", "1")


def test_changed_reason_of_a_drain_is_a_difference() -> None:
    base = fleet_with(max=1)
    head = fleet_with(max=1, mode="drain")
    world = holding("one", idle=60)

    change = changes(base, head, world)

    assert {(each.reason, each.before, each.after) for each in change.actions} == {
        (Reason.IDLE_TOO_LONG, 1, 0),
        (Reason.POOL_DRAINING, 0, 1),
    }


def test_comparison_shows_changed_type_at_equal_count() -> None:
    change = changes(fleet_with(), fleet_with(machine="ccx63"), waiting(2))

    assert [(each.type, each.before, each.after) for each in change.actions] == [
        ("ccx33", 2, 0),
        ("ccx63", 0, 2),
    ]
    assert ("builders", "type", "ccx33", "ccx63") in differences(change)
    assert change.requests == ()


def test_comparison_names_machines_outdated_by_change() -> None:
    base, head = fleet_with(max=2), fleet_with(max=2, machine="ccx63")
    there = made_by(base, 2)

    change = changes(base, head, there)

    assert [(each.pool, each.outdated, each.workers) for each in change.outdated] == [
        ("builders", True, ("debian-ci-builders-0001", "debian-ci-builders-0002"))
    ]
    assert (change.actions, change.cost_before) == ((), change.cost_after)
    assert not change.is_quiet


def test_comparison_shows_machines_outdated_only_by_base() -> None:
    base, head = fleet_with(max=2, machine="ccx63"), fleet_with(max=2)
    there = made_by(head, 2)

    change = changes(base, head, there)

    assert [(each.outdated, len(each.workers)) for each in change.outdated] == [(False, 2)]


def test_comparison_omits_machines_outdated_in_both() -> None:
    there = made_by(fleet_with(max=2, machine="ccx63"), 2)

    assert changes(fleet_with(max=2), fleet_with(max=3), there).outdated == ()


def test_costs_in_different_currencies_are_not_subtracted() -> None:
    base, head = a_plan(cost_after=Decimal(2)), a_plan(cost_after=Decimal(2), currency="USD")

    change = compare(base, head)

    assert (change.currency_before, change.currency) == ("EUR", "USD")
    assert not change.is_quiet


# pools


def test_added_pool_serves_requests_that_no_pool_fitted() -> None:
    big = a_pool(provider="desk", provides=["big"])
    head = a_sim_fleet(pools={"builders": a_pool(provider="desk"), "big": big})
    world = a_sim_world(requests=(a_request(required=["big"]),))

    change = changes(fleet_with(), head, world)

    assert [(pool.pool, pool.change) for pool in change.pools] == [("big", "added")]
    assert [(each.served, each.requests) for each in change.requests] == [(True, ("debian/101",))]
    assert counted(change) == [("big", "create", Reason.REQUESTS_WAIT, False, 0, 1)]


def test_pool_that_is_removed_drains_its_workers() -> None:
    head = a_sim_fleet(pools={}, guards={"refuse": {"delete": {"share": "100%", "count": 10}}})

    change = changes(fleet_with(), head, holding("one"))

    assert [(pool.pool, pool.change) for pool in change.pools] == [("builders", "removed")]
    assert counted(change) == [("builders", "drain", Reason.POOL_REMOVED, False, 0, 1)]


def test_restored_pool_serves_with_its_remaining_workers() -> None:
    worker = a_worker(name="one", machine="one")
    world = a_sim_world(worker, requests=(a_request(),))

    change = changes(a_sim_fleet(pools={}), fleet_with(), world)

    assert [(pool.pool, pool.change) for pool in change.pools] == [("builders", "added")]
    (request,) = change.requests
    assert request.served
    assert tells(request.because, "builders")


# guards


def test_comparison_shows_new_refusal_with_withheld_actions() -> None:
    change = changes(fleet_with(), a_sim_fleet(pools={}), holding("one"))

    (refusal,) = change.guards
    assert (refusal.guard, refusal.pool) == ("delete", "builders")
    assert (refusal.before, refusal.after) == ("passed", "refused")
    assert refusal.way_out
    assert counted(change) == [("builders", "drain", Reason.POOL_REMOVED, True, 0, 1)]
    assert change.cost_before == change.cost_after


def test_comparison_reports_guard_that_stops_refusing() -> None:
    pools: dict[str, object] = {}
    base = a_sim_fleet(pools=pools)
    head = a_sim_fleet(pools=pools, guards={"refuse": {"delete": {"share": "100%", "count": 10}}})

    change = changes(base, head, holding("one"))

    assert [(each.before, each.after) for each in change.guards] == [("refused", "passed")]
    assert {(each.withheld, each.before, each.after) for each in change.actions} == {
        (False, 0, 1),
        (True, 1, 0),
    }


def test_comparison_omits_refusal_in_both_plans() -> None:
    base = a_sim_fleet(pools={})
    head = a_sim_fleet(pools={}, guards={"demand_max_age": "9h"})

    change = changes(base, head, holding("one"))

    assert (change.guards, change.is_quiet) == ((), True)


def test_comparison_reports_machine_that_newly_needs_attention() -> None:
    base, head = a_plan(), a_plan(attention=("debian-ci-builders-0001: it costs money",))

    change = compare(base, head)

    assert change.attention == ("debian-ci-builders-0001: it costs money",)
    assert not change.is_quiet


# what cannot be compared


def test_queue_of_base_only_is_unknown() -> None:
    base = a_sim_fleet(queues={"debian": {"kind": "tickets"}, "old": {"kind": "tickets"}})

    unseen = find_unseen(base, a_sim_fleet(), waiting(0))

    (queue,) = unseen
    assert queue.startswith("queue old ")


def test_unread_sources_of_both_fleets_are_not_base_only() -> None:
    nothing = a_sim_world().altered(providers={}, queues={})

    assert find_unseen(a_sim_fleet(), a_sim_fleet(), nothing) == ()


def test_comparison_names_source_unknown_only_after_change() -> None:
    head = a_sim_fleet(guards={"demand_max_age": "1m"})
    stale = Demand(read_at=ago(minutes=5), requests=(a_request(),))
    world = a_sim_world(queues={"debian": a_reading(demand=stale, workers=None)})

    change = changes(a_sim_fleet(), head, world)

    assert change.unknown
    assert all(tells(text, "only", "change", "debian") for text in change.unknown)
    assert change.requests == ()


def test_comparison_names_unread_provider_of_base() -> None:
    providers = {"desk": {"kind": "sim"}, "attic": {"kind": "sim"}}
    old = a_pool(provider="attic")
    base = a_sim_fleet(providers=providers, pools={"builders": a_pool(provider="desk"), "x": old})

    change = changes(base, fleet_with(), waiting(0))

    assert any("provider attic" in text for text in change.unknown)


def test_comparison_is_quiet_when_both_plans_lack_the_same_source() -> None:
    world = a_sim_world(providers={"desk": Unknown(unknown="no answer")})

    change = changes(fleet_with(), fleet_with(max=9), world)

    assert (change.is_quiet, change.unknown) == (True, ())


def test_comparison_omits_stack_without_pool() -> None:
    world = a_sim_world(
        providers={"desk": a_listing(workers=())}, stacks={"gone": a_stack(provider="desk")}
    )

    assert changes(fleet_with(), fleet_with(), world).pools == ()


def renamed(base: Fleet, head: Fleet, world: World) -> Changes:
    """Return what a change does in a world that was observed by the new names of its pools."""
    renames = find_renames(base, head)
    assert isinstance(world.stacks, dict)
    stacks = {renames.get(pool, pool): stack for pool, stack in world.stacks.items()}
    seen = world.altered(stacks=stacks)
    before = planned(rename_pools(base, renames), seen)
    return compare(before, planned(head, seen), renames=renames)


def makers(**limits: object) -> Fleet:
    pool = a_pool(provider="desk", previously="builders", **limits)
    return a_sim_fleet(pools={"makers": pool})


def test_renamed_pool_changes_only_its_name() -> None:
    change = renamed(fleet_with(), makers(), made_by(fleet_with(), 2))

    assert change.is_quiet
    assert differences(change) == [("makers", "name", "builders", "makers")]


def test_renamed_pool_with_higher_max_creates_the_difference() -> None:
    world = made_by(fleet_with(max=1), 2).altered(queues=waiting(2).queues)

    change = renamed(fleet_with(max=1), makers(max=2), world)

    assert [(pool, *rest[-2:]) for pool, *rest in counted(change)] == [("makers", 0, 1)]
    assert change.cost_after - change.cost_before == PRICE


def test_approval_of_renamed_pool_is_renamed() -> None:
    spared = {"guard": "delete", "pool": "builders", "count": 1, "reason": "x"}
    base = a_sim_fleet(
        pools={"builders": a_pool(provider="desk")},
        approvals=[{**spared, "expires": "2027-01-01"}],
    )

    named = rename_pools(base, {"builders": "makers"})

    assert [each.pool for each in named.approvals] == ["makers"]
    assert list(named.pools) == ["makers"]


@pytest.mark.parametrize("head", [a_sim_fleet(), makers()])
def test_pool_is_not_renamed_when_new_name_existed(head: Fleet) -> None:
    both = a_sim_fleet(
        pools={"builders": a_pool(provider="desk"), "makers": a_pool(provider="desk")}
    )

    assert find_renames(both, head) == {}
