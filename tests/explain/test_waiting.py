"""What waits, by outcome; those that wait longest are explained."""

from fleet.explain.case import Case
from fleet.explain.request import WaitingExplanations, waits_of
from fleet.guard import guard
from fleet.model.facts import Request, World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago

BUILDERS = ("pools", "builders")


def waits(fleet: Fleet, *requests: Request, most: int = 200) -> WaitingExplanations:
    world: World = a_sim_world(requests=requests)
    return waits_of(Case(fleet, world, guard(fleet, reconcile(fleet, world))), most=most)


def test_requests_without_machine_are_first_with_deciding_key() -> None:
    found = waits(a_sim_fleet(), *(a_request(id=str(n)) for n in range(1, 6)))

    waiting, served = found.groups
    assert [len(group.requests) for group in found.groups] == [2, 3]
    assert (waiting.is_served, served.is_served) == (False, True)
    assert found.explained[waiting.requests[0].key].path == (*BUILDERS, "workers", "max")
    assert [each.start for each in waiting.requests] == [None, None]
    assert [each.assumed for each in waiting.requests] == [ago(minutes=-61, seconds=-30)] * 2


def test_running_builds_have_user_and_expected_end() -> None:
    work = {
        "task": "sbuild",
        "package": "hello",
        "requester": "ada",
        "started_at": ago(minutes=4),
        "expected_seconds": 600,
    }
    fleet, world = a_sim_fleet(), a_sim_world(a_worker(busy=True, running="7", work=work))

    (found,) = waits_of(Case(fleet, world, guard(fleet, reconcile(fleet, world)))).running

    assert (found.key, found.package, found.user) == ("7", "hello", "ada")
    assert (found.since, found.end) == (ago(minutes=4), ago(minutes=-6))


def test_request_is_late_after_target_wait_or_an_hour() -> None:
    request = a_request(pending_since=ago(minutes=40))
    patient = a_sim_fleet(pools={"builders": a_pool(provider="desk", target_wait="50m")})
    hasty = a_sim_fleet(pools={"builders": a_pool(provider="desk", target_wait="30m")})
    now = a_sim_world().time

    late = {}
    for name, fleet in {"none": a_sim_fleet(), "50m": patient, "30m": hasty}.items():
        (group,) = waits(fleet, request).groups
        late[name] = (group.long_seconds, group.is_long(group.requests[0], now))

    assert late == {"none": (3600, False), "50m": (3000, False), "30m": (1800, True)}
