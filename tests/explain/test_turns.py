"""A request that a limit stops starts when work ends that counts to the same limit."""

from fleet.explain.case import Case
from fleet.explain.request import explain_one
from fleet.explain.turns import LimitTurn
from fleet.explain.what_if import Replans
from fleet.guard import guard
from fleet.model.facts import Request, Worker, World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.sentences import tells

LARGE = ("powerful",)


def large_fleet(per: int = 1, **overrides: object) -> Fleet:
    """Return a fleet in which each user may have some machines for large builds."""
    tag = {"on_demand": True, "exclusive": True, "limits": {"per": {"submitter": per}}}
    pools = {"builders": a_pool(provider="desk", max=5, provides=["powerful"])}
    return a_sim_fleet(pools=pools, tags={"powerful": tag}, **overrides)


def large(number: int, user: str, **overrides: object) -> Request:
    since = ago(minutes=60 - number)
    fields = {"id": str(number), "requester": user, "required": LARGE, "pending_since": since}
    return a_request(**({"expected_seconds": 3600} | fields | overrides))


def busy(number: int, user: str | None, minutes: int) -> Worker:
    """Return a worker with a large build of a user that ends in some minutes."""
    work = {
        "task": "sbuild",
        "requester": user,
        "required": LARGE,
        "package": "chromium",
        "started_at": ago(minutes=10),
        "expected_seconds": (minutes + 10) * 60,
    }
    name = f"debian-ci-builders-{number:04}"
    running = f"debian/{900 + number}"
    return a_worker(name=name, machine=name, busy=True, running=running, work=work)


def turns(fleet: Fleet, world: World) -> dict[str, LimitTurn]:
    return Case(fleet, world, guard(fleet, reconcile(fleet, world))).turns


def starts(fleet: Fleet, world: World) -> dict[str, tuple[str, int]]:
    """Return the work that each request waits for, and the minutes until its end."""
    return {
        key: (turn.first.work, (turn.first.end or 0) // 60)
        for key, turn in turns(fleet, world).items()
        if turn.first
    }


def test_request_waits_for_own_build_when_another_user_s_ends_first() -> None:
    world = a_sim_world(busy(1, "ada", 120), busy(2, "ben", 60), requests=(large(3, "ada"),))

    assert starts(large_fleet(), world) == {"debian/3": ("debian/901", 120)}


def test_later_requests_of_a_user_start_one_after_the_other() -> None:
    world = a_sim_world(requests=tuple(large(n, "ada") for n in (1, 2, 3)))

    assert starts(large_fleet(), world) == {
        "debian/2": ("debian/1", 61),
        "debian/3": ("debian/2", 121),
    }


def test_request_waits_for_the_second_end_when_a_limit_is_exceeded() -> None:
    world = a_sim_world(busy(1, "ada", 60), busy(2, "ada", 90), requests=(large(3, "ada"),))

    assert starts(large_fleet(), world) == {"debian/3": ("debian/902", 90)}


def test_build_follows_own_postponed_build() -> None:
    """Its start is known, because the end of the build in a later run is known."""
    fleet = large_fleet(guards={"throttle": {"create": {"count": 1}}})
    requests = (large(1, "ada"), large(2, "ben"), large(3, "ben"))

    assert starts(fleet, a_sim_world(requests=requests)) == {"debian/3": ("debian/2", 71)}


def test_turn_has_no_first_end_when_duration_is_unknown() -> None:
    requests = tuple(large(n, "ada", expected_seconds=None) for n in (1, 2))

    (turn,) = turns(large_fleet(), a_sim_world(requests=requests)).values()

    assert (turn.first, [each.work for each in turn.works]) == (None, ["debian/1"])


def test_unlimited_requests_have_no_turn() -> None:
    world = a_sim_world(requests=tuple(large(n, "ada") for n in (1, 2)))

    assert turns(large_fleet(per=2), world) == {}


def test_explained_start_is_the_end_of_own_build() -> None:
    world = a_sim_world(busy(1, "ada", 120), busy(2, "ben", 60), requests=(large(3, "ada"),))
    fleet = large_fleet()
    case = Case(fleet, world, guard(fleet, reconcile(fleet, world)))

    answer = explain_one(case, case.signatures["debian/3"], "debian/3", Replans(0))

    assert answer.expected == ago(minutes=-120)
    assert answer.finish == ago(minutes=-180)


def sentences(fleet: Fleet, world: World, key: str) -> str:
    case = Case(fleet, world, guard(fleet, reconcile(fleet, world)))
    return " ".join(explain_one(case, case.signatures[key], key, Replans(0)).plain)


def test_build_waits_for_its_users_build_after_work_of_unknown_user() -> None:
    stray = a_worker(
        name="debian-ci-builders-0001",
        machine="debian-ci-builders-0001",
        busy=True,
        work={"task": "sbuild", "required": LARGE},
    )
    world = a_sim_world(stray, requests=(large(1, "ada"), large(2, "ada")))

    first, second = (sentences(large_fleet(), world, f"debian/{n}") for n in (1, 2))

    assert tells(first, "whose user is unknown", "08:55")
    assert tells(second, "Waits for ada's other build", "debian/1", "08:55", "09:55")
    assert "unknown user" not in second
    assert "whose user" not in second


def test_build_that_does_not_run_yet_has_a_start() -> None:
    world = a_sim_world(requests=tuple(large(n, "ada") for n in (1, 2)))

    answer = sentences(large_fleet(), world, "debian/2")

    assert tells(answer, "ada's goes first to debian/1", "08:01", "09:01")
