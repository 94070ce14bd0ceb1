"""Releases are held to the limit for deletions where their workers may be at work, unseen."""

from fleet.guard import guard
from fleet.model.facts import World
from fleet.model.plan import Cause, Plan, Release
from fleet.reconcile import reconcile
from tests.builders import NOW, a_plan, a_pool_verdict, a_request, a_sim_fleet
from tests.builders.guarding import an_approval, drains, said, with_guards
from tests.builders.queue_worlds import FIRST, QUEUE, a_debusine_fleet, a_debusine_world, ours
from tests.builders.sentences import tells

LIMITED = with_guards(refuse={"delete": {"share": "30%", "count": 3}})


def releases(count: int, pool: str = "builders", *, may_work: bool = True) -> tuple[Release, ...]:
    """Return so many releases of workers of a pool."""
    return tuple(
        Release(
            pool=pool, worker=f"{pool}-gone-{n}", registry="debian", because="", may_work=may_work
        )
        for n in range(count)
    )


def guarded(count: int, *, busy: int = 10, may_work: bool = True, **overrides: object) -> Plan:
    """Return what guards say of so many releases in a pool that holds so many machines."""
    pools = (a_pool_verdict(busy=busy),)
    found = releases(count, may_work=may_work)
    return guard(LIMITED, a_plan(pools=pools, releases=found, **overrides))


def test_few_workers_without_machine_are_released() -> None:
    plan = guarded(3)

    assert (len(plan.releases), plan.guards, plan.unreleased) == (3, (), ())


def test_releases_above_the_count_are_refused_and_named() -> None:
    plan = guarded(4)

    assert said(plan) == [("delete", "builders", "refused")]
    assert (plan.releases, len(plan.unreleased)) == ((), 4)
    assert tells(plan.guards[0].because, "4", "14", "builders")


def test_delete_share_counts_unseen_machines() -> None:
    assert said(guarded(3, busy=7)) == []
    assert said(guarded(3, busy=6)) == [("delete", "builders", "refused")]


def test_unusable_token_is_revoked_without_counting() -> None:
    plan = guarded(9, busy=0, may_work=False)

    assert (len(plan.releases), plan.guards) == (9, ())


def test_releases_are_counted_across_pools() -> None:
    pools = (a_pool_verdict(busy=10), a_pool_verdict(pool="arm", busy=10))
    found = (*releases(2), *releases(2, "arm"))

    plan = guard(LIMITED, a_plan(pools=pools, releases=found))

    assert said(plan) == [("delete", None, "refused")]
    assert len(plan.unreleased) == 4


def test_pool_with_only_registrations_is_evaluated() -> None:
    plan = guard(LIMITED, a_plan(releases=releases(1, "old")))

    assert said(plan) == [("delete", "old", "refused")]
    assert plan.guards[0].of == 1


def test_releases_count_together_with_config_removals() -> None:
    going = drains(2, Cause.CONFIG)
    plan = guarded(2, actions=going)

    assert said(plan) == [("delete", "builders", "refused")]
    assert (len(plan.withheld), len(plan.unreleased)) == (2, 2)


def test_refusal_names_config_and_lost_workers() -> None:
    pools = (a_pool_verdict(busy=10, unwanted=3),)

    plan = guard(LIMITED, a_plan(pools=pools, releases=releases(2)))

    assert tells(plan.guards[0].because, "config", "and", "lost")


def test_approval_permits_its_count_of_releases() -> None:
    plan = guarded(4, approvals=(an_approval("builders", "delete", 3),))

    assert (len(plan.releases), len(plan.unreleased)) == (3, 1)
    assert plan.approvals[0].passes == tuple(each.worker for each in plan.releases)


def vanished(*names: str) -> World:
    """Return a world in which no machine is left of these busy workers."""
    workers = [ours(name, busy=True) for name in names]
    return a_debusine_world(*workers, machines=(), requests=(a_request(),))


def test_work_of_unseen_workers_causes_no_creation() -> None:
    plan = guard(a_debusine_fleet(), reconcile(a_debusine_fleet(), vanished("a", "b")))

    assert plan.actions == ()
    assert [action.action for action in plan.withheld] == ["create"]
    assert tells(plan.guards[0].way_out, "lost")


def test_approval_for_pool_with_only_registrations_is_used() -> None:
    approval = {
        "guard": "delete",
        "pool": "old",
        "count": 1,
        "reason": "moved",
        "expires": NOW.date(),
    }
    fleet = a_sim_fleet(queues={"debian": QUEUE}, approvals=[approval])
    world = a_debusine_world(ours(pool="old", busy=True), machines=())

    plan = guard(fleet, reconcile(fleet, world))

    assert [each.worker for each in plan.releases] == [FIRST]
