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


def test_a_spare_worker_that_boots_takes_the_place_of_an_outdated_one() -> None:
    fleet = fleet_with(spare=1, replace={"at_a_time": "100%"})
    world = outdated(a_sim_world(a_worker(), starting=(SECOND,)), FIRST)

    plan = reconcile(fleet, world)

    assert plan.actions == ()
    assert tells(sentence_of(plan, FIRST), "replacement")


def test_a_machine_that_is_made_for_a_request_counts_as_coming() -> None:
    fleet = fleet_with(min=1, replace={"at_a_time": "100%"})
    world = outdated(a_sim_world(a_worker(busy=True), requests=(a_request(),)), FIRST)

    plan = reconcile(fleet, world)

    assert [(a.action, a.reason) for a in plan.actions] == [("create", Reason.REQUESTS_WAIT)]


def test_each_spare_worker_gets_a_replacement_of_its_own() -> None:
    fleet = fleet_with(max=6, spare=3, replace={"at_a_time": "100%"})
    world = outdated(a_sim_world(*(a_worker(name=name) for name in (FIRST, SECOND, THIRD))))

    plan = reconcile(fleet, world)

    assert [a.reason for a in plan.actions] == [Reason.REPLACEMENT] * 3


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("workers", [{}, {"min": 1, "spare": 1}])
def test_an_on_demand_worker_that_is_outdated_is_not_replaced(
    workers: dict[str, int], *, busy: bool
) -> None:
    pool = a_pool(provider="desk", provides=["rare"], replace={"at_a_time": "100%"}, **workers)
    fleet = a_sim_fleet(pools={"builders": pool}, tags={"rare": {"on_demand": True}})

    plan = reconcile(fleet, outdated(a_sim_world(a_worker(busy=busy)), FIRST))

    assert [(a.action, a.reason) for a in plan.actions] == [("drain", Reason.OUTDATED)]


def test_where_a_deletion_makes_room_an_outdated_worker_waits_for_it() -> None:
    fleet = fleet_with(max=2, min=2, replace={"at_a_time": "100%"})
    world = outdated(a_sim_world(a_worker(), a_worker(name=SECOND, draining=True)), FIRST)

    plan = reconcile(fleet, world)

    assert actions_of(plan) == [("delete", SECOND)]
    said = "no room yet for its replacement"
    assert sentence_of(plan, FIRST).endswith(said)


@pytest.mark.parametrize(("minutes", "is_due"), [(119, False), (120, True)])
def test_a_machine_is_too_old_from_the_moment_of_max_age(minutes: int, *, is_due: bool) -> None:
    fleet = fleet_with(retire={"max_age": "2h"}, replace={"at_a_time": "100%"})
    world = with_machines(a_sim_world(a_worker(busy=True)), FIRST, created_at=ago(minutes=minutes))

    assert bool(reconcile(fleet, world).actions) == is_due


def test_a_worker_that_waits_to_be_replaced_keeps_no_other_from_going() -> None:
    fleet = fleet_with(replace={"at_a_time": "0%"})
    workers = (a_worker(since=ago(minutes=1)), a_worker(name=SECOND, since=ago(hours=1)))

    plan = reconcile(fleet, outdated(a_sim_world(*workers), FIRST))

    assert actions_of(plan) == [("drain", SECOND)]
