"""What is replaced and what comes in its place, to the last worker."""

import pytest

from fleet.model.facts import World
from fleet.model.plan import Reason
from fleet.reconcile import reconcile
from tests.builders import (
    a_pool,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_worker,
    ago,
)
from tests.builders.deciding import (
    FIRST,
    SECOND,
    actions_of,
    fleet_with,
    sentence_of,
    with_machines,
)
from tests.builders.sentences import tells

THIRD = "debian-ci-builders-0003"


def outdated(world: World, *names: str) -> World:
    return with_machines(world, *names, digest="yesterday")


def test_booting_spare_worker_replaces_outdated_one() -> None:
    fleet = fleet_with(spare=1, replace={"at_a_time": "100%"})
    world = outdated(a_sim_world(a_worker(), starting=(SECOND,)), FIRST)

    plan = reconcile(fleet, world)

    assert plan.actions == ()
    assert tells(sentence_of(plan, FIRST), "replacement")


def test_machine_created_for_request_counts_as_replacement() -> None:
    fleet = fleet_with(min=1, replace={"at_a_time": "100%"})
    world = outdated(a_sim_world(a_worker(busy=True), requests=(a_request(),)), FIRST)

    plan = reconcile(fleet, world)

    assert [(a.action, a.reason) for a in plan.actions] == [("create", Reason.REQUESTS_WAIT)]


def test_each_outdated_spare_worker_gets_a_replacement() -> None:
    fleet = fleet_with(max=6, spare=3, replace={"at_a_time": "100%"})
    world = outdated(a_sim_world(*(a_worker(name=name) for name in (FIRST, SECOND, THIRD))))

    plan = reconcile(fleet, world)

    assert [a.reason for a in plan.actions] == [Reason.REPLACEMENT] * 3


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("workers", [{}, {"min": 1, "spare": 1}])
def test_outdated_on_demand_worker_gets_no_replacement(
    workers: dict[str, int], *, busy: bool
) -> None:
    pool = a_pool(provider="desk", provides=["rare"], replace={"at_a_time": "100%"}, **workers)
    fleet = a_sim_fleet(pools={"builders": pool}, tags={"rare": {"on_demand": True}})

    plan = reconcile(fleet, outdated(a_sim_world(a_worker(busy=busy)), FIRST))

    assert [(a.action, a.reason) for a in plan.actions] == [("drain", Reason.OUTDATED)]


def test_outdated_worker_waits_when_a_deletion_frees_capacity() -> None:
    fleet = fleet_with(max=2, min=2, replace={"at_a_time": "100%"})
    world = outdated(a_sim_world(a_worker(), a_worker(name=SECOND, draining=True)), FIRST)

    plan = reconcile(fleet, world)

    assert actions_of(plan) == [("delete", SECOND)]
    said = "no room yet for its replacement"
    assert sentence_of(plan, FIRST).endswith(said)


@pytest.mark.parametrize(("minutes", "is_due"), [(119, False), (120, True)])
def test_machine_is_too_old_at_exactly_max_age(minutes: int, *, is_due: bool) -> None:
    fleet = fleet_with(retire={"max_age": "2h"}, replace={"at_a_time": "100%"})
    world = with_machines(a_sim_world(a_worker(busy=True)), FIRST, created_at=ago(minutes=minutes))

    assert bool(reconcile(fleet, world).actions) == is_due


def test_worker_awaiting_replacement_does_not_delay_other_drains() -> None:
    fleet = fleet_with(replace={"at_a_time": "0%"})
    workers = (a_worker(since=ago(minutes=1)), a_worker(name=SECOND, since=ago(hours=1)))

    plan = reconcile(fleet, outdated(a_sim_world(*workers), FIRST))

    assert actions_of(plan) == [("drain", SECOND)]
