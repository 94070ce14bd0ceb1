"""How long what waits is expected to wait, of which what is unknown counts as longest."""

from fleet.guard import guard
from fleet.model.facts import Request
from fleet.planner.forecast import ExpectedWaits, find_waits
from fleet.reconcile import reconcile
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago

IDLE = "debian-ci-builders-0001"


def waits(*requests: Request) -> ExpectedWaits:
    """Return the waits of requests for one worker, which is idle."""
    fleet = a_sim_fleet(pools={"builders": a_pool(provider="desk", max=1)})
    world = a_sim_world(a_worker(name=IDLE, machine=IDLE, since=ago(minutes=1)), requests=requests)
    return find_waits(fleet, world, guard(fleet, reconcile(fleet, world)))


def builds(count: int, **said: object) -> tuple[Request, ...]:
    return tuple(a_request(id=str(n), **{"expected_seconds": 600, **said}) for n in range(count))


def test_waits_are_unknown_without_requests() -> None:
    assert waits() == ExpectedWaits(half=None, most=None, known=0, of=0)


def test_waits_of_successive_builds_have_median_and_maximum() -> None:
    assert waits(*builds(4)) == ExpectedWaits(half=600, most=1800, known=4, of=4)


def test_waits_are_unknown_after_build_of_unknown_duration() -> None:
    found = waits(*builds(4, expected_seconds=None))

    assert (found.half, found.most, found.known, found.of) == (None, None, 1, 4)
    assert len(found.unknown) == 3


def test_waits_count_each_request_of_a_group() -> None:
    assert waits(a_request(expected_seconds=600, count=20)) == ExpectedWaits(
        half=5400, most=10_800, known=20, of=20
    )


def test_wait_ends_when_build_may_waive_a_tag() -> None:
    pools = {
        "builders": a_pool(provider="desk", min=1, max=1),
        "fast": a_pool(provider="desk", min=1, max=1, provides=["power"]),
    }
    power = {"exclusive": True, "limits": {"total": 0}}
    builds = tuple(
        a_request(id=str(n), required=("power",), pending_since=ago(minutes=n)) for n in (1, 2)
    )
    idle = a_worker(name=IDLE, machine=IDLE, since=ago(minutes=1))
    world = a_sim_world(idle, requests=builds)

    def find(**said: object) -> tuple[int | None, int | None, int]:
        tags = {"power": power | said}
        fleet = a_sim_fleet(pools=pools, tags=tags, durations={"any": "10m"})
        found = find_waits(fleet, world, guard(fleet, reconcile(fleet, world)))
        return found.half, found.most, found.known

    assert find() == (None, None, 0)
    # The second starts after 18 minutes; the first after it, not when it may waive the tag.
    assert find(otherwise={"after": "20m", "drop": True}) == (18 * 60, 28 * 60, 2)
