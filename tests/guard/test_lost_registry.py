"""What is done when a registry no longer knows workers that had registered: it is refused."""

from fleet.guard import guard
from fleet.model.facts import Attempt, Listing, MachineState, Request, World
from fleet.model.plan import Delete, Plan, Reason, Release
from fleet.reconcile import reconcile
from tests.builders import (
    NOW,
    a_plan,
    a_pool_verdict,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_worker,
    ago,
    an_attempt,
)
from tests.builders.deciding import FIRST, fleet_with, reason_of, with_machines
from tests.builders.guarding import an_approval, with_guards
from tests.builders.queue_worlds import QUEUE, a_debusine_fleet, a_debusine_world, ours, planned
from tests.builders.sentences import tells

NAMES = tuple(f"debian-ci-builders-{number:04}" for number in range(1, 11))


def forgetful(*attempts: Attempt, known: int = 0, requests: tuple[Request, ...] = ()) -> World:
    """Return a world with ten machines an hour old; so many workers are known, the others not."""
    workers = (a_worker(name=name) for name in NAMES)
    before = a_sim_world(*workers, requests=requests, attempts=attempts)
    listing = before.providers["desk"]
    assert isinstance(listing, Listing)
    emptied = listing.altered(workers=(listing.workers or ())[:known])
    return before.altered(providers={"desk": emptied})


def tries(result: str = "registered", **said: object) -> tuple[Attempt, ...]:
    return tuple(an_attempt(worker=name, at=ago(hours=1), result=result, **said) for name in NAMES)


def plan_of(world: World, **pool: object) -> Plan:
    fleet = fleet_with(max=20, **pool)
    return guard(fleet, reconcile(fleet, world))


def test_possibly_unseen_workers_are_not_recreated() -> None:
    world = forgetful(*tries(), requests=(a_request(count=3),))

    plan = plan_of(world, min=3, spare=2)

    assert plan.actions == ()
    assert {action.action for action in plan.withheld} == {"create", "delete"}


def test_stopped_machine_is_deleted_after_lost_registration() -> None:
    off = with_machines(forgetful(*tries(), known=9), NAMES[9], state=MachineState.STOPPED)

    (action,) = plan_of(off, min=9, spare=0).actions

    assert isinstance(action, Delete)
    assert (action.worker, action.reason) == (NAMES[9], Reason.REGISTRATION_LOST)
    assert tells(action.because, "revoked")


def test_machine_older_than_all_attempts_counts_as_registered() -> None:
    other = an_attempt(worker="debian-ci-builders-0099", at=ago(minutes=50))

    assert reason_of(plan_of(forgetful(other)), FIRST) is Reason.REGISTRATION_LOST
    assert reason_of(plan_of(forgetful()), FIRST) is Reason.BOOT_FAILED


def test_machine_is_kept_while_its_boot_is_not_overdue() -> None:
    world = with_machines(forgetful(*tries()), created_at=ago(minutes=2))

    plan = plan_of(world)

    assert plan.is_quiet
    assert not plan.withheld


def test_approval_permits_its_count_of_releases() -> None:
    releases = tuple(
        Release(pool="builders", worker=f"gone-{n}", registry="debian", because="", may_work=True)
        for n in range(4)
    )
    approvals = (an_approval("builders", "delete", 3),)
    plan = a_plan(pools=(a_pool_verdict(busy=10),), releases=releases, approvals=approvals)

    guarded = guard(with_guards(refuse={"delete": {"share": "30%", "count": 3}}), plan)

    assert (guarded.releases, guarded.unreleased) == (releases[:3], releases[3:])
    assert guarded.approvals[0].passes == ("gone-0", "gone-1", "gone-2")


def test_work_of_unseen_workers_causes_no_creation() -> None:
    workers = [ours(name, busy=True) for name in ("a", "b")]
    world = a_debusine_world(*workers, machines=(), requests=(a_request(),))

    plan = planned(a_debusine_fleet(), world)

    assert plan.actions == ()
    assert [action.action for action in plan.withheld] == ["create"]
    assert tells(plan.guards[0].way_out, "lost")


def test_approval_for_pool_with_only_registrations_is_used() -> None:
    approval = {"guard": "delete", "pool": "old", "count": 1, "reason": "moved"}
    approvals = [approval | {"expires": NOW.date()}]
    fleet = a_sim_fleet(queues={"debian": QUEUE}, approvals=approvals)

    plan = planned(fleet, a_debusine_world(ours(pool="old", busy=True), machines=()))

    assert [each.worker for each in plan.releases] == [FIRST]
