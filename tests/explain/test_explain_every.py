"""The answer for everything that waits: groups of requests that fare the same."""

import pytest

from fleet.explain.request import BY_CREATE, BY_UNSEEN, each_request, explain_every
from tests.builders import a_pool, a_reading, a_request, a_sim_fleet, a_sim_world
from tests.builders.deciding import an_unseen_world
from tests.builders.queue_worlds import planned
from tests.builders.sentences import tells


@pytest.mark.slow
def test_thousand_requests_form_few_groups() -> None:
    world = a_sim_world(
        queues={"debian": a_reading(*(a_request(id=str(n)) for n in range(1000)), workers=None)}
    )
    fleet = a_sim_fleet()

    everything = explain_every(fleet, world, planned(fleet, world))

    created, waiting = everything.groups
    assert (created.verdict, len(created.requests), len(waiting.requests)) == (BY_CREATE, 3, 997)
    assert tells(waiting.verdict, "builders", "workers.max", "3")
    assert len(each_request(everything).requests) == 1000


def test_group_has_suggestion_for_its_first_request() -> None:
    world = a_sim_world(requests=tuple(a_request(id=str(n)) for n in range(1, 7)))
    fleet = a_sim_fleet()

    served, waits = explain_every(fleet, world, planned(fleet, world)).groups

    assert served.requests[0].suggestions == ()
    (change,) = waits.requests[0].suggestions[0].changes
    assert (change.path, change.new) == (("pools", "builders", "workers", "max"), "4")
    assert [answer.like for answer in waits.requests] == ["", "debian/4", "debian/4"]


def test_group_beyond_plan_limit_names_explain_command() -> None:
    requests = tuple(a_request(id=str(n), required=(f"gpu{n}",)) for n in range(1, 13))
    world = a_sim_world(requests=requests)
    fleet = a_sim_fleet()

    groups = explain_every(fleet, world, planned(fleet, world), most=8).groups

    assert groups[0].requests[0].suggestions
    assert groups[11].requests[0].suggestions == ()
    (step,) = groups[11].requests[0].next_steps
    assert tells(step, "fleet explain request debian/12")


def test_replanned_runs_are_shared_by_groups() -> None:
    throttle = {"throttle": {"create": {"count": 1}}}
    pools = {"builders": a_pool(provider="desk", max=9, provides=["b", "c", "d", "e", "f"])}
    fleet = a_sim_fleet(guards=throttle, pools=pools)
    requests = [a_request(id=tag, required=(tag,)) for tag in ("b", "c", "d", "e", "f")]
    world = a_sim_world(requests=(a_request(), *requests))

    groups = explain_every(fleet, world, planned(fleet, world), most=8).groups

    waits = [group.requests[0].suggestions[0].wait for group in groups[1:]]
    assert [wait.runs for wait in waits if wait] == [1, 2, 3, 4, 5]


def test_request_on_unseen_workers_has_its_own_outcome() -> None:
    fleet, world = a_sim_fleet(), an_unseen_world()

    (group,) = explain_every(fleet, world, planned(fleet, world)).groups

    assert group.verdict == BY_UNSEEN


@pytest.mark.parametrize("who", ["submitter", "owner", "scope", "team", "sandbox"])
def test_limit_of_tag_splits_only_groups_that_require_it(who: str) -> None:
    limits = {"per": {who: 1}}
    tags = {"power": {"on_demand": True, "exclusive": True, "limits": limits}}
    teams = {"red": {"scopes": ["u0"]}, "blue": {"scopes": ["u1"]}}
    fleet = a_sim_fleet(
        tags=tags,
        teams=teams,
        pools={
            "builders": a_pool(provider="desk", max=0),
            "big": a_pool(provider="desk", max=0, provides=["power"]),
        },
    )
    requests = (
        a_request(
            id=f"{required}{user}",
            required=[required],
            requester=f"u{user}",
            owner=f"u{user}",
            scope=f"u{user}",
            sandbox=f"u{user}",
        )
        for required in ("amd64", "power")
        for user in (0, 1)
    )
    world = a_sim_world(requests=tuple(requests))

    groups = explain_every(fleet, world, planned(fleet, world)).groups

    assert [len(each.requests) for each in groups if each.required == ("amd64",)] == [2]
    assert [len(each.requests) for each in groups if each.required == ("power",)] == [1, 1]
